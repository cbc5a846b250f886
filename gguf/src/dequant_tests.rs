//! Checks against blocks whose values another implementation computed, and of the rules for sizes.

use super::*;
use serde_json::Value;

/// The shared file of one random block per type.
pub(crate) fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/quant_vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("quant_vectors.json")).expect("JSON")
}

/// The block bytes and values of one type's entry.
fn vector(entry: &Value) -> (Vec<u8>, Vec<f32>) {
    let hex = entry["block_hex"].as_str().expect("block_hex");
    let bytes = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex"));
    let values = entry["values"]
        .as_array()
        .expect("values")
        .iter()
        .map(|v| v.as_f64().expect("number") as f32);
    (bytes.collect(), values.collect())
}

/// Types of the form `scale * n + offset`, where a fused multiply-add may differ in the last bit.
fn has_two_terms(ty: TensorType) -> bool {
    use TensorType::*;
    matches!(ty, Q4_1 | Q5_1 | Q2_K | Q4_K | Q5_K)
}

/// Distance in representable numbers (finite, equal signs or both zero).
fn ulps(a: f32, b: f32) -> u32 {
    if a == b { 0 } else { a.to_bits().abs_diff(b.to_bits()) }
}

#[test]
fn every_vector_matches() {
    let all = vectors();
    let mut seen = 0;
    for (name, entry) in all
        .as_object()
        .expect("object")
        .iter()
        .filter(|(name, _)| !name.starts_with('_'))
    {
        let ty = TensorType::from_name(name).unwrap_or_else(|| panic!("type {name}"));
        let (bytes, expected) = vector(entry);
        let mut values = vec![f32::NAN; expected.len()];
        dequantize_row(ty, &bytes, &mut values).expect(name);
        let allowed = u32::from(has_two_terms(ty));
        for (i, (&value, &want)) in values.iter().zip(&expected).enumerate() {
            assert!(ulps(value, want) <= allowed, "{ty}[{i}]: {value} instead of {want}");
        }
        seen += 1;
    }
    assert_eq!(seen, 14);
}

#[test]
fn plain_numbers() {
    let cases: [(TensorType, &[u8]); 7] = [
        (TensorType::F32, &(-2.5f32).to_le_bytes()),
        (TensorType::F16, &[0x00, 0xc1]),
        (TensorType::BF16, &[0x20, 0xc0]),
        (TensorType::F64, &(-2.5f64).to_le_bytes()),
        (TensorType::I8, &[0xfe]),
        (TensorType::I32, &(-2i32).to_le_bytes()),
        (TensorType::I64, &(-2i64).to_le_bytes()),
    ];
    for (ty, bytes) in cases {
        let mut out = [0.0];
        dequantize_row(ty, bytes, &mut out).expect("one value");
        let want = if ty.name().starts_with('I') { -2.0 } else { -2.5 };
        assert_eq!(out[0], want, "{ty}");
    }
}

#[test]
fn sizes_must_match() {
    let mut out = [0.0; 256];
    let error = dequantize_row(TensorType::Q4_K, &[0; 143], &mut out).unwrap_err();
    assert_eq!(error.to_string(), "143 bytes of Q4_K do not hold 256 values");
    assert!(dequantize_row(TensorType::Q4_K, &[0; 144], &mut out[..255]).is_err());
    assert!(dequantize_row(TensorType::Q4_K, &[], &mut []).is_ok());
}

#[test]
fn types_without_reference_are_refused() {
    for ty in TensorType::all() {
        let bytes = vec![0; ty.block_bytes()];
        let mut out = vec![0.0; ty.block_len()];
        let result = dequantize_row(ty, &bytes, &mut out);
        assert_eq!(result.is_ok(), ty.is_supported(), "{ty}");
    }
}

#[test]
fn all_bytes_of_any_block_are_legal() {
    let mut out = [0.0; 256];
    for ty in TensorType::all().filter(|ty| ty.is_supported()) {
        for byte in 0..=255 {
            let bytes = vec![byte; ty.block_bytes()];
            dequantize_row(ty, &bytes, &mut out[..ty.block_len()]).expect("any bytes");
        }
    }
}
