//! The launches of a layer and of a step's end, as data (host).
//!
//! Everything works in place on one residual stream: a launch that writes it has waited for all that read it before, and
//! its own blocks read only the rows that they write.

use super::advance::advance;
use super::attention::{AttentionBuffers, AttentionPlan, attention};
use super::choices::Choices;
use super::down::down_residual;
use super::gateup::{ExpertShape, GateUp, topk_gateup};
use super::head::{Best, HeadShape, head_argmax};
use super::norm_qkv::{QkvShape, norm_qkv};
use super::o_proj::{Input, o_proj_residual};
use super::residual::{Residual, enter};
use super::router::{Router, Routing};
use super::rows::{Matrix, TileKind};
use super::state::StepState;
use crate::shape::ShapeError;
use cuda_std::launch::PreparedLaunch;
use cuda_std::{DevicePtr, F32x2};

/// A mixture-of-experts layer's weights in device memory.
#[derive(Clone, Copy, Debug)]
pub struct LayerWeights {
    /// Gains of the norm before attention.
    pub attention_norm: DevicePtr<f32>,
    /// Query, key and value matrices.
    pub qkv: [Matrix; 3],
    /// Their biases, q | k | v, or null.
    pub qkv_bias: DevicePtr<f32>,
    /// Norm weights of a query head, or null.
    pub q_norm: DevicePtr<f32>,
    /// Norm weights of a key head, or null.
    pub k_norm: DevicePtr<f32>,
    /// The rotation table of a head; layers may share it.
    pub frequencies: DevicePtr<F32x2>,
    /// The output projection.
    pub output: Matrix,
    /// Gains of the norm before the experts.
    pub expert_norm: DevicePtr<f32>,
    /// The router, f32, a row for each expert.
    pub router: DevicePtr<f32>,
    /// Gate of expert 0, its groups those of one expert; the others behind it.
    pub gate: Matrix,
    /// Up, likewise.
    pub up: Matrix,
    /// Down, likewise.
    pub down: Matrix,
    /// Gains of the norm behind the layer: the next one's before attention, or the last norm's.
    pub next_norm: DevicePtr<f32>,
}

/// A layer's part of the KV cache.
#[derive(Clone, Copy, Debug)]
pub struct LayerCache {
    /// The pool of keys.
    pub keys: DevicePtr<u8>,
    /// The pool of values.
    pub values: DevicePtr<u8>,
}

/// Memory that a step works in, the same for all layers.
#[derive(Clone, Copy, Debug)]
pub struct StepBuffers {
    /// The residual stream, and what goes with it: `columns` floats of `x` and of `gained`, a sixteenth of `squares`.
    pub stream: Residual,
    /// q | k | v.
    pub qkv: DevicePtr<f32>,
    /// The attention output of all heads.
    pub attention: DevicePtr<f32>,
    /// [`AttentionPlan::workspace_floats`] floats.
    pub partial: DevicePtr<f32>,
    /// A zeroed counter for each query head.
    pub counters: DevicePtr<u32>,
    /// The router's sums, [`Routing::words`] of them.
    pub router_sums: DevicePtr<u64>,
    /// The chosen experts, [`MAX_USED`](super::choices::MAX_USED) words.
    pub choices: DevicePtr<u64>,
    /// The chosen experts' activations, `[rank][ff]`.
    pub h: DevicePtr<f32>,
    /// The page table.
    pub table: DevicePtr<u32>,
    /// The step state.
    pub state: DevicePtr<StepState>,
}

/// Shapes of a layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerShape {
    /// How attention is launched.
    pub attention: AttentionPlan,
    /// Where the launches of many blocks that are not attention's are to lie evenly. That gives these the same time
    /// everywhere, but leaves less room: it pays where attention is a few blocks.
    pub even: Option<Multiprocessors>,
    /// Attention is launched in so few blocks that most multiprocessors are the next launch's.
    pub shallow: bool,
    /// The experts; `columns` is the length of the residual stream and `eps` that of its norms.
    pub experts: ExpertShape,
}

/// The multiprocessors of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// How many there are.
    pub count: u32,
    /// Bytes of shared memory of each; 0: not known.
    pub shared_bytes: u32,
}

impl Multiprocessors {
    /// Bytes of shared memory that the driver keeps for itself in each block.
    const RESERVED: u32 = 1024;

    /// `launch` with so much shared memory that a multiprocessor holds its even share of the blocks and no more. Those of the
    /// launch before leave one by one, and the first ones that they leave would otherwise take as many of the next ones as
    /// fit: on an H200 62 multiprocessors four of the 320 blocks of q, k and v, and 68 one.
    #[must_use]
    pub fn evenly(self, launch: PreparedLaunch) -> PreparedLaunch {
        let config = *launch.config();
        let share = config.grid.iter().product::<u32>().div_ceil(self.count.max(1));
        let one_more = (self.shared_bytes / (share + 1)).saturating_sub(Self::RESERVED);
        let bytes = config.shared_bytes.max((one_more + 1).next_multiple_of(128));
        if share * (bytes + Self::RESERVED) > self.shared_bytes {
            return launch;
        }
        launch.with_config(config.shared(bytes))
    }
}

impl Matrix {
    /// The bytes of one expert's matrix of `columns` columns, or of a matrix that is no expert's.
    #[must_use]
    pub fn bytes(&self, columns: u32) -> u64 {
        u64::from(self.groups) * u64::from(columns / 256) * TileKind::of(self.kind).tile_bytes() as u64
    }
}

/// The five launches of a layer.
///
/// # Errors
/// The first shape that a kernel does not take.
pub fn layer(
    shape: &LayerShape,
    w: &LayerWeights,
    cache: &LayerCache,
    b: &StepBuffers,
) -> Result<[PreparedLaunch; 5], ShapeError> {
    let ExpertShape {
        columns, eps, experts, ..
    } = shape.experts;
    let qkv = QkvShape {
        matrices: w.qkv,
        columns,
        eps,
    };
    let gateup = GateUp { gate: w.gate, up: w.up };
    let routing = Routing {
        sums: b.router_sums,
        choices: Choices::new(b.choices),
        experts,
        reserved: 0,
    };
    let router = Router {
        weights: w.router,
        routing,
    };
    let out = shape.attention.out_floats();
    let evenly = |launch| match shape.even {
        Some(multiprocessors) => multiprocessors.evenly(launch),
        None => launch,
    };
    Ok([
        evenly(norm_qkv(b.stream, w.qkv_bias, b.qkv, routing, qkv)?),
        attention(&shape.attention, attention_buffers(w, cache, b)),
        o_proj_residual(attended(shape, b), b.stream, w.expert_norm, w.output, router, out)?,
        evenly(topk_gateup(b.stream, b.h, routing, gateup, shape.experts)?),
        down_residual(b.h, routing.choices, b.stream, w.next_norm, w.down, shape.experts)?,
    ])
}

/// The launch between the embedding and the first layer: `norm` are the gains of the first norm.
///
/// # Errors
/// Columns that the kernel does not take.
pub fn beginning(b: &StepBuffers, norm: DevicePtr<f32>, columns: u32) -> Result<PreparedLaunch, ShapeError> {
    enter(b.stream, norm, columns)
}

/// Where attention leaves its output.
fn attended(shape: &LayerShape, b: &StepBuffers) -> Input {
    match shape.attention.parts_in(b.partial) {
        Some(parts) => Input::Parts(parts, shape.attention.parts()),
        None => Input::Whole {
            a: b.attention,
            shallow: shape.shallow,
        },
    }
}

fn attention_buffers(w: &LayerWeights, cache: &LayerCache, b: &StepBuffers) -> AttentionBuffers {
    AttentionBuffers {
        qkv: b.qkv,
        q_norm: w.q_norm,
        k_norm: w.k_norm,
        frequencies: w.frequencies,
        state: b.state,
        table: b.table,
        keys: cache.keys,
        values: cache.values,
        partial: b.partial,
        counters: b.counters,
        out: b.attention,
    }
}

/// The end of a greedy step: head, logits, and the next token. The stream has met the last norm's gains.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// The vocabulary's matrix.
    pub matrix: Matrix,
    /// Its shape.
    pub shape: HeadShape,
    /// The logits.
    pub logits: DevicePtr<f32>,
    /// A candidate for each block of the head: at least `blocks`.
    pub best: DevicePtr<Best>,
    /// Blocks of the head at most; four a multiprocessor is a good number.
    pub blocks: u32,
    /// Where tokens go: see [`ring_entry`](super::state::ring_entry).
    pub ring: DevicePtr<u64>,
    /// Entries of the ring, a power of two.
    pub ring_length: u32,
}

/// The launches that end a greedy step.
///
/// # Errors
/// The first shape that a kernel does not take.
pub fn ending(e: &Ending, b: &StepBuffers) -> Result<[PreparedLaunch; 2], ShapeError> {
    let head = head_argmax(b.stream, e.logits, e.best, e.matrix, e.shape, e.blocks)?;
    let candidates = head.config().grid[0];
    Ok([head, advance(e.best, candidates, b.state, e.ring, e.ring_length)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::attention::AttentionShape;
    use crate::decode::kv::KvFormat;
    use crate::decode::rope::Pairing;
    use bytemuck::Zeroable;

    /// Shared memory that a block gets on the consumer GPUs of every generation since Ada: 99 KiB.
    const CONSUMER_SHARED: u32 = 99 * 1024;

    /// The launches of a layer of Qwen3-30B-A3B's shapes, with all matrices of type `kind`, and of the step's end.
    fn launches(kind: TileKind, format: KvFormat) -> Vec<PreparedLaunch> {
        let nowhere = DevicePtr::null;
        let matrix = |rows| Matrix::new(DevicePtr::null(), rows, kind);
        let attention = AttentionShape {
            heads: 32,
            kv_heads: 4,
            rotated: 128,
            pairing: Pairing::Halves as u32,
            window: 0,
            page_bytes: format.page_bytes(4, 128),
            least_chunks: 4,
            eps: 1e-6,
            scale: 0.088,
            mscale: 1.0,
            softcap: 0.0,
        };
        let shape = LayerShape {
            even: None,
            shallow: false,
            attention: AttentionPlan::new(attention, format, 128, 170).unwrap(),
            experts: ExpertShape {
                experts: 128,
                used: 8,
                columns: 2048,
                ff: 768,
                eps: 1e-6,
                reserved: 0,
            },
        };
        let weights = LayerWeights {
            attention_norm: nowhere(),
            qkv: [matrix(4096), matrix(512), matrix(512)],
            qkv_bias: nowhere(),
            q_norm: nowhere(),
            k_norm: nowhere(),
            frequencies: DevicePtr::null(),
            output: matrix(2048),
            expert_norm: nowhere(),
            router: nowhere(),
            gate: matrix(768),
            up: matrix(768),
            down: matrix(2048),
            next_norm: nowhere(),
        };
        let b = StepBuffers {
            stream: Residual::zeroed(),
            qkv: nowhere(),
            attention: nowhere(),
            partial: nowhere(),
            counters: DevicePtr::null(),
            router_sums: DevicePtr::null(),
            choices: DevicePtr::null(),
            h: nowhere(),
            table: DevicePtr::null(),
            state: DevicePtr::null(),
        };
        let cache = LayerCache {
            keys: DevicePtr::null(),
            values: DevicePtr::null(),
        };
        let mut all = layer(&shape, &weights, &cache, &b).unwrap().to_vec();
        let end = Ending {
            matrix: matrix(151_936),
            shape: HeadShape {
                rows: 151_936,
                columns: 2048,
                eps: 1e-6,
                softcap: 0.0,
            },
            logits: nowhere(),
            best: DevicePtr::null(),
            blocks: 4 * 170,
            ring: DevicePtr::null(),
            ring_length: 64,
        };
        all.extend(ending(&end, &b).unwrap());
        all
    }

    #[test]
    fn blocks_that_lie_evenly_leave_no_room_for_one_more() {
        let matrix = |rows| Matrix::new(DevicePtr::null(), rows, TileKind::Q4K);
        let shape = QkvShape {
            matrices: [matrix(4096), matrix(512), matrix(512)],
            columns: 2048,
            eps: 1e-6,
        };
        let qkv = || {
            norm_qkv(
                Residual::zeroed(),
                DevicePtr::null(),
                DevicePtr::null(),
                Routing::NONE,
                shape,
            )
            .unwrap()
        };
        let needed = qkv().config().shared_bytes;
        for (count, shared_bytes, share) in [(132, 228 << 10, 3), (170, 100 << 10, 2), (48, 228 << 10, 7)] {
            let multiprocessors = Multiprocessors { count, shared_bytes };
            let bytes = multiprocessors.evenly(qkv()).config().shared_bytes + Multiprocessors::RESERVED;
            assert!(bytes >= needed + Multiprocessors::RESERVED && share * bytes <= shared_bytes);
            assert!((share + 1) * bytes > shared_bytes, "{count}: {bytes}");
        }
        // Where even the share is too much, and where nothing is known of the shared memory, all is as it was.
        for (count, shared_bytes) in [(20, 100 << 10), (132, 0)] {
            let launch = Multiprocessors { count, shared_bytes }.evenly(qkv());
            assert_eq!(launch.config().shared_bytes, needed);
        }
    }

    #[test]
    fn every_launch_fits_the_shared_memory_of_a_consumer_gpu() {
        for kind in [TileKind::Q4K, TileKind::Q6K] {
            for format in KvFormat::ALL {
                for launch in launches(kind, format) {
                    let bytes = launch.config().shared_bytes;
                    assert!(bytes <= CONSUMER_SHARED, "{launch:?} takes {bytes} bytes");
                }
            }
        }
    }
}
