//! The fused decode kernels, against f64 over the very weights.
//!
//! What remains is the 16-bit rounding of activations, half of 1/32,512 of the largest of 256, and of f32 sums.

use crate::decode::attention::Parts;
use crate::decode::choices::{Choices, MAX_USED};
use crate::decode::gateup::{ExpertShape, GateUp, topk_gateup};
use crate::decode::head::{Best, HeadShape, head_argmax};
use crate::decode::norm_qkv::{QkvShape, norm_qkv};
use crate::decode::residual::{Residual, enter};
use crate::decode::router::{Router, Routing};
use crate::decode::rows::TileKind;
use crate::decode::state::{NO_TOKEN, StepState, ring_token};
use crate::decode::{
    advance::advance,
    down::down_residual,
    o_proj::{Input, o_proj_residual},
};
use crate::testing::tiled::{Tiled, normed};
use crate::testing::{Case, Machine, Random, floats, rms, within};
use cuda_std::launch::PreparedLaunch;
use cuda_std::{DevicePtr, F32x2};

/// Allowed error of a product with 16-bit activations, as a share of the results' size.
pub(super) const PRODUCT: f64 = 3e-4;

pub(super) fn kind(random: &mut Random) -> TileKind {
    [TileKind::Q4K, TileKind::Q6K][random.below(2)]
}

pub(super) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|v| f64::from(*v)).collect()
}

pub(super) fn run<E: ToString>(machine: &mut dyn Machine, launch: Result<PreparedLaunch, E>) -> Result<(), String> {
    machine.run(&launch.map_err(|e| e.to_string())?)
}

/// A stream of x that has met `gain`.
pub(super) fn stream(machine: &mut dyn Machine, x: &[f32], gain: &[f32]) -> Result<Residual, String> {
    let gained: Vec<f32> = x.iter().zip(gain).map(|(x, g)| x * g).collect();
    let squares: Vec<f32> = x.chunks(16).map(|x| x.iter().map(|v| v * v).sum()).collect();
    Ok(Residual {
        x: machine.upload(x)?,
        gained: machine.upload(&gained)?,
        squares: machine.upload(&squares)?,
    })
}

/// A stream of x alone, as a launch finds it that writes the rest.
pub(super) fn bare(machine: &mut dyn Machine, x: &[f32]) -> Result<Residual, String> {
    Ok(Residual {
        x: machine.upload(x)?,
        gained: machine.output(x.len())?,
        squares: machine.output(x.len() / 16)?,
    })
}

/// Compares a stream with x, within `allowed`, and what goes with it with the very x that it has.
pub(super) fn left(
    machine: &mut dyn Machine,
    s: Residual,
    gain: &[f32],
    x: &[f64],
    allowed: f64,
) -> Result<f64, String> {
    let got = machine.download(s.x, x.len())?;
    let worst = within("x", &got, x, |_| allowed)?;
    let gained: Vec<f64> = got.iter().zip(gain).map(|(x, g)| f64::from(x * g)).collect();
    within("x times gains", &machine.download(s.gained, x.len())?, &gained, |_| {
        f64::MIN_POSITIVE
    })?;
    let squares = got.chunks(16).map(|x| x.iter().map(|v| f64::from(*v).powi(2)).sum());
    let squares: Vec<f64> = squares.collect();
    let found = machine.download(s.squares, x.len() / 16)?;
    within("squares", &found, &squares, |i| 1e-6 * squares[i] + 1e-30)?;
    Ok(worst)
}

fn begin(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let columns = columns(&mut Random::new(seed));
    let (x, gain) = (floats(seed, columns, 3.0), floats(seed + 1, columns, 0.7));
    let (s, gain_at) = (bare(machine, &x)?, machine.upload(&gain)?);
    run(machine, enter(s, gain_at, columns as u32))?;
    left(machine, s, &gain, &wide(&x), f64::MIN_POSITIVE)
}

/// Columns of the residual stream: those of models, or any number of 256-column blocks.
pub(super) fn columns(random: &mut Random) -> usize {
    [256, 2048, 256 * (1 + random.below(20))][random.below(3)]
}

fn qkv(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let columns = columns(&mut random);
    qkv_of(machine, seed, random, columns)
}

fn qkv_of(machine: &mut dyn Machine, seed: u64, mut random: Random, columns: usize) -> Result<f64, String> {
    let rows: Vec<usize> = (0..3).map(|_| 16 * (1 + random.below(3))).collect();
    let parts: Vec<Tiled> = (0..3)
        .map(|i| Tiled::new(kind(&mut random), rows[i], columns, seed + i as u64))
        .collect::<Result<_, _>>()?;
    let (x, gain) = (floats(seed, columns, 3.0), floats(seed + 1, columns, 0.7));
    let total = rows.iter().sum();
    let bias = (seed % 2 == 1).then(|| floats(seed + 2, total, 1.0));
    let mut matrices = Vec::new();
    for part in &parts {
        matrices.push(part.upload(machine, 1)?);
    }
    let shape = QkvShape {
        matrices: [matrices[0], matrices[1], matrices[2]],
        columns: columns as u32,
        eps: 1e-6,
    };
    let bias_at = bias.as_ref().map_or(Ok(DevicePtr::null()), |b| machine.upload(b))?;
    let (s, out) = (stream(machine, &x, &gain)?, machine.output(total)?);
    let routing = routing(machine, random.below(300) as u32)?;
    run(machine, norm_qkv(s, bias_at, out, routing, shape))?;
    cleared(machine, routing)?;
    let n = normed(&wide(&x), &gain, 1e-6);
    let mut want: Vec<f64> = parts
        .iter()
        .zip(&rows)
        .flat_map(|(part, rows)| part.times(0, *rows, &n))
        .collect();
    let allowed = PRODUCT * rms(&want);
    if let Some(bias) = bias {
        want.iter_mut().zip(bias).for_each(|(w, b)| *w += f64::from(b));
    }
    within("out", &machine.download(out, total)?, &want, |_| allowed)
}

/// A routing of which nothing is written; none for no experts.
fn routing(machine: &mut dyn Machine, experts: u32) -> Result<Routing, String> {
    if experts == 0 {
        return Ok(Routing::NONE);
    }
    Ok(Routing {
        sums: machine.output(Routing::words(experts as usize))?,
        choices: Choices::new(machine.output(MAX_USED as usize)?),
        experts,
        reserved: 0,
    })
}

/// All sums and words are zero.
fn cleared(machine: &mut dyn Machine, routing: Routing) -> Result<(), String> {
    if routing.experts == 0 {
        return Ok(());
    }
    let sums = machine.download(routing.sums, Routing::words(routing.experts as usize))?;
    let words = machine.download(routing.choices.words(), MAX_USED as usize)?;
    match sums.iter().chain(&words).all(|word| *word == 0) {
        true => Ok(()),
        false => Err("sums or words of the routing are not cleared".to_owned()),
    }
}

fn project(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (columns, rows) = (
        [512, 4096, 256 * (1 + random.below(18))][random.below(3)],
        16 * (1 + random.below(4)),
    );
    project_of(machine, seed, kind(&mut random), [rows, columns])
}

fn project_of(
    machine: &mut dyn Machine,
    seed: u64,
    kind: TileKind,
    [rows, columns]: [usize; 2],
) -> Result<f64, String> {
    let matrix = Tiled::new(kind, rows, columns, seed)?;
    let (a, x) = (floats(seed + 1, columns, 2.0), floats(seed + 2, rows, 1.0));
    let at = matrix.upload(machine, 1)?;
    let gain = floats(seed + 3, rows, 1.0);
    let (gain_at, s) = (machine.upload(&gain)?, bare(machine, &x)?);
    let experts = [0, 1, 7, 128, 250][seed as usize % 5];
    let weights = floats(seed + 4, experts * rows, 0.1);
    let router = Router {
        weights: machine.upload(&weights)?,
        routing: Routing {
            sums: machine.upload(&Routing::words_of(&vec![1.0; experts]))?,
            ..routing(machine, experts as u32)?
        },
    };
    let router = if experts == 0 { Router::NONE } else { router };
    let input = input(machine, &a, seed)?;
    run(machine, o_proj_residual(input, s, gain_at, at, router, columns as u32))?;
    added(machine, s, router, &weights)?;
    let product = matrix.times(0, rows, &wide(&a));
    let allowed = PRODUCT * rms(&product);
    let want: Vec<f64> = product.iter().zip(&x).map(|(p, x)| p + f64::from(*x)).collect();
    left(machine, s, &gain, &want, allowed)
}

/// `a` in one piece, or in parts that make it, some of them without work.
fn input(machine: &mut dyn Machine, a: &[f32], seed: u64) -> Result<Input, String> {
    let mut random = Random::new(seed ^ 0xa1);
    if seed.is_multiple_of(2) {
        return Ok(Input::Whole {
            a: machine.upload(a)?,
            shallow: random.below(2) == 0,
        });
    }
    let (dim_bits, count) = (6 + random.below(3), 2 + random.below(3));
    let (heads, empty) = (a.len() >> dim_bits, random.below(count + 1));
    let nothing = F32x2([f32::NEG_INFINITY, 0.0]);
    let mut marks = vec![nothing; count * heads];
    let mut rows = floats(seed + 5, count * a.len(), 2.0);
    for (head, a) in a.chunks(1 << dim_bits).enumerate() {
        let max = |_| 3.0 * random.normal();
        let maxima: Vec<f32> = (0..count).map(max).collect();
        // The last part that has work makes up for the others.
        let last = (0..count).rfind(|part| *part != empty).unwrap_or(0);
        let factor = |part: usize| f64::from(maxima[part] - maxima[last]).exp2();
        let working = || (0..count).filter(|part| *part != empty);
        working().for_each(|part| marks[part * heads + head] = F32x2([maxima[part], 0.5 + part as f32]));
        let sum: f64 = working().map(|part| factor(part) * (0.5 + part as f64)).sum();
        for (dim, a) in a.iter().enumerate() {
            let at = |part: usize| part * (heads << dim_bits) + (head << dim_bits) + dim;
            if empty < count {
                rows[at(empty)] = 0.0;
            }
            let others: f64 = working()
                .filter(|part| *part != last)
                .map(|part| factor(part) * f64::from(rows[at(part)]))
                .sum();
            rows[at(last)] = (f64::from(*a) * sum - others) as f32;
        }
    }
    let parts = Parts {
        rows: machine.upload(&rows)?,
        marks: machine.upload(&marks)?,
        heads: heads as u32,
        dim_bits: dim_bits as u32,
    };
    Ok(Input::Parts(parts, count as u32))
}

/// Compares the sums, which were one, with the very stream that a launch left.
fn added(machine: &mut dyn Machine, s: Residual, router: Router, weights: &[f32]) -> Result<(), String> {
    let experts = router.routing.experts as usize;
    if experts == 0 {
        return Ok(());
    }
    let gained = machine.download(s.gained, weights.len() / experts)?;
    let product = |row: &[f32]| {
        row.iter()
            .zip(&gained)
            .map(|(w, x)| f64::from(*w) * f64::from(*x))
            .sum::<f64>()
    };
    let want: Vec<f64> = weights.chunks(gained.len()).map(|row| 1.0 + product(row)).collect();
    let sums = machine.download(router.routing.sums, Routing::words(experts))?;
    let got: Vec<f32> = (0..experts as u32)
        .map(|e| Routing::sum(&sums, experts as u32, e))
        .collect();
    let allowed = 1e-6 * (rms(&want) + 1.0);
    within("router's sums", &got, &want, |_| allowed).map(|_| ())
}

/// Random experts and the logits that choose among them, with equal ones among them.
pub(super) struct Experts {
    pub(super) shape: ExpertShape,
    pub(super) logits: Vec<f32>,
}

impl Experts {
    pub(super) fn new(random: &mut Random, seed: u64) -> Self {
        // Many experts are small ones, or their weights would take the test's time.
        let many = random.below(3) == 0;
        let experts = 4 * (1 + if many { 20 + random.below(20) } else { random.below(4) }) as u32;
        let shape = ExpertShape {
            experts,
            used: (1 + random.below(8) as u32).min(experts),
            columns: if many { 256 } else { 256 * (1 + random.below(2)) as u32 },
            ff: if many { 256 } else { 256 * (1 + random.below(3)) as u32 },
            eps: 1e-6,
            reserved: 0,
        };
        Self::of(shape, seed)
    }

    /// `used` of `experts` of 256 columns.
    fn sized(seed: u64, [experts, used, ff]: [u32; 3]) -> Self {
        let shape = ExpertShape {
            experts,
            used,
            columns: 256,
            ff,
            eps: 1e-6,
            reserved: 0,
        };
        Self::of(shape, seed)
    }

    pub(super) fn of(shape: ExpertShape, seed: u64) -> Self {
        let logits = floats(seed, shape.experts as usize, 2.0)
            .iter()
            .map(|v| (v * 4.0).round() / 4.0 + 0.0)
            .collect();
        Self { shape, logits }
    }

    /// The chosen experts in order of rank, with their weights: softmax over all, then divided by their sum.
    pub(super) fn chosen(&self) -> Vec<(usize, f64)> {
        let mut order: Vec<usize> = (0..self.logits.len()).collect();
        order.sort_by(|a, b| self.logits[*b].total_cmp(&self.logits[*a]).then(a.cmp(b)));
        order.truncate(self.shape.used as usize);
        let all: f64 = self.logits.iter().map(|l| f64::from(*l).exp()).sum();
        let p: Vec<f64> = order.iter().map(|e| f64::from(self.logits[*e]).exp() / all).collect();
        let sum: f64 = p.iter().sum();
        order.into_iter().zip(p.into_iter().map(|p| p / sum)).collect()
    }

    /// The words that say so.
    pub(super) fn words(&self) -> [u64; MAX_USED as usize] {
        let mut words = [0; MAX_USED as usize];
        for (word, (expert, weight)) in words.iter_mut().zip(self.chosen()) {
            *word = u64::from((weight as f32).to_bits()) << 32 | (expert as u64 + 1);
        }
        words
    }

    /// Compares the words that a launch left: the experts, and their weights nearly.
    pub(super) fn published(&self, found: &[u64]) -> Result<(), String> {
        for (rank, (got, want)) in found.iter().zip(self.words()).enumerate() {
            let weight = |word: u64| f32::from_bits((word >> 32) as u32);
            if *got as u32 != want as u32 || (weight(*got) - weight(want)).abs() > 1e-5 {
                return Err(format!("word {rank} of the choices is {got:#x}, not {want:#x}"));
            }
        }
        Ok(())
    }
}

fn gateup(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let experts = Experts::new(&mut random, seed);
    gateup_of(machine, seed, kind(&mut random), &experts)
}

fn gateup_of(machine: &mut dyn Machine, seed: u64, kind: TileKind, experts: &Experts) -> Result<f64, String> {
    let ExpertShape {
        experts: count,
        used,
        columns,
        ff,
        ..
    } = experts.shape;
    let rows = (count * ff) as usize;
    let (gate, up) = (
        Tiled::new(kind, rows, columns as usize, seed)?,
        Tiled::new(kind, rows, columns as usize, seed + 1)?,
    );
    let (x, gain) = (
        floats(seed + 2, columns as usize, 2.0),
        floats(seed + 3, columns as usize, 1.0),
    );
    let weights = GateUp {
        gate: gate.upload(machine, count as usize)?,
        up: up.upload(machine, count as usize)?,
    };
    let s = stream(machine, &x, &gain)?;
    let h = machine.output((used * ff) as usize)?;
    let words = machine.upload(&[0u64; MAX_USED as usize])?;
    // The sums come before the norm.
    let norm = (rms(&wide(&x)).powi(2) + 1e-6).sqrt() as f32;
    let sums: Vec<f32> = experts.logits.iter().map(|logit| logit * norm).collect();
    let routing = Routing {
        sums: machine.upload(&Routing::words_of(&sums))?,
        choices: Choices::new(words),
        experts: count,
        reserved: 0,
    };
    run(machine, topk_gateup(s, h, routing, weights, experts.shape))?;
    let n = normed(&wide(&x), &gain, 1e-6);
    let want: Vec<f64> = experts
        .chosen()
        .iter()
        .flat_map(|(e, _)| expert_h(&gate, &up, *e, ff as usize, &n))
        .collect();
    experts.published(&machine.download(words, MAX_USED as usize)?)?;
    // The errors of two factors, each as large as the other factor makes it.
    let allowed = 4.0 * PRODUCT * rms(&want);
    within("h", &machine.download(h, want.len())?, &want, |i| {
        allowed + PRODUCT * want[i].abs()
    })
}

/// `silu(G x) ∘ (U x)` of an expert.
pub(super) fn expert_h(gate: &Tiled, up: &Tiled, expert: usize, ff: usize, x: &[f64]) -> Vec<f64> {
    let (g, u) = (gate.times(expert * ff, ff, x), up.times(expert * ff, ff, x));
    g.iter().zip(u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()
}

fn down(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let experts = Experts::new(&mut random, seed);
    down_of(machine, seed, kind(&mut random), &experts)
}

fn down_of(machine: &mut dyn Machine, seed: u64, kind: TileKind, experts: &Experts) -> Result<f64, String> {
    let ExpertShape {
        experts: count,
        used,
        columns,
        ff,
        ..
    } = experts.shape;
    let matrix = Tiled::new(kind, (count * columns) as usize, ff as usize, seed)?;
    let (h, x) = (
        floats(seed + 1, (used * ff) as usize, 1.0),
        floats(seed + 2, columns as usize, 1.0),
    );
    let at = matrix.upload(machine, count as usize)?;
    let gain = floats(seed + 3, columns as usize, 1.0);
    let h_at = machine.upload(&h)?;
    let (s, gain_at) = (bare(machine, &x)?, machine.upload(&gain)?);
    let choices = Choices::new(machine.upload(&experts.words())?);
    run(machine, down_residual(h_at, choices, s, gain_at, at, experts.shape))?;
    let mut sum = vec![0f64; columns as usize];
    for ((expert, weight), h) in experts.chosen().iter().zip(h.chunks(ff as usize)) {
        let product = matrix.times(expert * columns as usize, columns as usize, &wide(h));
        sum.iter_mut().zip(product).for_each(|(s, p)| *s += weight * p);
    }
    let allowed = PRODUCT * rms(&sum);
    let want: Vec<f64> = sum.iter().zip(&x).map(|(s, x)| s + f64::from(*x)).collect();
    left(machine, s, &gain, &want, allowed)
}

/// The head, and the step's end: the token must be the best of the very logits that came out.
fn head(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (columns, rows) = (256 * (1 + random.below(8)), 1 + random.below(300));
    let blocks = 1 + random.below(9) as u32;
    let matrix = Tiled::new(kind(&mut random), rows, columns, seed)?;
    let (x, gain) = (floats(seed + 1, columns, 2.0), floats(seed + 2, columns, 1.0));
    let softcap = [0.0, 20.0][random.below(2)];
    let shape = HeadShape {
        rows: rows as u32,
        columns: columns as u32,
        eps: 1e-6,
        softcap,
    };
    let at = matrix.upload(machine, 1)?;
    let (s, logits) = (stream(machine, &x, &gain)?, machine.output(rows)?);
    let launch = head_argmax(s, logits, DevicePtr::null(), at, shape, blocks).map_err(|e| e.to_string())?;
    let blocks = launch.config().grid[0];
    let best = machine.output::<Best>(blocks as usize)?;
    run(machine, head_argmax(s, logits, best, at, shape, blocks))?;
    let (state, ring) = (
        machine.upload(&[StepState {
            token: 9,
            position: 5,
            step: 3,
            draws: 0,
        }])?,
        machine.upload(&[0u64; 2])?,
    );
    run(machine, advance(best, blocks, state, ring, 2))?;
    let got = machine.download(logits, rows)?;
    ended(machine.download(state, 1)?[0], &machine.download(ring, 2)?, &got)?;
    let want: Vec<f64> = matrix.times(0, rows, &normed(&wide(&x), &gain, 1e-6));
    let allowed = PRODUCT * rms(&want);
    let capped = |v: f64| {
        if softcap == 0.0 {
            v
        } else {
            f64::from(softcap) * (v / f64::from(softcap)).tanh()
        }
    };
    within(
        "logits",
        &got,
        &want.into_iter().map(capped).collect::<Vec<_>>(),
        |_| allowed,
    )
}

fn ended(state: StepState, ring: &[u64], logits: &[f32]) -> Result<(), String> {
    let token = (0..logits.len())
        .rev()
        .max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
        .unwrap_or(0) as u32;
    let want = StepState {
        token,
        position: 6,
        step: 4,
        draws: 0,
    };
    if state != want || ring_token(ring[1], 3) != Some(token) {
        return Err(format!("the step ended in {state:?} and {ring:x?}, not in {want:?}"));
    }
    Ok(())
}

/// The choice of the next token among candidates with NaN, infinities and ties.
fn next_token(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let values = [f32::NAN, f32::NEG_INFINITY, -1.0, 0.0, 1.0, 1.0, f32::INFINITY];
    let most = 1 + random.below(values.len());
    let candidates: Vec<Best> = (0..1 + random.below(600))
        .map(|_| Best {
            logit: values[random.below(most)],
            token: random.below(150_000) as u32,
        })
        .collect();
    let better = |a: &Best, b: &Best| b.logit > a.logit || b.logit == a.logit && b.token < a.token;
    let want = candidates
        .iter()
        .fold(Best::NONE, |a, b| if better(&a, b) { *b } else { a });
    let (best, state) = (machine.upload(&candidates)?, machine.upload(&[StepState::default()])?);
    let ring = machine.upload(&[0u64; 4])?;
    run(machine, advance(best, candidates.len() as u32, state, ring, 4))?;
    let (state, ring) = (machine.download(state, 1)?[0], machine.download(ring, 4)?);
    let emitted = if want == Best::NONE { NO_TOKEN } else { want.token };
    if (state.token, ring_token(ring[0], 0)) != (want.token, Some(emitted)) {
        return Err(format!("token {} and {ring:x?}, not {}", state.token, want.token));
    }
    Ok(0.0)
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "decode_residual",
        run: begin,
    },
    Case {
        name: "decode_qkv",
        run: qkv,
    },
    Case {
        name: "decode_project",
        run: project,
    },
    // More tiles than a block has warps for.
    Case {
        name: "decode_qkv/rounds",
        run: |m, seed| qkv_of(m, seed, Random::new(seed), 5120),
    },
    Case {
        name: "decode_project/rounds",
        run: |m, seed| project_of(m, seed, kind(&mut Random::new(seed)), [32, 6144]),
    },
    // Two vectors of logits a lane.
    Case {
        name: "decode_gateup/many",
        run: |m, seed| {
            gateup_of(
                m,
                seed,
                kind(&mut Random::new(seed)),
                &Experts::sized(seed, [148, 20, 256]),
            )
        },
    },
    Case {
        name: "decode_down/rounds",
        run: |m, seed| {
            down_of(
                m,
                seed,
                kind(&mut Random::new(seed)),
                &Experts::sized(seed, [12, 10, 768]),
            )
        },
    },
    Case {
        name: "decode_gateup",
        run: gateup,
    },
    Case {
        name: "decode_down",
        run: down,
    },
    Case {
        name: "decode_head",
        run: head,
    },
    Case {
        name: "decode_advance",
        run: next_token,
    },
];
