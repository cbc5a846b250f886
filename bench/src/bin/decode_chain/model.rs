//! A random model in device memory, and its step as a list of launches.

use anyhow::{Context as _, Result};
use cuda_std::launch::PreparedLaunch;
use cuda_std::{DevicePtr, F32x2};
use sparkinfer::cuda::{Buffer, Gpu};
use sparkinfer_device::decode::attention::{AttentionPlan, AttentionShape};
use sparkinfer_device::decode::gateup::ExpertShape;
use sparkinfer_device::decode::head::{Best, HeadShape};
use sparkinfer_device::decode::kv::{self, KvFormat};
use sparkinfer_device::decode::plan::{
    self, Ending, LayerCache, LayerShape, LayerWeights, Multiprocessors, StepBuffers,
};
use sparkinfer_device::decode::rows::TileKind::{self, Q4K, Q6K};
use sparkinfer_device::decode::{
    StepState, choices::MAX_USED, residual::Residual, rope::Pairing, router::Routing, rows::Matrix,
};
use sparkinfer_device::embed::{self, Table};
use sparkinfer_device::rope;
use sparkinfer_device::testing::{floats, q4_k_rows, radians, tiled::Tiled};

pub const COLUMNS: u32 = 2048;
pub const HEADS: u32 = 32;
pub const KV_HEADS: u32 = 4;
pub const HEAD_DIM: u32 = 128;
pub const EXPERTS: u32 = 128;
pub const USED: u32 = 8;
pub const FF: u32 = 768;
pub const VOCABULARY: u32 = 151_936;
const RING: u32 = 256;
pub const EPS: f32 = 1e-6;
/// Rows that differ; a matrix repeats them.
const DISTINCT_ROWS: usize = 128;

/// Kinds of launches of a step, in order.
pub const STAGES: [&str; 8] = [
    "qkv",
    "attention",
    "output",
    "gate/up",
    "down",
    "head",
    "advance",
    "embedding",
];

/// One launch of a step.
pub struct Stage {
    /// Index in [`STAGES`].
    pub kind: usize,
    pub launch: PreparedLaunch,
}

/// A matrix in device memory.
struct Stored {
    buffer: Buffer<u8>,
    rows: u32,
    kind: TileKind,
}

impl Stored {
    /// `copies` matrices of `rows` rows each, one behind the other; like another one where there is one of that size.
    fn new(gpu: &Gpu, kind: TileKind, rows: u32, columns: u32, copies: u32, like: Option<&Self>) -> Result<Self> {
        let bytes = (rows / 16) as usize * (columns / 256) as usize * kind.tile_bytes() * copies as usize;
        if let Some(like) = like.filter(|like| like.buffer.len() == bytes) {
            let mut buffer = Buffer::uninitialised(gpu.context(), bytes)?;
            buffer.copy_from(gpu.stream(), &like.buffer)?;
            return Ok(Self { buffer, rows, kind });
        }
        let part = Tiled::new(kind, DISTINCT_ROWS, columns as usize, u64::from(rows)).map_err(anyhow::Error::msg)?;
        let all: Vec<u8> = part.bytes.iter().copied().cycle().take(bytes).collect();
        Ok(Self {
            buffer: Buffer::from_slice(gpu.stream(), &all)?,
            rows,
            kind,
        })
    }

    fn matrix(&self) -> Matrix {
        Matrix::new(self.buffer.ptr(), self.rows, self.kind)
    }
}

/// A layer's weights and cache.
pub struct Layer {
    qkv: [Stored; 3],
    output: Stored,
    router: Buffer<f32>,
    experts: [Stored; 3],
    pub keys: Buffer<u8>,
    pub values: Buffer<u8>,
}

impl Layer {
    fn new(gpu: &Gpu, index: usize, more_bits: bool, pool: usize, before: &[Self]) -> Result<Self> {
        let like = |pick: fn(&Self) -> &Stored, kind: TileKind| before.iter().map(pick).find(|s| s.kind == kind);
        let other = if more_bits { Q6K } else { Q4K };
        let (q, k) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
        let new = |kind, rows, columns, copies, pick| Stored::new(gpu, kind, rows, columns, copies, like(pick, kind));
        let cache = |fill| -> Result<Buffer<u8>> {
            let buffer = Buffer::uninitialised(gpu.context(), pool)?;
            buffer.fill_bytes(gpu.stream(), fill)?;
            Ok(buffer)
        };
        let router = floats(index as u64, (EXPERTS * COLUMNS) as usize, 0.05);
        Ok(Self {
            qkv: [
                new(Q4K, q, COLUMNS, 1, |l| &l.qkv[0])?,
                new(Q4K, k, COLUMNS, 1, |l| &l.qkv[1])?,
                new(other, k, COLUMNS, 1, |l| &l.qkv[2])?,
            ],
            output: new(Q4K, COLUMNS, q, 1, |l| &l.output)?,
            router: Buffer::from_slice(gpu.stream(), &router)?,
            experts: [
                new(Q4K, FF, COLUMNS, EXPERTS, |l| &l.experts[0])?,
                new(Q4K, FF, COLUMNS, EXPERTS, |l| &l.experts[1])?,
                new(other, COLUMNS, FF, EXPERTS, |l| &l.experts[2])?,
            ],
            // Bytes that make ordinary values of every format.
            keys: cache(0x2e)?,
            values: cache(0x2f)?,
        })
    }

    /// The weights, with `ones` as the gains of all norms and the rotation table at `frequencies`.
    pub fn weights(&self, ones: DevicePtr<f32>, frequencies: DevicePtr<F32x2>) -> LayerWeights {
        let [gate, up, down] = &self.experts;
        LayerWeights {
            attention_norm: ones,
            qkv: self.qkv.each_ref().map(Stored::matrix),
            qkv_bias: DevicePtr::null(),
            q_norm: ones,
            k_norm: ones,
            frequencies,
            output: self.output.matrix(),
            expert_norm: ones,
            router: self.router.ptr(),
            gate: gate.matrix(),
            up: up.matrix(),
            down: down.matrix(),
            next_norm: ones,
        }
    }
}

/// Which layers of a Q4_K_M file have value and down matrices of Q6_K.
fn more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * eighth || (layer - eighth) % 3 == 2
}

/// How a step is put together.
#[derive(Clone, Copy)]
pub struct Assembly {
    pub splits: u32,
    pub warps: u32,
    pub least: u32,
    pub head_blocks: u32,
    pub clusters: bool,
    pub parts: u32,
}

/// A model with everything that a step needs.
pub struct Model {
    pub layers: Vec<Layer>,
    head: Stored,
    pub embedding: Buffer<u8>,
    pub ones: Buffer<f32>,
    floats: [Buffer<f32>; 8],
    router_sums: Buffer<u64>,
    counters: Buffer<u32>,
    choices: Buffer<u64>,
    best: Buffer<Best>,
    pub frequencies: Buffer<F32x2>,
    pub table: Buffer<u32>,
    state: Buffer<StepState>,
    ring: Buffer<u64>,
    multiprocessors: Multiprocessors,
    pub format: KvFormat,
}

impl Model {
    /// A model of `layers` layers with a cache of `format` for `context` tokens.
    pub fn new(gpu: &Gpu, layers: usize, context: u32, format: KvFormat) -> Result<Self> {
        let (stream, pages) = (gpu.stream(), kv::pages_of(context));
        let device = gpu.context().device();
        let multiprocessors = Multiprocessors {
            count: device.multiprocessors,
            shared_bytes: device.multiprocessor_shared_bytes,
        };
        let pool = pages as usize * format.page_bytes(KV_HEADS, HEAD_DIM) as usize;
        let mut built = Vec::new();
        for index in 0..layers {
            let layer = Layer::new(gpu, index, more_bits(index, layers), pool, &built);
            built.push(layer.with_context(|| format!("layer {index}"))?);
        }
        let zeros = |n: u32| Buffer::<f32>::zeroed(stream, n as usize);
        let workspace = AttentionPlan::MAX_SPLITS * HEADS * (HEAD_DIM + 2);
        let row = q4_k_rows(7, (COLUMNS / 256) as usize * 64);
        let table: Vec<u8> = row
            .iter()
            .copied()
            .cycle()
            .take(VOCABULARY as usize * COLUMNS as usize / 256 * 144)
            .collect();
        Ok(Self {
            layers: built,
            head: Stored::new(gpu, Q6K, VOCABULARY, COLUMNS, 1, None)?,
            embedding: Buffer::from_slice(stream, &table)?,
            ones: Buffer::from_slice(stream, &vec![1f32; COLUMNS as usize])?,
            floats: [
                zeros(COLUMNS)?,
                zeros((HEADS + 2 * KV_HEADS) * HEAD_DIM)?,
                zeros(HEADS * HEAD_DIM)?,
                zeros(workspace)?,
                zeros(USED * FF)?,
                zeros(VOCABULARY)?,
                zeros(COLUMNS)?,
                zeros(COLUMNS / 16)?,
            ],
            router_sums: Buffer::zeroed(stream, Routing::words(EXPERTS as usize))?,
            counters: Buffer::zeroed(stream, HEADS as usize)?,
            choices: Buffer::zeroed(stream, MAX_USED as usize)?,
            best: Buffer::zeroed(stream, 32 * multiprocessors.count as usize)?,
            frequencies: Buffer::from_slice(stream, &rope::table(&radians(HEAD_DIM as usize, 1e6)))?,
            table: Buffer::from_slice(stream, &(0..pages).collect::<Vec<_>>())?,
            state: Buffer::zeroed(stream, 1)?,
            ring: Buffer::zeroed(stream, RING as usize)?,
            multiprocessors,
            format,
        })
    }

    /// Sets the number of tokens in the cache.
    pub fn set_depth(&mut self, gpu: &Gpu, position: u32) -> Result<()> {
        let state = StepState {
            token: 1,
            position,
            step: 0,
            draws: 0,
        };
        Ok(self.state.write(gpu.stream(), 0, &[state])?)
    }

    /// The logits of the last step.
    pub fn logits(&self, gpu: &Gpu) -> Result<Vec<f32>> {
        Ok(self.floats[5].to_vec(gpu.stream())?)
    }

    fn buffers(&self) -> StepBuffers {
        let [x, qkv, attention, partial, h, _, gained, squares] = self.floats.each_ref().map(Buffer::ptr);
        StepBuffers {
            stream: Residual { x, gained, squares },
            qkv,
            attention,
            partial,
            counters: self.counters.ptr(),
            router_sums: self.router_sums.ptr(),
            choices: self.choices.ptr(),
            h,
            table: self.table.ptr(),
            state: self.state.ptr(),
        }
    }

    fn shape(&self, how: &Assembly) -> Result<LayerShape> {
        let shape = AttentionShape {
            heads: HEADS,
            kv_heads: KV_HEADS,
            rotated: HEAD_DIM,
            pairing: Pairing::Halves as u32,
            window: 0,
            page_bytes: self.format.page_bytes(KV_HEADS, HEAD_DIM),
            least_chunks: how.least,
            eps: EPS,
            scale: 1.0 / (HEAD_DIM as f32).sqrt(),
            mscale: 1.0,
            softcap: 0.0,
        };
        let plan = AttentionPlan::new(shape, self.format, HEAD_DIM, self.multiprocessors.count)?;
        let splits = if how.splits == 0 { plan.splits } else { how.splits };
        let experts = ExpertShape {
            experts: EXPERTS,
            used: USED,
            columns: COLUMNS,
            ff: FF,
            eps: EPS,
            reserved: 0,
        };
        Ok(LayerShape {
            attention: if how.parts > 1 {
                plan.with(splits, how.warps).in_parts(how.parts, splits / how.parts)
            } else {
                plan.with(splits, how.warps).clustered(how.clusters)
            },
            even: (splits == 1).then_some(self.multiprocessors),
            shallow: splits <= AttentionPlan::SHALLOW_SPLITS,
            experts,
        })
    }

    /// The launches of a step.
    pub fn step(&self, how: &Assembly) -> Result<Vec<Stage>> {
        let (shape, b) = (self.shape(how)?, self.buffers());
        let embedding = Table {
            rows: VOCABULARY,
            columns: COLUMNS,
            scale: 1.0,
        };
        let token = b.state.cast::<u32>();
        let config = embed::config(embedding, 1)?;
        let mut stages = vec![Stage {
            kind: 7,
            launch: embed::embed_q4_k::prepare(config, self.embedding.ptr(), embedding, token, b.stream.x),
        }];
        stages.push(Stage {
            kind: 7,
            launch: plan::beginning(&b, self.ones.ptr(), COLUMNS)?,
        });
        for layer in &self.layers {
            let cache = LayerCache {
                keys: layer.keys.ptr(),
                values: layer.values.ptr(),
            };
            let launches = plan::layer(
                &shape,
                &layer.weights(self.ones.ptr(), self.frequencies.ptr()),
                &cache,
                &b,
            )?;
            stages.extend(
                launches
                    .into_iter()
                    .enumerate()
                    .map(|(kind, launch)| Stage { kind, launch }),
            );
        }
        let end = Ending {
            matrix: self.head.matrix(),
            shape: HeadShape {
                rows: VOCABULARY,
                columns: COLUMNS,
                eps: EPS,
                softcap: 0.0,
            },
            logits: self.floats[5].ptr(),
            best: self.best.ptr(),
            blocks: how.head_blocks.min(32) * self.multiprocessors.count,
            ring: self.ring.ptr(),
            ring_length: RING,
        };
        stages.extend(
            plan::ending(&end, &b)?
                .into_iter()
                .enumerate()
                .map(|(i, launch)| Stage { kind: 5 + i, launch }),
        );
        Ok(stages)
    }

    /// Bytes of weights that launches of a kind read in a step.
    pub fn stage_bytes(&self, kind: usize) -> u64 {
        let of_layer = |l: &Layer| -> u64 {
            let used = |s: &Stored| s.buffer.len() as u64 * u64::from(USED) / u64::from(EXPERTS);
            match kind {
                0 => l.qkv.iter().map(|s| s.buffer.len() as u64).sum(),
                2 => (l.output.buffer.len() + l.router.bytes()) as u64,
                3 => used(&l.experts[0]) + used(&l.experts[1]),
                4 => used(&l.experts[2]),
                _ => 0,
            }
        };
        match kind {
            5 => self.head.buffer.len() as u64,
            7 => u64::from(COLUMNS / 256 * 144),
            _ => self.layers.iter().map(of_layer).sum(),
        }
    }

    /// Bytes of weights that a step reads.
    pub fn step_bytes(&self) -> u64 {
        (0..STAGES.len()).map(|kind| self.stage_bytes(kind)).sum()
    }

    /// Bytes of cache that a step at `depth` reads.
    pub fn cache_bytes(&self, depth: u32) -> u64 {
        let token = u64::from(self.format.page_bytes(KV_HEADS, HEAD_DIM) / kv::PAGE_TOKENS);
        2 * u64::from(depth) * token * self.layers.len() as u64
    }
}
