//! Whole steps of the decode kernels, launch after launch, against f64: layers, head and the next token.

use crate::decode::attention::{AttentionInputs, AttentionPlan, AttentionShape};
use crate::decode::choices::MAX_USED;
use crate::decode::gateup::ExpertShape;
use crate::decode::head::{Best, HeadShape};
use crate::decode::kv::{Cell, KvFormat, PAGE_TOKENS, Pool};
use crate::decode::plan::{Ending, LayerCache, LayerShape, LayerWeights, StepBuffers, beginning, ending, layer};
use crate::decode::residual::Residual;
use crate::decode::rope::Pairing;
use crate::decode::router::Routing;
use crate::decode::rows::TileKind::{Q4K, Q6K};
use crate::decode::state::{StepState, ring_token};
use crate::rope;
use crate::testing::tiled::{Tiled, normed};
use crate::testing::{Case, Machine, Random, floats, radians, rms, within};
use cuda_std::{DevicePtr, F32x2};

/// Sizes of a small model.
#[derive(Clone, Copy)]
struct Sizes {
    columns: usize,
    heads: u32,
    kv_heads: u32,
    experts: u32,
    used: u32,
    ff: usize,
    vocabulary: usize,
}

const HEAD_DIM: usize = 128;
const FORMAT: KvFormat = KvFormat::F16;
/// Pages of the cache.
const PAGES: u32 = 3;
const EPS: f32 = 1e-6;
/// Allowed error, as a share of the results' size: a launch adds some 5e-5 and a layer makes what came in five times as
/// large, mostly where scores become weights; the largest of hundreds is three or four times the usual one.
const ALLOWED: f64 = 3e-3;

impl Sizes {
    fn attention(&self) -> AttentionShape {
        AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            rotated: HEAD_DIM as u32,
            pairing: Pairing::Halves as u32,
            window: 0,
            page_bytes: FORMAT.page_bytes(self.kv_heads, HEAD_DIM as u32),
            least_chunks: 1,
            eps: EPS,
            scale: 1.0 / (HEAD_DIM as f32).sqrt(),
            mscale: 1.0,
            softcap: 0.0,
        }
    }

    fn experts(&self) -> ExpertShape {
        let (columns, ff) = (self.columns as u32, self.ff as u32);
        ExpertShape {
            experts: self.experts,
            used: self.used,
            columns,
            ff,
            eps: EPS,
            reserved: 0,
        }
    }
}

/// A layer's weights and cache, on the host.
struct Layer {
    attention_norm: Vec<f32>,
    qkv: [Tiled; 3],
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
    output: Tiled,
    expert_norm: Vec<f32>,
    router: Vec<f32>,
    gate: Tiled,
    up: Tiled,
    down: Tiled,
    keys: Pool,
    values: Pool,
}

fn ones(seed: u64, n: usize) -> Vec<f32> {
    floats(seed, n, 0.1).iter().map(|v| 1.0 + v).collect()
}

/// A pool of random keys or values.
fn cached(s: &Sizes, keys: bool, seed: u64) -> Pool {
    let page_bytes = s.attention().page_bytes;
    let mut pool = Pool {
        format: FORMAT,
        head_dim: HEAD_DIM as u32,
        page_bytes,
        keys,
        bytes: vec![0; (PAGES * page_bytes) as usize],
    };
    let cells = PAGES * PAGE_TOKENS * s.kv_heads;
    let values = floats(seed, cells as usize * HEAD_DIM, 1.0);
    for (i, values) in (0..).zip(values.chunks(HEAD_DIM)) {
        let (kv_head, token) = (i % s.kv_heads, i / s.kv_heads);
        let (page, slot) = (token / PAGE_TOKENS, token % PAGE_TOKENS);
        pool.put(Cell { page, slot, kv_head }, values);
    }
    pool
}

impl Layer {
    /// Random weights; value and down are of the larger type in every other layer, as files have it.
    fn new(s: &Sizes, seed: u64) -> Result<Self, String> {
        let other = if seed.is_multiple_of(2) { Q4K } else { Q6K };
        let (q, k) = (s.heads as usize * HEAD_DIM, s.kv_heads as usize * HEAD_DIM);
        let rows = s.experts as usize * s.ff;
        Ok(Self {
            attention_norm: ones(seed, s.columns),
            qkv: [
                Tiled::new(Q4K, q, s.columns, seed + 1)?,
                Tiled::new(Q4K, k, s.columns, seed + 2)?,
                Tiled::new(other, k, s.columns, seed + 3)?,
            ],
            q_norm: ones(seed + 4, HEAD_DIM),
            k_norm: ones(seed + 5, HEAD_DIM),
            output: Tiled::new(Q4K, s.columns, q, seed + 6)?,
            expert_norm: ones(seed + 7, s.columns),
            router: floats(seed + 8, s.experts as usize * s.columns, 0.1),
            gate: Tiled::new(Q4K, rows, s.columns, seed + 9)?,
            up: Tiled::new(Q4K, rows, s.columns, seed + 10)?,
            down: Tiled::new(other, s.experts as usize * s.columns, s.ff, seed + 11)?,
            keys: cached(s, true, seed + 12),
            values: cached(s, false, seed + 13),
        })
    }

    fn upload(
        &self,
        machine: &mut dyn Machine,
        s: &Sizes,
        frequencies: DevicePtr<F32x2>,
        next_norm: DevicePtr<f32>,
    ) -> Result<(LayerWeights, LayerCache), String> {
        let experts = s.experts as usize;
        let [q, k, v] = &self.qkv;
        let weights = LayerWeights {
            attention_norm: machine.upload(&self.attention_norm)?,
            qkv: [q.upload(machine, 1)?, k.upload(machine, 1)?, v.upload(machine, 1)?],
            qkv_bias: DevicePtr::null(),
            q_norm: machine.upload(&self.q_norm)?,
            k_norm: machine.upload(&self.k_norm)?,
            frequencies,
            output: self.output.upload(machine, 1)?,
            expert_norm: machine.upload(&self.expert_norm)?,
            router: machine.upload(&self.router)?,
            gate: self.gate.upload(machine, experts)?,
            up: self.up.upload(machine, experts)?,
            down: self.down.upload(machine, experts)?,
            next_norm,
        };
        Ok((
            weights,
            LayerCache {
                keys: machine.upload(&self.keys.bytes)?,
                values: machine.upload(&self.values.bytes)?,
            },
        ))
    }

    /// The layer in f64, in place; the cache is read, and not written.
    fn run(&self, s: &Sizes, position: u32, table: &[u32], frequencies: &[F32x2], x: &mut [f64]) {
        let n = normed(x, &self.attention_norm, EPS);
        let qkv: Vec<f32> = self
            .qkv
            .iter()
            .flat_map(|m| m.times(0, m.rows(), &n))
            .map(|v| v as f32)
            .collect();
        let attention = AttentionInputs {
            shape: s.attention(),
            head_dim: HEAD_DIM,
            position,
            qkv: &qkv,
            norms: Some((&self.q_norm, &self.k_norm)),
            frequencies,
            table,
            keys: &self.keys,
            values: &self.values,
        };
        add(x, &self.output.times(0, s.columns, &attention.run().out), 1.0);
        let n = normed(x, &self.expert_norm, EPS);
        for (expert, weight) in self.chosen(s, &n) {
            let (g, u) = (
                self.gate.times(expert * s.ff, s.ff, &n),
                self.up.times(expert * s.ff, s.ff, &n),
            );
            let h: Vec<f64> = g.iter().zip(u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(x, &self.down.times(expert * s.columns, s.columns, &h), weight);
        }
    }

    fn chosen(&self, s: &Sizes, n: &[f64]) -> Vec<(usize, f64)> {
        let row = |row: &[f32]| row.iter().zip(n).map(|(w, n)| f64::from(*w) * n).sum::<f64>().exp();
        let p: Vec<f64> = self.router.chunks(s.columns).map(row).collect();
        let mut order: Vec<usize> = (0..p.len()).collect();
        order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
        order.truncate(s.used as usize);
        let sum: f64 = order.iter().map(|e| p[*e]).sum();
        order.into_iter().map(|e| (e, p[e] / sum)).collect()
    }
}

fn add(x: &mut [f64], y: &[f64], factor: f64) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += factor * y);
}

/// Runs one step of `layers` layers from a random residual stream and compares logits and token.
fn step(machine: &mut dyn Machine, s: &Sizes, layers: usize, seed: u64) -> Result<f64, String> {
    let position = Random::new(seed).below(3 * 64 - 1) as u32;
    let (table, frequencies) = ([2u32, 0, 1], rope::table(&radians(HEAD_DIM, 1e6)));
    let layers: Vec<Layer> = (0..layers)
        .map(|i| Layer::new(s, 100 * seed + i as u64))
        .collect::<Result<_, _>>()?;
    let x = floats(seed, s.columns, 1.0);
    let plan = AttentionPlan::new(s.attention(), FORMAT, HEAD_DIM as u32, 12)
        .map_err(|e| e.to_string())?
        .with(3, 2);
    let plan = match seed % 3 {
        1 if machine.clusters() => plan.in_parts(3, 3),
        _ => plan,
    };
    let b = StepBuffers {
        stream: Residual {
            x: machine.upload(&x)?,
            gained: machine.output(s.columns)?,
            squares: machine.output(s.columns / 16)?,
        },
        qkv: machine.output((s.heads + 2 * s.kv_heads) as usize * HEAD_DIM)?,
        attention: machine.output(s.heads as usize * HEAD_DIM)?,
        partial: machine.output(plan.workspace_floats())?,
        counters: machine.upload(&vec![0u32; s.heads as usize])?,
        router_sums: machine.output(Routing::words(s.experts as usize))?,
        choices: machine.output(MAX_USED as usize)?,
        h: machine.output(s.used as usize * s.ff)?,
        table: machine.upload(&table)?,
        state: machine.upload(&[StepState {
            token: 0,
            position,
            step: 0,
            draws: 0,
        }])?,
    };
    let shape = LayerShape {
        even: None,
        shallow: seed.is_multiple_of(2),
        attention: plan,
        experts: s.experts(),
    };
    let mut expected: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    let rotation = machine.upload(&frequencies)?;
    let last_norm = ones(seed, s.columns);
    let norms = layers.iter().map(|one| &one.attention_norm).chain([&last_norm]);
    let norms: Vec<DevicePtr<f32>> = norms.map(|norm| machine.upload(norm)).collect::<Result<_, _>>()?;
    let first = beginning(&b, norms[0], s.columns as u32).map_err(|e| e.to_string())?;
    machine.run(&first)?;
    for (index, one) in layers.iter().enumerate() {
        let (weights, cache) = one.upload(machine, s, rotation, norms[index + 1])?;
        for launch in layer(&shape, &weights, &cache, &b).map_err(|e| e.to_string())? {
            machine.run(&launch)?;
        }
        one.run(s, position, &table, &frequencies, &mut expected);
    }
    let got = machine.download(b.stream.x, s.columns)?;
    let allowed = ALLOWED * rms(&expected);
    let worst = within("x", &got, &expected, |_| allowed)?;
    Ok(worst.max(finish(machine, s, &b, &expected, &last_norm, seed)?))
}

/// The end of the step.
fn finish(
    machine: &mut dyn Machine,
    s: &Sizes,
    b: &StepBuffers,
    x: &[f64],
    norm: &[f32],
    seed: u64,
) -> Result<f64, String> {
    let matrix = Tiled::new(Q6K, s.vocabulary, s.columns, seed)?;
    let shape = HeadShape {
        rows: s.vocabulary as u32,
        columns: s.columns as u32,
        eps: EPS,
        softcap: 0.0,
    };
    let end = Ending {
        matrix: matrix.upload(machine, 1)?,
        shape,
        logits: machine.output(s.vocabulary)?,
        best: machine.output::<Best>(5)?,
        blocks: 5,
        ring: machine.upload(&[0u64; 4])?,
        ring_length: 4,
    };
    for launch in ending(&end, b).map_err(|e| e.to_string())? {
        machine.run(&launch)?;
    }
    let want = matrix.times(0, s.vocabulary, &normed(x, norm, EPS));
    let got = machine.download(end.logits, s.vocabulary)?;
    let best = (0..got.len())
        .rev()
        .max_by(|a, b| got[*a].total_cmp(&got[*b]))
        .unwrap_or(0) as u32;
    let (state, ring) = (machine.download(b.state, 1)?[0], machine.download(end.ring, 4)?);
    if state.token != best || ring_token(ring[0], 0) != Some(best) || state.step != 1 {
        return Err(format!(
            "the step ended in {state:?} and {ring:x?}, not with token {best}"
        ));
    }
    let allowed = ALLOWED * rms(&want);
    within("logits", &got, &want, |_| allowed)
}

/// The bundled model's shapes.
const TINY: Sizes = Sizes {
    columns: 256,
    heads: 4,
    kv_heads: 2,
    experts: 16,
    used: 4,
    ff: 256,
    vocabulary: 500,
};
/// Rows and columns of Qwen3-30B-A3B with fewer heads, experts and tokens, so that it can be emulated.
const CUT: Sizes = Sizes {
    columns: 512,
    heads: 8,
    kv_heads: 1,
    experts: 12,
    used: 8,
    ff: 768,
    vocabulary: 100,
};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "step/bundled",
        run: |m, seed| step(m, &TINY, 2, seed),
    },
    Case {
        name: "step/eight_of_twelve",
        run: |m, seed| step(m, &CUT, 1, seed),
    },
];
