//! The kernels of the general decode path, against f64.

use crate::decode::head::Best;
use crate::gemv::{self, Extra, rank_stride};
use crate::general::{best, gated, mix, topk};
use crate::layout::activation::Wide;
use crate::layout::{Shape, TileForm};
use crate::mmvq::{Operands, tensor};
use crate::testing::{Case, Machine, Random, floats, matrix, rms, within};
use cuda_std::DevicePtr;
use cuda_std::launch::PreparedLaunch;
use sparkinfer_gguf::types::TensorType;

fn run<E: ToString>(machine: &mut dyn Machine, launch: Result<PreparedLaunch, E>) -> Result<(), String> {
    machine.run(&launch.map_err(|e| e.to_string())?)
}

/// How a product reads its operands.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// As in the file; plain floats.
    File,
    /// Tiles; records.
    Tiles,
}

impl Form {
    /// Each of `count` matrices in this form, one after the other.
    fn weights(self, ty: TensorType, shape: Shape, count: usize, file: &[u8]) -> Result<Vec<u8>, String> {
        let Some(tiles) = TileForm::of(ty).filter(|_| self == Self::Tiles) else {
            return Ok(file.to_vec());
        };
        let mut packed = vec![0xff; count * tiles.packed_bytes(shape)];
        let matrices = file.chunks_exact(file.len() / count);
        for (matrix, to) in matrices.zip(packed.chunks_exact_mut(tiles.packed_bytes(shape))) {
            tiles.pack(shape, matrix, to).map_err(|e| e.to_string())?;
        }
        Ok(packed)
    }

    /// Vectors of `columns` values as the product reads them, and what they stand for.
    fn vectors(self, x: &[f32], columns: usize) -> (Vec<u8>, Vec<f64>) {
        if self == Self::File {
            return (
                bytemuck::cast_slice(x).to_vec(),
                x.iter().map(|v| f64::from(*v)).collect(),
            );
        }
        let records: Vec<Vec<u8>> = x.chunks_exact(columns).map(Wide::quantize).collect();
        let values = records.iter().flat_map(|records| Wide::dequantize(records, columns));
        (records.concat(), values.collect())
    }
}

/// Chosen experts of a stack, with or without a vector of their own, scales and a bias.
fn experts(machine: &mut dyn Machine, seed: u64, ty: TensorType, form: Form) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (count, ranks, rows) = (1 + random.below(6), 1 + random.below(4), 4 * (1 + random.below(9)));
    let columns = ty.block_len().max(4) * (1 + random.below(4));
    let shape = Shape { rows, columns };
    let stack = matrix(ty, seed, count * rows * columns)?;
    let ids: Vec<u32> = (0..ranks).map(|_| random.below(count) as u32).collect();
    let (shared, scales, biased) = (seed.is_multiple_of(2), [0, 1, count][seed as usize % 3], seed % 4 < 2);
    let vectors = if shared { 1 } else { ranks };
    let (x, x_values) = form.vectors(&floats(seed + 1, vectors * columns, 1.0), columns);
    let packed = form.weights(ty, shape, count, &stack.bytes)?;
    let unit = if form == Form::File { 4 } else { 1 };
    let (scale, bias) = (floats(seed + 2, scales, 0.5), floats(seed + 3, rows, 1.0));
    let mut optional = |values: &[f32], given: bool| {
        if given {
            machine.upload(values)
        } else {
            Ok(DevicePtr::null())
        }
    };
    let (scale_at, bias_at) = (optional(&scale, scales > 0)?, optional(&bias, biased)?);
    let extra = Extra {
        ids: machine.upload(&ids)?,
        scale: scale_at,
        bias: bias_at,
        expert_bytes: (packed.len() / count) as u64,
        x_stride: if shared { 0 } else { (x.len() / ranks / unit) as u32 },
        scale_stride: u32::from(scales > 1),
    };
    let y = machine.output::<f32>(ranks * rows)?;
    let o = Operands {
        weights: machine.upload(&packed)?,
        x: machine.upload(&x)?,
        y,
    };
    let launch = match form {
        Form::File => gemv::launch_with(ty, shape, o, 2, extra, ranks as u32),
        Form::Tiles => tensor::launch_with(ty, shape, o, 2, extra, ranks as u32),
    };
    run(machine, launch)?;
    let mut want = Vec::new();
    for (rank, &id) in ids.iter().enumerate() {
        let own = &x_values[if shared { 0 } else { rank * columns }..][..columns];
        let values = &stack.values[id as usize * rows * columns..][..rows * columns];
        let factor = scale.get(id as usize).or(scale.first()).map_or(1.0, |s| f64::from(*s));
        let product = crate::mmvq::reference(values, own).into_iter();
        want.extend(
            product
                .zip(&bias)
                .map(|(p, b)| factor * p + if biased { f64::from(*b) } else { 0.0 }),
        );
    }
    let allowed = 2e-5 * (rms(&want) + 1e-2);
    within("y", &machine.download(y, want.len())?, &want, |_| allowed)
}

fn gated(machine: &mut dyn Machine, seed: u64, activation: gated::Activation) -> Result<f64, String> {
    let n = 1 + Random::new(seed).below(900);
    let (gate, up) = (floats(seed, n, 3.0), floats(seed + 1, n, 2.0));
    let (gate_at, up_at) = (machine.upload(&gate)?, machine.upload(&up)?);
    // In place every other time.
    let out = if seed.is_multiple_of(2) {
        gate_at
    } else {
        machine.output(n)?
    };
    run(machine, gated::launch(gate_at, up_at, out, n, activation, 3))?;
    let pairs = gate.iter().zip(&up);
    let want: Vec<f64> = pairs.map(|(g, u)| gated::reference(*g, *u, activation)).collect();
    within("out", &machine.download(out, n)?, &want, |i| {
        1e-6 + 2e-6 * want[i].abs()
    })
}

/// Gated values of some ranks as records.
fn gated_wide(machine: &mut dyn Machine, seed: u64, activation: gated::Activation) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (ranks, width) = (1 + random.below(4), 32 * (1 + random.below(24)));
    let stride = rank_stride(width as u32) as usize;
    let (gate, up) = (floats(seed, ranks * stride, 3.0), floats(seed + 1, ranks * stride, 2.0));
    let (gate_at, up_at) = (machine.upload(&gate)?, machine.upload(&up)?);
    let bytes = width.div_ceil(256) * Wide::BYTES;
    let out = machine.output::<u8>(ranks * bytes)?;
    run(
        machine,
        gated::launch_wide(gate_at, up_at, out, (ranks as u32, width), activation),
    )?;
    let records = machine.download(out, ranks * bytes)?;
    let got = records.chunks_exact(bytes).flat_map(|own| Wide::dequantize(own, width));
    let got: Vec<f32> = got.map(|value| value as f32).collect();
    let index = |i: usize| i / width * stride + i % width;
    let want: Vec<f64> = (0..ranks * width)
        .map(|i| gated::reference(gate[index(i)], up[index(i)], activation))
        .collect();
    // Half a step of 1/32512 of a record's largest value, and the bend's own error.
    let largest = want.iter().fold(0f64, |most, v| most.max(v.abs()));
    within("out", &got, &want, |_| 2e-5 * largest)
}

fn mixed(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (ranks, columns) = (1 + random.below(9), 1 + random.below(300));
    let stride = rank_stride(columns as u32) as usize;
    let (y, weights) = (floats(seed, ranks * stride, 1.0), floats(seed + 1, ranks, 1.0));
    let (shared, gate) = (floats(seed + 2, columns, 1.0), floats(seed + 3, 1, 1.0));
    let (weighted, with_shared, with_gate) = (seed.is_multiple_of(2), !seed.is_multiple_of(3), seed % 3 > 1);
    let mut optional = |values: &[f32], given: bool| {
        if given {
            machine.upload(values)
        } else {
            Ok(DevicePtr::null())
        }
    };
    let mix = mix::Mix {
        y: optional(&y, true)?,
        weights: optional(&weights, weighted)?,
        shared: optional(&shared, with_shared)?,
        shared_gate: optional(&gate, with_gate)?,
        ranks: ranks as u32,
        columns: columns as u32,
    };
    let out = machine.output(columns)?;
    run(machine, mix::launch(mix, out))?;
    let factor = if with_gate {
        1.0 / (1.0 + (-f64::from(gate[0])).exp())
    } else {
        1.0
    };
    let value = |c: usize| {
        let weight = |rank: usize| if weighted { f64::from(weights[rank]) } else { 1.0 };
        let sum: f64 = (0..ranks)
            .map(|rank| weight(rank) * f64::from(y[rank * stride + c]))
            .sum();
        sum + if with_shared {
            factor * f64::from(shared[c])
        } else {
            0.0
        }
    };
    let want: Vec<f64> = (0..columns).map(value).collect();
    within("out", &machine.download(out, columns)?, &want, |_| 5e-6)
}

/// `n` logits, of which some are equal where `ties` says so.
fn choice(machine: &mut dyn Machine, seed: u64, ties: bool) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let experts = 1 + random.below([8, 128, 1024][seed as usize % 3]);
    let used = 1 + random.below(experts.min(if seed.is_multiple_of(5) { 40 } else { 8 }));
    let mut logits = floats(seed, experts, 2.0);
    if ties {
        logits.iter_mut().for_each(|v| *v = v.round());
    }
    let choice = topk::Choice {
        experts: experts as u32,
        used: used as u32,
        renormalise: (seed / 2 % 2) as u32,
        scale: [1.0, 2.5][seed as usize % 2],
    };
    let (logits_at, ids, weights) = (machine.upload(&logits)?, machine.output(used)?, machine.output(used)?);
    run(machine, topk::launch(logits_at, ids, weights, choice))?;
    let (want_ids, want): (Vec<u32>, Vec<f64>) = topk::reference(&logits, choice).into_iter().unzip();
    let got_ids = machine.download(ids, used)?;
    if got_ids != want_ids {
        return Err(format!("experts {got_ids:?}, not {want_ids:?}"));
    }
    within("weights", &machine.download(weights, used)?, &want, |i| {
        5e-6 * want[i] + 1e-9
    })
}

fn best(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (n, blocks) = (1 + random.below(3000), 1 + random.below(6));
    let mut logits = floats(seed, n, 4.0);
    logits[n / 2] = f32::NAN;
    let cap = [0.0, 3.0][seed as usize % 2];
    let (logits_at, best_at) = (machine.upload(&logits)?, machine.output::<Best>(blocks)?);
    run(machine, best::launch(logits_at, best_at, n, cap, blocks as u32))?;
    let capped = |v: &f32| {
        if cap == 0.0 {
            f64::from(*v)
        } else {
            f64::from(cap) * f64::from(v / cap).tanh()
        }
    };
    let want: Vec<f64> = logits.iter().map(capped).collect();
    let got = machine.download(logits_at, n)?;
    let worst = within("logits", &got, &want, |_| 2e-6)?;
    let found = machine
        .download(best_at, blocks)?
        .into_iter()
        .fold(Best::NONE, Best::or);
    let token = crate::argmax::reference(&got);
    if found.token == token || n == 1 {
        Ok(worst)
    } else {
        Err(format!("token {} of {n}, not {token}", found.token))
    }
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "experts_q8_0",
        run: |m, seed| experts(m, seed, TensorType::Q8_0, Form::File),
    },
    Case {
        name: "experts_f32",
        run: |m, seed| experts(m, seed, TensorType::F32, Form::File),
    },
    Case {
        name: "experts_q4_k",
        run: |m, seed| experts(m, seed, TensorType::Q4_K, Form::File),
    },
    Case {
        name: "experts_tensor_q4_1",
        run: |m, seed| experts(m, seed, TensorType::Q4_1, Form::Tiles),
    },
    Case {
        name: "experts_tensor_q6_k",
        run: |m, seed| experts(m, seed, TensorType::Q6_K, Form::Tiles),
    },
    Case {
        name: "experts_tensor_nvfp4",
        run: |m, seed| experts(m, seed, TensorType::NVFP4, Form::Tiles),
    },
    Case {
        name: "general_gated_wide/silu",
        run: |m, seed| gated_wide(m, seed, gated::Activation::Silu),
    },
    Case {
        name: "general_gated_wide/gelu",
        run: |m, seed| gated_wide(m, seed, gated::Activation::GeluTanh),
    },
    Case {
        name: "general_gated/silu",
        run: |m, seed| gated(m, seed, gated::Activation::Silu),
    },
    Case {
        name: "general_gated/gelu",
        run: |m, seed| gated(m, seed, gated::Activation::GeluTanh),
    },
    Case {
        name: "general_mix",
        run: mixed,
    },
    Case {
        name: "general_topk/values",
        run: |m, seed| choice(m, seed, false),
    },
    Case {
        name: "general_topk/ties",
        run: |m, seed| choice(m, seed, true),
    },
    Case {
        name: "general_best",
        run: best,
    },
];
