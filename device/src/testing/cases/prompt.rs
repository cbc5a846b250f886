//! The kernels of a prompt that only dense models use, against f64 over the very weights.

use super::dense::{Tiled, columns, columns_of, kind, run, wide};
use super::prefill::{EPS, PRODUCT, split_rows};
use crate::dense::Matrix;
use crate::general::gated::{Activation, reference};
use crate::prefill::expert_matrix::{ExpertProduct, expert_product};
use crate::prefill::gated_split::gated_split;
use crate::prefill::matrix::{ProductShape, product};
use crate::prefill::post::post;
use crate::prefill::rare::{Rare, RareProduct, rare_product};
use crate::prefill::record::Record;
use crate::testing::tiled::normed;
use crate::testing::{Case, Machine, Random, floats, rms, within};
use bytemuck::Zeroable;
use cuda_std::{DevicePtr, F32x2};

/// Matrices beside others in the rows of the output, over it or added to it.
fn matrix(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let kind = kind(&mut random);
    let (columns, rows) = (columns(kind, &mut random), 16 * (1 + random.below(9)));
    let tokens = [1, 8, 9, 17, 33, 40][random.below(6)];
    let mut parts = Vec::new();
    for part in 0..1 + random.below(3) as u64 {
        let rows = if part == 0 { rows } else { 16 * (1 + random.below(2)) };
        parts.push(Tiled::new(kind, [rows, columns], seed + part)?);
    }
    let (first, behind) = (16 * random.below(3), 16 * random.below(3));
    let all: usize = parts.iter().map(Tiled::rows).sum();
    let stride = first + all + behind;
    let (x, gain) = (floats(seed + 3, tokens * columns, 2.0), floats(seed + 4, columns, 1.0));
    let before = floats(seed + 5, tokens * stride, 1.0);
    let add = random.below(2);
    let x_at = machine.upload(&x)?;
    let split = split_rows(machine, x_at, &gain, tokens, columns)?;
    let (out, mut matrices) = (machine.upload(&before)?, [Matrix::zeroed(); 3]);
    for (to, part) in matrices.iter_mut().zip(&parts) {
        *to = part.upload(machine)?;
    }
    let shape = ProductShape {
        matrices,
        columns: columns as u32,
        tokens: tokens as u32,
        stride: stride as u32,
        first: first as u32,
        add: add as u32,
        reserved: 0,
    };
    run(machine, product(split.records, split.factors, out, shape))?;
    let (mut want, mut size) = (wide(&before), Vec::new());
    for (x, row) in x.chunks(columns).zip(want.chunks_mut(stride)) {
        let n = normed(&wide(x), &gain, EPS);
        size.extend(parts.iter().flat_map(|part| part.times(&n)));
        let biased = parts.iter().flat_map(|part| part.biased(part.times(&n)));
        for (w, y) in row[first..].iter_mut().zip(biased) {
            *w = if add == 1 { *w + y } else { y };
        }
    }
    let allowed = PRODUCT * rms(&size);
    within("out", &machine.download(out, want.len())?, &want, |_| allowed)
}

/// A stack of matrices, each for its own tokens: through an order, or in it.
fn experts(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let kind = kind(&mut random);
    let (columns, rows, experts) = (
        columns(kind, &mut random),
        16 * (1 + random.below(3)),
        1 + random.below(4),
    );
    let weights = Tiled::new(kind, [experts * rows, columns], 3 * seed)?;
    let mut starts = vec![0u32];
    for _ in 0..experts {
        starts.push(starts[starts.len() - 1] + [0, 1, 5, 40, 150][random.below(5)]);
    }
    let places = starts[experts] as usize;
    let ordered = random.below(2) == 0;
    let tokens = if ordered { 7 } else { places.max(1) };
    let order: Vec<u32> = (0..places).map(|_| random.below(tokens) as u32).collect();
    let (first, behind) = (16 * random.below(3), 16 * random.below(2));
    let stride = first + rows + behind;
    let (x, before) = (
        floats(seed + 3, tokens * columns, 2.0),
        floats(seed + 5, (places + 1) * stride, 1.0),
    );
    let x_at = machine.upload(&x)?;
    let split = split_rows(machine, x_at, &[], tokens, columns)?;
    let mut matrix = weights.upload(machine)?;
    matrix.groups = (rows / 16) as u32;
    let shape = ExpertProduct {
        matrix,
        columns: columns as u32,
        experts: experts as u32,
        stride: stride as u32,
        first: first as u32,
    };
    let order_at = if ordered && places > 0 {
        machine.upload(&order)?
    } else {
        DevicePtr::null()
    };
    let (starts_at, out) = (machine.upload(&starts)?, machine.upload(&before)?);
    let x_of = (split.records, split.factors);
    run(machine, expert_product(x_of, order_at, starts_at, out, shape))?;
    let (mut want, mut size) = (wide(&before), vec![1e-3]);
    for expert in 0..experts {
        for place in starts[expert]..starts[expert + 1] {
            let place = place as usize;
            let token = if ordered { order[place] as usize } else { place };
            let y = weights.times(&wide(&x[token * columns..][..columns]));
            let y = &y[expert * rows..][..rows];
            size.extend_from_slice(y);
            want[place * stride + first..][..rows].copy_from_slice(y);
        }
    }
    let allowed = PRODUCT * rms(&size);
    within("out", &machine.download(out, want.len())?, &want, |_| allowed)
}

/// A matrix of a rare type, or a stack of them: through an order or in it, scaled or not, over the output or added to it.
fn rare(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let rare = Rare::ALL[random.below(Rare::ALL.len())];
    let (columns, rows) = (columns_of(rare.ty(), &mut random), 16 * (1 + random.below(3)));
    let stacked = random.below(2) == 0;
    let experts = if stacked { 1 + random.below(4) } else { 1 };
    let shape = [experts * rows, columns];
    // A bias comes with every third seed.
    let weights = Tiled::of(rare.ty(), rare as u32, shape, if stacked { 3 * seed } else { seed })?;
    let mut starts = vec![0u32];
    for _ in 0..experts {
        starts.push(starts[starts.len() - 1] + [1, 0, 5, 40, 150][random.below(if stacked { 5 } else { 1 })]);
    }
    let places = if stacked {
        starts[experts] as usize
    } else {
        [1, 8, 33, 70][random.below(4)]
    };
    let ordered = stacked && random.below(2) == 0;
    let tokens = if ordered { 7 } else { places.max(1) };
    let order: Vec<u32> = (0..places).map(|_| random.below(tokens) as u32).collect();
    let (first, behind) = (16 * random.below(3), 16 * random.below(2));
    let stride = first + rows + behind;
    let (x, before) = (
        floats(seed + 3, tokens * columns, 2.0),
        floats(seed + 5, (places + 1) * stride, 1.0),
    );
    let scales = (random.below(2) == 0).then(|| floats(seed + 6, experts, 2.0));
    let x_at = machine.upload(&x)?;
    let split = split_rows(machine, x_at, &[], tokens, columns)?;
    let mut matrix = weights.upload(machine)?;
    matrix.groups = (rows / 16) as u32;
    if let Some(scales) = &scales {
        matrix.scale = machine.upload(scales)?;
    }
    let shape = RareProduct {
        matrix,
        columns: columns as u32,
        experts: experts as u32,
        tokens: if stacked { 0 } else { places as u32 },
        stride: stride as u32,
        first: first as u32,
        add: random.below(2) as u32,
    };
    let mut whole = |some: &[u32], wanted: bool| -> Result<DevicePtr<u32>, String> {
        if wanted && !some.is_empty() {
            machine.upload(some)
        } else {
            Ok(DevicePtr::null())
        }
    };
    let at = (whole(&order, ordered)?, whole(&starts, stacked)?);
    let out = machine.upload(&before)?;
    run(machine, rare_product((split.records, split.factors), at, out, shape))?;
    let (mut want, mut size) = (wide(&before), vec![1e-3]);
    for expert in 0..experts {
        let range = if stacked {
            starts[expert] as usize..starts[expert + 1] as usize
        } else {
            0..places
        };
        for place in range {
            let token = if ordered { order[place] as usize } else { place };
            let scale = scales.as_ref().map_or(1.0, |scales| f64::from(scales[expert]));
            let y = weights.times(&wide(&x[token * columns..][..columns]));
            let y: Vec<f64> = y[expert * rows..][..rows].iter().map(|y| scale * y).collect();
            size.extend_from_slice(&y);
            let to = &mut want[place * stride + first..][..rows];
            for (to, y) in to.iter_mut().zip(weights.biased(y)) {
                *to = if shape.add == 1 { *to + y } else { y };
            }
        }
    }
    let allowed = PRODUCT * rms(&size);
    within("out", &machine.download(out, want.len())?, &want, |_| allowed)
}

fn bent(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (rows, columns) = (1 + random.below(4), 32 * (1 + random.below(40)));
    let activation = [Activation::Silu, Activation::GeluTanh][random.below(2)];
    let both = floats(seed, 2 * rows * columns, 2.0);
    let row_bytes = Record::whole_row_bytes(columns as u32);
    // Zeroed, since records have padding that nothing writes.
    let records = machine.upload_bytes(&vec![0; rows * row_bytes])?;
    let (both_at, factors) = (machine.upload(&both)?, machine.output::<F32x2>(rows)?);
    let shape = (rows as u32, columns as u32);
    run(machine, gated_split(both_at, records, factors, shape, activation))?;
    let bytes = machine.download(records, rows * row_bytes)?;
    let factors = machine.download(factors, rows)?;
    let mut worst = 0f64;
    for ((row, bytes), F32x2([factor, norm])) in both.chunks(2 * columns).zip(bytes.chunks(row_bytes)).zip(factors) {
        let (gate, up) = row.split_at(columns);
        let want: Vec<f64> = gate
            .iter()
            .zip(up)
            .map(|(g, u)| reference(*g, *u, activation))
            .collect();
        let values = Record::values(bytes, row_bytes / Record::BYTES * 256);
        if norm != 1.0 || values[columns..].iter().any(|v| *v != 0.0) {
            return Err(format!("norm {norm}, or values behind column {columns}"));
        }
        let got: Vec<f32> = values[..columns]
            .iter()
            .map(|v| (v * f64::from(factor)) as f32)
            .collect();
        let largest = want.iter().fold(1e-30, |m: f64, v| m.max(v.abs()));
        worst = worst.max(within("values", &got, &want, |_| 2e-6 * largest)?);
    }
    Ok(worst)
}

fn behind(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (rows, columns) = (1 + random.below(4), 1 + random.below(700));
    let (x, y) = (floats(seed, rows * columns, 1.0), floats(seed + 1, rows * columns, 7.0));
    let gain = floats(seed + 2, columns, 1.0);
    let (x_at, y_at, gain_at) = (machine.upload(&x)?, machine.upload(&y)?, machine.upload(&gain)?);
    run(machine, post(x_at, y_at, gain_at, (rows as u32, columns as u32), EPS))?;
    let rows = x.chunks(columns).zip(y.chunks(columns));
    let want: Vec<f64> = rows
        .flat_map(|(x, y)| {
            let n = normed(&wide(y), &gain, EPS);
            x.iter().zip(n).map(|(x, n)| f64::from(*x) + n).collect::<Vec<_>>()
        })
        .collect();
    within("x", &machine.download(x_at, want.len())?, &want, |_| 1e-5)
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "prefill_matrix",
        run: matrix,
    },
    Case {
        name: "prefill_stack",
        run: experts,
    },
    Case {
        name: "prefill_rare",
        run: rare,
    },
    Case {
        name: "prefill_gated_split",
        run: bent,
    },
    Case {
        name: "prefill_post",
        run: behind,
    },
];
