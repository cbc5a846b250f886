//! The kernels of a prompt, against f64 over the very weights.
//!
//! Activations keep 22 bits, so what remains is the rounding of f32 sums; in attention that of weights to f16.

use super::attention::{Setting, same_pool};
use crate::decode::attention::AttentionInputs;
use crate::decode::gateup::ExpertShape;
use crate::decode::kv::{self, Cell, KvFormat};
use crate::decode::rows::{Matrix, TileKind};
use crate::prefill::append::{Chunk, HeadBuffers, append};
use crate::prefill::attention::attention;
use crate::prefill::combine::{combine, take_row};
use crate::prefill::down::down;
use crate::prefill::gateup::{Pair, gateup};
use crate::prefill::gemm::{GemmShape, gemm};
use crate::prefill::record::Record;
use crate::prefill::route::{Grouping, choose, group};
use crate::prefill::router::{RouterBuffers, router};
use crate::prefill::split::split;
use crate::rope;
use crate::testing::tiled::{Tiled, normed};
use crate::testing::{Case, Machine, Random, floats, radians, rms, within};
use cuda_std::launch::PreparedLaunch;
use cuda_std::{DevicePtr, F32x2};

/// Allowed error of a product, as a share of the results' size.
pub(super) const PRODUCT: f64 = 1e-4;
pub(super) const EPS: f32 = 1e-6;

fn run<E: ToString>(machine: &mut dyn Machine, launch: Result<PreparedLaunch, E>) -> Result<(), String> {
    machine.run(&launch.map_err(|e| e.to_string())?)
}

fn kind(random: &mut Random) -> TileKind {
    [TileKind::Q4K, TileKind::Q6K][random.below(2)]
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|v| f64::from(*v)).collect()
}

/// Rows of activations on the machine, split.
pub(super) struct Rows {
    pub records: DevicePtr<u8>,
    pub factors: DevicePtr<F32x2>,
}

pub(super) fn split_rows(
    machine: &mut dyn Machine,
    x: DevicePtr<f32>,
    gain: &[f32],
    rows: usize,
    columns: usize,
) -> Result<Rows, String> {
    let gain = if gain.is_empty() {
        DevicePtr::null()
    } else {
        machine.upload(gain)?
    };
    // Zeroed, since records have padding that nothing writes.
    let records = machine.upload_bytes(&vec![0; rows * Record::whole_row_bytes(columns as u32)])?;
    let factors = machine.output(rows)?;
    run(
        machine,
        split(x, gain, records, factors, rows as u32, columns as u32, EPS),
    )?;
    Ok(Rows { records, factors })
}

/// What a row's records must stand for, and its sums of 32 columns.
fn splitting(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let rows = 1 + random.below(4);
    let columns = [256 * (1 + random.below(6)), 32 * (1 + random.below(40))][random.below(2)];
    let scale = [1e-6, 1.0, 3e5][random.below(3)];
    let mut x = floats(seed, rows * columns, scale);
    if rows > 1 {
        x[..columns].fill(0.0);
    }
    let gain = [vec![], floats(seed + 1, columns, 1.0)][random.below(2)].clone();
    let x_at = machine.upload(&x)?;
    let out = split_rows(machine, x_at, &gain, rows, columns)?;
    let bytes = machine.download(out.records, rows * Record::whole_row_bytes(columns as u32))?;
    let factors: Vec<F32x2> = machine.download(out.factors, rows)?;
    let mut worst = 0f64;
    for (i, (row, bytes)) in x
        .chunks(columns)
        .zip(bytes.chunks(Record::whole_row_bytes(columns as u32)))
        .enumerate()
    {
        let want = if gain.is_empty() {
            wide(row)
        } else {
            normed(&wide(row), &gain, EPS)
        };
        let values = Record::values(bytes, columns);
        let top = values.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        // Both ends are allowed: the largest value may have been rounded up to the next power of two.
        if top != 0.0 && !(512.0..=1024.0).contains(&top) {
            return Err(format!(
                "row {i}: the largest value is stored as {top}, outside 512 to 1024"
            ));
        }
        let factor = f64::from(factors[i].0[0]);
        let got: Vec<f32> = values.iter().map(|v| (v * factor) as f32).collect();
        let largest = want.iter().fold(1e-30, |m: f64, v| m.max(v.abs()));
        worst = worst.max(within("values", &got, &want, |_| 1e-6 * largest)?);
        let sums: Vec<f32> = Record::sums(bytes, columns).iter().map(|v| *v as f32).collect();
        let of: Vec<f64> = values.chunks(32).map(|v| v.iter().sum()).collect();
        worst = worst.max(within("sums", &sums, &of, |_| 0.02)?);
    }
    Ok(worst)
}

fn product(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (columns, tokens) = (256 * (1 + random.below(3)), [1, 8, 9, 17, 33, 40][random.below(6)]);
    let rows: Vec<usize> = (0..3).map(|_| 16 * (1 + random.below(4))).collect();
    let kinds: Vec<TileKind> = (0..3).map(|_| kind(&mut random)).collect();
    let parts: Vec<Tiled> = (0..3)
        .map(|i| Tiled::new(kinds[i], rows[i], columns, seed + i as u64))
        .collect::<Result<_, _>>()?;
    let (total, add) = (rows.iter().sum::<usize>(), random.below(2));
    let (x, gain) = (floats(seed + 3, tokens * columns, 2.0), floats(seed + 4, columns, 1.0));
    let before = floats(seed + 5, tokens * total, 1.0);
    let mut matrices = [Matrix::new(DevicePtr::null(), 0, TileKind::Q4K); 3];
    for (matrix, part) in matrices.iter_mut().zip(&parts) {
        *matrix = part.upload(machine, 1)?;
    }
    let x_at = machine.upload(&x)?;
    let split = split_rows(machine, x_at, &gain, tokens, columns)?;
    let out = if add == 1 {
        machine.upload(&before)?
    } else {
        machine.output(tokens * total)?
    };
    let shape = GemmShape {
        matrices,
        columns: columns as u32,
        tokens: tokens as u32,
        add: add as u32,
        reserved: 0,
    };
    run(machine, gemm(split.records, split.factors, out, shape))?;
    let mut want: Vec<f64> = Vec::new();
    for x in x.chunks(columns) {
        let n = normed(&wide(x), &gain, EPS);
        want.extend(
            parts
                .iter()
                .zip(&rows)
                .flat_map(|(part, rows)| part.times(0, *rows, &n)),
        );
    }
    let allowed = PRODUCT * rms(&want);
    if add == 1 {
        want.iter_mut().zip(&before).for_each(|(w, b)| *w += f64::from(*b));
    }
    within("out", &machine.download(out, want.len())?, &want, |_| allowed)
}

/// A chunk through the cache and attention: outputs and cache must be those of one token after the other.
fn heads(machine: &mut dyn Machine, seed: u64, head_dim: u32, format: KvFormat) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (kv_heads, per_key) = (1 + random.below(2) as u32, [1, 2, 3, 8][random.below(4)]);
    let mut setting = Setting::new(kv_heads * per_key, kv_heads, head_dim, random.below(90) as u32);
    setting.normed = random.below(3) > 0;
    setting.window = [0, 1, 7, 40][random.below(4)];
    setting.format = format;
    let count = [1, 5, 33, 40][random.below(4)] as u32;
    let (shape, chunk) = (
        setting.shape(),
        Chunk {
            count,
            position: setting.position,
        },
    );
    let pages = kv::pages_of(setting.position + count);
    let table: Vec<u32> = (0..pages).map(|i| (i + pages / 2) % pages).collect();
    let (mut keys, mut values) = (
        setting.pool(&table, true, seed + 3),
        setting.pool(&table, false, seed + 4),
    );
    let before = [keys.bytes.clone(), values.bytes.clone()];
    let (dim, all) = (head_dim as usize, (setting.heads + 2 * kv_heads) as usize);
    let qkv = floats(seed, count as usize * all * dim, 1.5);
    let norms = [floats(seed + 1, dim, 1.0), floats(seed + 2, dim, 1.0)];
    let frequencies = rope::table(&radians(setting.rotated as usize, 1e6));
    let queries = (setting.heads * count) as usize * dim;
    let mut norm = |w: &[f32]| {
        if setting.normed {
            machine.upload(w)
        } else {
            Ok(DevicePtr::null())
        }
    };
    let (q_norm, k_norm) = (norm(&norms[0])?, norm(&norms[1])?);
    let b = HeadBuffers {
        qkv: machine.upload(&qkv)?,
        q_norm,
        k_norm,
        frequencies: machine.upload(&frequencies)?,
        table: machine.upload(&table)?,
        keys: machine.upload(&keys.bytes)?,
        values: machine.upload(&values.bytes)?,
        queries: machine.output(2 * queries)?,
        out: machine.output(queries)?,
    };
    run(machine, append(&b, shape, (format, head_dim), chunk))?;
    run(machine, attention(&b, shape, (format, head_dim), chunk))?;
    let (mut want, mut written): (Vec<f64>, Vec<Cell>) = (Vec::new(), Vec::new());
    for (i, qkv) in qkv.chunks(all * dim).enumerate() {
        let position = setting.position + i as u32;
        let step = AttentionInputs {
            shape,
            head_dim: dim,
            position,
            qkv,
            norms: setting.normed.then_some((&norms[0], &norms[1])),
            frequencies: &frequencies,
            table: &table,
            keys: &keys,
            values: &values,
        }
        .run();
        want.extend(step.out);
        for (head, (key, value)) in (0..).zip(step.key.chunks(dim).zip(step.value.chunks(dim))) {
            let cell = Setting::cell(&table, position, head);
            keys.put(cell, key);
            values.put(cell, value);
            written.push(cell);
        }
    }
    same_pool(
        &machine.download(b.keys, keys.bytes.len())?,
        &keys,
        &before[0],
        &written,
    )?;
    same_pool(
        &machine.download(b.values, values.bytes.len())?,
        &values,
        &before[1],
        &written,
    )?;
    let allowed = 1e-3 * want.iter().fold(1e-3f64, |m, v| m.max(v.abs()));
    within("out", &machine.download(b.out, want.len())?, &want, |_| allowed)
}

fn routing_logits(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (experts, tokens) = (1 + random.below(40), 1 + random.below(20));
    let columns = [256, 4 * (1 + random.below(200))][random.below(2)];
    let (w, x) = (
        floats(seed, experts * columns, 0.05),
        floats(seed + 1, tokens * columns, 2.0),
    );
    let gain = floats(seed + 2, columns, 1.0);
    let inverse = |x: &[f32]| {
        let mean = wide(x).iter().map(|v| v * v).sum::<f64>() / columns as f64;
        F32x2([f32::NAN, (1.0 / (mean + f64::from(EPS)).sqrt()) as f32])
    };
    let factors: Vec<F32x2> = x.chunks(columns).map(inverse).collect();
    let b = RouterBuffers {
        weights: machine.upload(&w)?,
        x: machine.upload(&x)?,
        gain: machine.upload(&gain)?,
        factors: machine.upload(&factors)?,
        out: machine.output(tokens * experts)?,
    };
    run(machine, router(&b, experts as u32, tokens as u32, columns as u32))?;
    let mut want: Vec<f64> = Vec::new();
    for x in x.chunks(columns) {
        let n = normed(&wide(x), &gain, EPS);
        want.extend(
            w.chunks(columns)
                .map(|row| row.iter().zip(&n).map(|(w, n)| f64::from(*w) * n).sum::<f64>()),
        );
    }
    let allowed = 1e-5 * (rms(&want) + 0.01);
    within("out", &machine.download(b.out, want.len())?, &want, |_| allowed)
}

/// The experts of a token by logits, in order of rank, with their weights.
fn chosen(logits: &[f32], used: usize) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    order.truncate(used);
    let sum: f64 = order.iter().map(|e| f64::from(logits[*e]).exp()).sum();
    order
        .into_iter()
        .map(|e| (e, f64::from(logits[e]).exp() / sum))
        .collect()
}

/// Chosen and grouped experts on the machine, and on the host.
struct Routed {
    grouping: Grouping,
    weights: DevicePtr<f32>,
    chosen: Vec<Vec<(usize, f64)>>,
}

fn routed(machine: &mut dyn Machine, logits: &[f32], experts: usize, used: usize) -> Result<Routed, String> {
    let tokens = logits.len() / experts;
    let (of, k, n) = (experts as u32, used as u32, tokens as u32);
    let logits_at = machine.upload(logits)?;
    let weights = machine.output(tokens * used)?;
    let grouping = Grouping {
        experts: machine.output(tokens * used)?,
        tokens: machine.output(tokens * used)?,
        places: machine.output(tokens * used)?,
        starts: machine.output(experts + 1)?,
    };
    run(machine, choose(logits_at, grouping.experts, weights, of, k, n))?;
    run(machine, group(&grouping, of, k, n))?;
    let chosen = logits.chunks(experts).map(|l| chosen(l, used)).collect();
    Ok(Routed {
        grouping,
        weights,
        chosen,
    })
}

fn random_logits(random: &mut Random, tokens: usize, experts: usize) -> Vec<f32> {
    // Whole numbers, so that there are equal ones.
    (0..tokens * experts).map(|_| random.below(9) as f32 - 4.0).collect()
}

fn routes(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let experts = 4 * (1 + random.below(40));
    let (used, tokens) = (1 + random.below(experts.min(8)), [1, 7, 90][random.below(3)]);
    let logits = random_logits(&mut random, tokens, experts);
    let routed = routed(machine, &logits, experts, used)?;
    let pairs: Vec<(usize, f64)> = routed.chosen.concat();
    let got: Vec<u32> = machine.download(routed.grouping.experts, pairs.len())?;
    if let Some(i) = (0..pairs.len()).find(|i| got[*i] as usize != pairs[*i].0) {
        return Err(format!("pair {i} is expert {}, not {}", got[i], pairs[i].0));
    }
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by_key(|i| (pairs[*i].0, *i));
    let tokens_of: Vec<u32> = machine.download(routed.grouping.tokens, pairs.len())?;
    let places: Vec<u32> = machine.download(routed.grouping.places, pairs.len())?;
    let starts: Vec<u32> = machine.download(routed.grouping.starts, experts + 1)?;
    for (place, pair) in order.iter().enumerate() {
        if tokens_of[place] as usize != pair / used || places[*pair] as usize != place {
            return Err(format!("place {place}: token {}, not pair {pair}", tokens_of[place]));
        }
    }
    for (e, start) in starts.iter().enumerate() {
        let want = pairs.iter().filter(|(of, _)| *of < e).count();
        if *start as usize != want {
            return Err(format!("expert {e} starts at {start}, not {want}"));
        }
    }
    let want: Vec<f64> = pairs.iter().map(|p| p.1).collect();
    within("weights", &machine.download(routed.weights, want.len())?, &want, |_| {
        1e-6
    })
}

/// The experts from the residual stream and logits to the residual stream.
fn experts(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (experts, tokens) = ([4, 8][random.below(2)], [1, 9, 40][random.below(3)]);
    let used = 1 + random.below(3);
    let (columns, ff) = (256 * (1 + random.below(2)), 256);
    let (first, second) = (kind(&mut random), kind(&mut random));
    let gate = Tiled::new(first, experts * ff, columns, seed)?;
    let up = Tiled::new(first, experts * ff, columns, seed + 1)?;
    let last = Tiled::new(second, experts * columns, ff, seed + 2)?;
    let (x, gain) = (floats(seed + 3, tokens * columns, 2.0), floats(seed + 4, columns, 1.0));
    let logits = random_logits(&mut random, tokens, experts);
    let shape = ExpertShape {
        experts: experts as u32,
        used: used as u32,
        columns: columns as u32,
        ff: ff as u32,
        eps: EPS,
        reserved: 0,
    };
    let routed = routed(machine, &logits, experts, used)?;
    let g = routed.grouping;
    let x_at = machine.upload(&x)?;
    let rows = split_rows(machine, x_at, &gain, tokens, columns)?;
    let both = Pair {
        gate: gate.upload(machine, experts)?,
        up: up.upload(machine, experts)?,
    };
    let h = machine.output(tokens * used * ff)?;
    run(
        machine,
        gateup(rows.records, rows.factors, g.tokens, g.starts, h, both, shape),
    )?;
    let inner = split_rows(machine, h, &[], tokens * used, ff)?;
    let y = machine.output(tokens * used * columns)?;
    let matrix = last.upload(machine, experts)?;
    run(machine, down(inner.records, inner.factors, g.starts, y, matrix, shape))?;
    let (k, n, width) = (used as u32, tokens as u32, columns as u32);
    run(machine, combine(y, g.places, routed.weights, x_at, k, n, width))?;
    let row = machine.output(columns)?;
    run(machine, take_row(x_at, row, n - 1, width))?;
    let mut want = Vec::new();
    for (x, chosen) in x.chunks(columns).zip(&routed.chosen) {
        let n = normed(&wide(x), &gain, EPS);
        let mut sum = vec![0.0; columns];
        for (e, weight) in chosen {
            let (g, u) = (gate.times(e * ff, ff, &n), up.times(e * ff, ff, &n));
            let h: Vec<f64> = g.iter().zip(u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            let y = last.times(e * columns, columns, &h);
            sum.iter_mut().zip(y).for_each(|(s, y)| *s += weight * y);
        }
        want.extend(sum);
    }
    let allowed = 4.0 * PRODUCT * rms(&want);
    want.iter_mut().zip(&x).for_each(|(w, x)| *w += f64::from(*x));
    let worst = within("x", &machine.download(x_at, want.len())?, &want, |_| allowed)?;
    let last = &want[want.len() - columns..];
    Ok(worst.max(within("row", &machine.download(row, columns)?, last, |_| allowed)?))
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "prefill_split",
        run: splitting,
    },
    Case {
        name: "prefill_gemm",
        run: product,
    },
    Case {
        name: "prefill_heads_64_f16",
        run: |m, seed| heads(m, seed, 64, KvFormat::F16),
    },
    Case {
        name: "prefill_heads_64_bf16",
        run: |m, seed| heads(m, seed, 64, KvFormat::Bf16),
    },
    Case {
        name: "prefill_heads_64_q8_0",
        run: |m, seed| heads(m, seed, 64, KvFormat::Q8_0),
    },
    Case {
        name: "prefill_heads_128_f16",
        run: |m, seed| heads(m, seed, 128, KvFormat::F16),
    },
    Case {
        name: "prefill_heads_128_bf16",
        run: |m, seed| heads(m, seed, 128, KvFormat::Bf16),
    },
    Case {
        name: "prefill_heads_128_q8_0",
        run: |m, seed| heads(m, seed, 128, KvFormat::Q8_0),
    },
    Case {
        name: "prefill_heads_256_f16",
        run: |m, seed| heads(m, seed, 256, KvFormat::F16),
    },
    Case {
        name: "prefill_heads_256_bf16",
        run: |m, seed| heads(m, seed, 256, KvFormat::Bf16),
    },
    Case {
        name: "prefill_heads_256_q8_0",
        run: |m, seed| heads(m, seed, 256, KvFormat::Q8_0),
    },
    Case {
        name: "prefill_router",
        run: routing_logits,
    },
    Case {
        name: "prefill_route",
        run: routes,
    },
    Case {
        name: "prefill_experts",
        run: experts,
    },
];
