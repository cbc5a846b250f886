//! The decode kernels of several sequences, against f64 over the very weights.

use super::decode::{Experts, PRODUCT, bare, columns, expert_h, kind, left, run, stream, wide};
use crate::decode::choices::MAX_USED;
use crate::decode::gateup::GateUp;
use crate::decode::head::{Best, HeadShape};
use crate::decode::many::advance::{Next, SLOTS, advance};
use crate::decode::many::{MOST, Streams as Many, down::down, enter::enter, gateup::gateup, head::head};
use crate::decode::many::{project::project, qkv::qkv, router::router};
use crate::decode::norm_qkv::QkvShape;
use crate::decode::state::{NO_TOKEN, StepState, ring_token};
use crate::testing::tiled::{Tiled, normed};
use crate::testing::{Case, Machine, Random, floats, rms, within};
use cuda_std::DevicePtr;

const EPS: f32 = 1e-6;

/// A number of sequences.
fn sequences(random: &mut Random) -> usize {
    1 + random.below(MOST as usize)
}

/// The largest magnitude of every 16 columns.
fn peaks(gained: &[f32]) -> Vec<f32> {
    let peak = |columns: &[f32]| columns.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
    gained.chunks(16).map(peak).collect()
}

/// Streams of x alone, as a launch finds them that writes the rest.
fn bare_streams(machine: &mut dyn Machine, x: &[f32]) -> Result<Many, String> {
    Ok(Many {
        first: bare(machine, x)?,
        peaks: machine.output(x.len() / 16)?,
    })
}

/// As [`left`], with the peaks of the very streams.
fn all_left(machine: &mut dyn Machine, s: Many, gain: &[f32], x: &[f64], allowed: f64) -> Result<f64, String> {
    let worst = left(machine, s.first, gain, x, allowed)?;
    let gained: Vec<f32> = machine.download(s.first.gained, x.len())?;
    if machine.download::<f32>(s.peaks, x.len() / 16)? != peaks(&gained) {
        return Err("the peaks are not those of the streams".to_owned());
    }
    Ok(worst)
}

/// Streams of different sizes, their gains, and what a norm makes of them.
struct Streams {
    at: Many,
    normed: Vec<Vec<f64>>,
}

impl Streams {
    fn new(machine: &mut dyn Machine, seed: u64, columns: usize, count: usize) -> Result<Self, String> {
        let gain = floats(seed + 1, columns, 0.7);
        let one = |i: usize| floats(seed + 2 + i as u64, columns, 0.1 + i as f32);
        let all: Vec<Vec<f32>> = (0..count).map(one).collect();
        let gained = all.iter().flat_map(|x| x.iter().zip(&gain).map(|(x, g)| x * g));
        let gained: Vec<f32> = gained.collect();
        Ok(Self {
            at: Many {
                first: stream(machine, &all.concat(), &gain.repeat(count))?,
                peaks: machine.upload(&peaks(&gained))?,
            },
            normed: all.iter().map(|x| normed(&wide(x), &gain, EPS)).collect(),
        })
    }
}

fn begin(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (columns, count) = (columns(&mut random), sequences(&mut random));
    let (x, gain) = (floats(seed, count * columns, 3.0), floats(seed + 1, columns, 0.7));
    let (s, gain_at) = (bare_streams(machine, &x)?, machine.upload(&gain)?);
    run(machine, enter(s, gain_at, columns as u32, count as u32))?;
    all_left(machine, s, &gain.repeat(count), &wide(&x), f64::MIN_POSITIVE)
}

fn queries(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    // The last ones: more tiles than a block has warps for.
    let columns = [256, 768, 2048, 5120][random.below(4)];
    let count = sequences(&mut random);
    let rows: Vec<usize> = (0..3).map(|_| 16 * (1 + random.below(2))).collect();
    let parts: Vec<Tiled> = (0..3)
        .map(|i| Tiled::new(kind(&mut random), rows[i], columns, seed + i as u64))
        .collect::<Result<_, _>>()?;
    let streams = Streams::new(machine, seed, columns, count)?;
    let total: usize = rows.iter().sum();
    let bias = (seed % 2 == 1).then(|| floats(seed + 2, total, 1.0));
    let shape = QkvShape {
        matrices: [
            parts[0].upload(machine, 1)?,
            parts[1].upload(machine, 1)?,
            parts[2].upload(machine, 1)?,
        ],
        columns: columns as u32,
        eps: EPS,
    };
    let bias_at = bias.as_ref().map_or(Ok(DevicePtr::null()), |b| machine.upload(b))?;
    let out = machine.output(count * total)?;
    run(machine, qkv(streams.at, bias_at, out, shape, count as u32))?;
    let got: Vec<f32> = machine.download(out, count * total)?;
    let mut worst = 0f64;
    for (n, got) in streams.normed.iter().zip(got.chunks(total)) {
        let products = parts.iter().flat_map(|part| part.times(0, part.rows(), n));
        let mut want: Vec<f64> = products.collect();
        let allowed = PRODUCT * rms(&want);
        if let Some(bias) = &bias {
            want.iter_mut().zip(bias).for_each(|(w, b)| *w += f64::from(*b));
        }
        worst = worst.max(within("out", got, &want, |_| allowed)?);
    }
    Ok(worst)
}

fn output(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (columns, rows) = ([256, 512, 4096, 4608][random.below(4)], 16 * (1 + random.below(3)));
    let count = sequences(&mut random);
    let matrix = Tiled::new(kind(&mut random), rows, columns, seed)?;
    let (a, x) = (
        floats(seed + 1, count * columns, 2.0),
        floats(seed + 2, count * rows, 1.0),
    );
    let (at, gain) = (matrix.upload(machine, 1)?, floats(seed + 3, rows, 1.0));
    let (a_at, gain_at, s) = (machine.upload(&a)?, machine.upload(&gain)?, bare_streams(machine, &x)?);
    run(machine, project(a_at, s, gain_at, at, columns as u32, count as u32))?;
    let products: Vec<f64> = a
        .chunks(columns)
        .flat_map(|a| matrix.times(0, rows, &wide(a)))
        .collect();
    let allowed = PRODUCT * rms(&products);
    let want: Vec<f64> = products.iter().zip(&x).map(|(p, x)| p + f64::from(*x)).collect();
    all_left(machine, s, &gain.repeat(count), &want, allowed)
}

fn route(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (columns, experts, count) = (columns(&mut random), 1 + random.below(20), sequences(&mut random));
    let w = floats(seed, experts * columns, 0.05);
    let streams = Streams::new(machine, seed, columns, count)?;
    let words_count = count * MAX_USED as usize;
    let (w_at, out) = (machine.upload(&w)?, machine.output(count * experts)?);
    let words = machine.output(words_count)?;
    let sizes = (experts as u32, columns as u32);
    run(
        machine,
        router(w_at, streams.at, (out, words), sizes.0, sizes.1, EPS, count as u32),
    )?;
    if machine
        .download(words, words_count)?
        .iter()
        .any(|word: &u64| *word != 0)
    {
        return Err("words of the choices are not cleared".to_owned());
    }
    let logit = |row: &[f32], n: &[f64]| -> f64 { row.iter().zip(n).map(|(w, n)| f64::from(*w) * n).sum() };
    let want: Vec<f64> = streams
        .normed
        .iter()
        .flat_map(|n| w.chunks(columns).map(|row| logit(row, n)).collect::<Vec<_>>())
        .collect();
    let allowed = 1e-5 * (rms(&want) + 0.01);
    within("out", &machine.download(out, want.len())?, &want, |_| allowed)
}

/// Experts of one layer as each of several sequences chooses them.
fn choices(random: &mut Random, seed: u64, count: usize) -> Vec<Experts> {
    let first = Experts::new(random, seed);
    let shape = first.shape;
    let others = (1..count as u64).map(|i| Experts::of(shape, seed + 100 * i));
    std::iter::once(first).chain(others).collect()
}

fn gate_and_up(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let count = sequences(&mut random).min(4);
    let all = choices(&mut random, seed, count);
    let (shape, kind) = (all[0].shape, kind(&mut random));
    let (ff, experts) = (shape.ff as usize, shape.experts as usize);
    let matrix = |seed| Tiled::new(kind, experts * ff, shape.columns as usize, seed);
    let (gate, up) = (matrix(seed)?, matrix(seed + 1)?);
    let weights = GateUp {
        gate: gate.upload(machine, experts)?,
        up: up.upload(machine, experts)?,
    };
    let streams = Streams::new(machine, seed, shape.columns as usize, count)?;
    let logits: Vec<f32> = all.iter().flat_map(|one| one.logits.clone()).collect();
    let logits_at = machine.upload(&logits)?;
    let words = machine.upload(&vec![0u64; count * MAX_USED as usize])?;
    let inner = shape.used as usize * ff;
    let h = machine.output(count * inner)?;
    run(
        machine,
        gateup(streams.at, logits_at, h, words, weights, shape, count as u32),
    )?;
    let (got, found) = (
        machine.download(h, count * inner)?,
        machine.download(words, count * MAX_USED as usize)?,
    );
    let mut worst = 0f64;
    for (i, (one, n)) in all.iter().zip(&streams.normed).enumerate() {
        let chosen = one.chosen();
        let want: Vec<f64> = chosen
            .iter()
            .flat_map(|(e, _)| expert_h(&gate, &up, *e, ff, n))
            .collect();
        one.published(&found[i * MAX_USED as usize..][..MAX_USED as usize])?;
        let allowed = 4.0 * PRODUCT * rms(&want);
        worst = worst.max(within("h", &got[i * inner..][..inner], &want, |i| {
            allowed + PRODUCT * want[i].abs()
        })?);
    }
    Ok(worst)
}

fn experts_down(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let count = sequences(&mut random).min(4);
    let all = choices(&mut random, seed, count);
    let shape = all[0].shape;
    let (ff, columns, experts) = (shape.ff as usize, shape.columns as usize, shape.experts as usize);
    let inner = shape.used as usize * ff;
    let matrix = Tiled::new(kind(&mut random), experts * columns, ff, seed)?;
    let (h, x) = (
        floats(seed + 1, count * inner, 1.0),
        floats(seed + 2, count * columns, 1.0),
    );
    let (at, gain) = (matrix.upload(machine, experts)?, floats(seed + 3, columns, 1.0));
    let words: Vec<u64> = all.iter().flat_map(Experts::words).collect();
    let words = machine.upload(&words)?;
    let (h_at, s, gain_at) = (machine.upload(&h)?, bare_streams(machine, &x)?, machine.upload(&gain)?);
    run(machine, down(h_at, words, s, gain_at, at, shape, count as u32))?;
    let mut sums = Vec::new();
    for (one, h) in all.iter().zip(h.chunks(inner)) {
        let mut sum = vec![0f64; columns];
        for ((expert, weight), h) in one.chosen().iter().zip(h.chunks(ff)) {
            let product = matrix.times(expert * columns, columns, &wide(h));
            sum.iter_mut().zip(product).for_each(|(s, p)| *s += weight * p);
        }
        sums.extend(sum);
    }
    let allowed = PRODUCT * rms(&sums);
    let want: Vec<f64> = sums.iter().zip(&x).map(|(s, x)| s + f64::from(*x)).collect();
    all_left(machine, s, &gain.repeat(count), &want, allowed)
}

/// The head, and the step's end: the tokens must be the best of the very logits that came out.
fn vocabulary(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (columns, rows, count) = (
        256 * (1 + random.below(8)),
        1 + random.below(200),
        sequences(&mut random),
    );
    let (blocks, stride) = (1 + random.below(9) as u32, rows as u32 + random.below(20) as u32);
    let matrix = Tiled::new(kind(&mut random), rows, columns, seed)?;
    let cap = [0.0, 20.0][random.below(2)];
    let shape = HeadShape {
        rows: rows as u32,
        columns: columns as u32,
        eps: EPS,
        softcap: cap,
    };
    let (at, streams) = (matrix.upload(machine, 1)?, Streams::new(machine, seed, columns, count)?);
    // What lies between the rows is nobody's.
    let logits = machine.upload(&vec![f32::INFINITY; count * stride as usize])?;
    let best = machine.output::<Best>(count * matrix.rows().div_ceil(16).min(blocks as usize))?;
    let launch =
        head(streams.at, (logits, stride), best, at, shape, blocks, count as u32).map_err(|e| e.to_string())?;
    machine.run(&launch)?;
    let to = ends(machine, count)?;
    run(machine, advance(best, launch.config().grid[0], to, count as u32))?;
    let got: Vec<f32> = machine.download(logits, count * stride as usize)?;
    let mut worst = 0f64;
    for (i, n) in streams.normed.iter().enumerate() {
        let got = &got[i * stride as usize..][..rows];
        let highest = |a: &usize, b: &usize| got[*a].total_cmp(&got[*b]).then(b.cmp(a));
        let token = (0..rows).max_by(highest).unwrap_or(0) as u32;
        ended(machine, &to, i, token, token)?;
        let products = matrix.times(0, rows, n);
        let allowed = PRODUCT * rms(&products);
        let capped = |v: &f64| match f64::from(cap) {
            0.0 => *v,
            cap => cap * (v / cap).tanh(),
        };
        let want: Vec<f64> = products.iter().map(capped).collect();
        worst = worst.max(within("logits", got, &want, |_| allowed)?);
    }
    Ok(worst)
}

/// States at position 5 + i, and room for the next tokens.
fn ends(machine: &mut dyn Machine, count: usize) -> Result<Next, String> {
    let states: Vec<StepState> = (0..count as u32)
        .map(|i| StepState {
            token: 9,
            position: 5 + i,
            step: 7,
            draws: 1,
        })
        .collect();
    Ok(Next {
        states: machine.upload(&states)?,
        tokens: machine.output(count)?,
        ring: machine.upload(&[0u64; (SLOTS * MOST) as usize])?,
    })
}

/// Checks that sequence `i` goes on with `token`, and that `emitted` was said.
fn ended(machine: &mut dyn Machine, to: &Next, i: usize, token: u32, emitted: u32) -> Result<(), String> {
    let want = StepState {
        token,
        position: 6 + i as u32,
        step: 8,
        draws: 1,
    };
    let state = machine.download(to.states, i + 1)?[i];
    let (read, ring) = (
        machine.download(to.tokens, i + 1)?[i],
        machine.download(to.ring, (SLOTS * MOST) as usize)?,
    );
    let said = ring_token(ring[(7 % SLOTS * MOST) as usize + i], 7);
    if (state, read, said) != (want, token, Some(emitted)) {
        return Err(format!(
            "sequence {i} ended in {state:?}, {read} and {said:?}, not in {want:?} and {emitted}"
        ));
    }
    Ok(())
}

/// The choice among candidates with NaN, infinities and ties.
fn next_tokens(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let values = [f32::NAN, f32::NEG_INFINITY, -1.0, 0.0, 1.0, 1.0, f32::INFINITY];
    let (count, each) = (sequences(&mut random), 1 + random.below(600));
    let candidates: Vec<Best> = (0..count * each)
        .map(|i| Best {
            logit: values[random.below(1 + i / each % values.len())],
            token: random.below(150_000) as u32,
        })
        .collect();
    let (best, to) = (machine.upload(&candidates)?, ends(machine, count)?);
    run(machine, advance(best, each as u32, to, count as u32))?;
    for (i, own) in candidates.chunks(each).enumerate() {
        let best = own.iter().fold(Best::NONE, |a, b| a.or(*b));
        let emitted = if best.logit > f32::NEG_INFINITY {
            best.token
        } else {
            NO_TOKEN
        };
        let token = if emitted == NO_TOKEN { 0 } else { emitted };
        ended(machine, &to, i, token, emitted)?;
    }
    Ok(0.0)
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "many_enter",
        run: begin,
    },
    Case {
        name: "many_qkv",
        run: queries,
    },
    Case {
        name: "many_project",
        run: output,
    },
    Case {
        name: "many_router",
        run: route,
    },
    Case {
        name: "many_gateup",
        run: gate_and_up,
    },
    Case {
        name: "many_down",
        run: experts_down,
    },
    Case {
        name: "many_head",
        run: vocabulary,
    },
    Case {
        name: "many_advance",
        run: next_tokens,
    },
];
