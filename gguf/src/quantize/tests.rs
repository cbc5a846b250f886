//! Quantised values come back close, and better than by plain rounding.

use proptest::prelude::*;

use super::*;
use crate::dequant::dequantize_row;

/// Bell-shaped numbers of this standard deviation: sums of twelve uniform ones.
fn bell(n: usize, deviation: f32) -> Vec<f32> {
    let mut state = 1u64;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..n)
        .map(|_| deviation * ((0..12).map(|_| uniform()).sum::<f32>() - 6.0))
        .collect()
}

/// Quantises and dequantises.
fn there_and_back(ty: TensorType, values: &[f32]) -> Vec<f32> {
    let mut bytes = vec![0; ty.row_bytes(values.len()).expect("whole blocks")];
    quantize_row(ty, values, &mut bytes).expect("quantised");
    let mut out = vec![f32::NAN; values.len()];
    dequantize_row(ty, &bytes, &mut out).expect("dequantised");
    out
}

/// Root of the mean squared error over the root of the mean square.
fn relative_error(values: &[f32], out: &[f32]) -> f32 {
    let error: f64 = values.iter().zip(out).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let square: f64 = values.iter().map(|v| f64::from(*v).powi(2)).sum();
    (error / square).sqrt() as f32
}

#[test]
fn errors_stay_below_known_bounds() {
    // ggml's own quantisers give 0.00521, 0.01739, 0.03549 and 0.06963 for Q8_0, Q6_K, Q5_K and Q4_K on these numbers
    let bounds = [
        (TensorType::F32, 0.0),
        (TensorType::F16, 3e-4),
        (TensorType::BF16, 2e-3),
        (TensorType::Q8_0, 0.0053),
        (TensorType::Q6_K, 0.0174),
        (TensorType::Q5_K, 0.0352),
        (TensorType::Q4_K, 0.0696),
    ];
    for deviation in [1e-2, 1.0, 100.0] {
        let values = bell(1 << 14, deviation);
        for (ty, bound) in bounds {
            let error = relative_error(&values, &there_and_back(ty, &values));
            assert!(error <= bound, "{ty} at {deviation}: {error}");
        }
    }
}

#[test]
fn nvfp4_with_its_second_scale() {
    let values = bell(1 << 14, 0.02);
    let scale = nvfp4::tensor_scale(&values);
    let scaled: Vec<f32> = values.iter().map(|v| v / scale).collect();
    let error = relative_error(&scaled, &there_and_back(TensorType::NVFP4, &scaled));
    assert!(error <= 0.083, "{error}");
}

#[test]
fn representable_values_are_kept() {
    let values: Vec<f32> = (0..256).map(|i| ((i % 16) as f32 - 8.0) * 0.25).collect();
    assert_eq!(there_and_back(TensorType::Q6_K, &values).len(), 256);
    let fp4: Vec<f32> = (0..64)
        .map(|i| f32::from(crate::blocks::FP4_TABLE[i % 16]) * 0.25)
        .collect();
    assert_eq!(there_and_back(TensorType::NVFP4, &fp4), fp4);
    let q8: Vec<f32> = (0..32).map(|i| (i * 8 - 127) as f32 / 4.0).collect();
    assert_eq!(there_and_back(TensorType::Q8_0, &q8), q8);
}

#[test]
fn zeros_stay_zero() {
    for ty in TensorType::all().filter(|ty| can_quantize(*ty)) {
        let zeros = vec![0.0; 256];
        assert_eq!(there_and_back(ty, &zeros), zeros, "{ty}");
    }
}

#[test]
fn constants_and_outliers_survive() {
    for ty in [TensorType::Q4_K, TensorType::Q5_K, TensorType::Q6_K, TensorType::Q8_0] {
        for constant in [0.37, -0.37] {
            let error = relative_error(&[constant; 256], &there_and_back(ty, &[constant; 256]));
            assert!(error < 0.01, "{ty} {constant}: {error}");
        }
        let mut values = bell(256, 0.01);
        values[77] = -3.0;
        let out = there_and_back(ty, &values);
        assert!((out[77] + 3.0).abs() < 0.05, "{ty}: {}", out[77]);
    }
}

#[test]
fn types_that_are_only_read_are_refused() {
    for ty in TensorType::all() {
        let mut bytes = vec![0; ty.block_bytes()];
        let result = quantize_row(ty, &vec![0.0; ty.block_len()], &mut bytes);
        assert_eq!(result.is_ok(), can_quantize(ty), "{ty}");
    }
}

proptest! {
    #[test]
    fn any_number_is_accepted(bits in prop::collection::vec(any::<u32>(), 256)) {
        let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for ty in TensorType::all().filter(|ty| can_quantize(*ty)) {
            there_and_back(ty, &values);
        }
    }

    #[test]
    fn quants_read_back_as_packed(seed in any::<u64>()) {
        let quants: Vec<u8> = (0..256).map(|i| (seed.rotate_left(i * 7) % 64) as u8).collect();
        let values: Vec<f32> = quants.iter().map(|&q| f32::from(q) - 32.0).collect();
        let block = BlockQ6K::quantize(&values);
        let d = block.d.to_f32();
        for (i, v) in values.iter().enumerate() {
            let y = d * f32::from(block.scales[i / 16]) * f32::from(block.quant(i));
            prop_assert!((y - v).abs() < 0.8, "{i}: {y} for {v}");
        }
    }
}
