//! The launches of a layer for a chunk of a prompt, as data (host).
//!
//! Everything works in place on one residual stream, `[token][column]`; a launch ends before the next one reads.

use super::append::{Chunk, HeadBuffers, append};
use super::attention::attention;
use super::combine::combine;
use super::down::down;
use super::gateup::{Pair, gateup};
use super::gemm::{GemmShape, gemm};
use super::record::Record;
use super::route::{Grouping, choose, group};
use super::router::{RouterBuffers, router};
use super::split::split;
use crate::decode::attention::AttentionShape;
use crate::decode::gateup::ExpertShape;
use crate::decode::kv::KvFormat;
use crate::decode::plan::{LayerCache, LayerWeights};
use crate::decode::rows::{Matrix, TileKind};
use crate::shape::ShapeError;
use cuda_std::launch::PreparedLaunch;
use cuda_std::{DevicePtr, F32x2};

/// Sizes that the memory of a chunk follows from: of each, that of the layer that has most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptSizes {
    /// Tokens of a chunk.
    pub tokens: usize,
    /// Columns of the residual stream.
    pub columns: usize,
    /// Floats of q, k and v of a token.
    pub qkv: usize,
    /// Floats of the attention output of a token.
    pub attended: usize,
    /// Experts.
    pub experts: usize,
    /// Experts that a token uses.
    pub used: usize,
    /// Columns of an expert's down.
    pub ff: usize,
}

impl PromptSizes {
    /// The buffers' byte offsets, and the bytes of all.
    fn places(&self) -> ([usize; 16], usize) {
        let pairs = self.tokens * self.used;
        let records = |rows: usize, columns: usize| rows * Record::row_bytes(columns as u32);
        let sizes = [
            4 * self.tokens,
            4 * self.tokens * self.columns,
            records(self.tokens, self.columns.max(self.attended)),
            8 * self.tokens,
            4 * self.tokens * self.qkv,
            4 * self.tokens * self.attended,
            4 * self.tokens * self.attended,
            4 * self.tokens * self.experts,
            4 * pairs,
            4 * pairs,
            4 * pairs,
            4 * pairs,
            4 * (self.experts + 1),
            4 * pairs * self.ff,
            records(pairs, self.ff) + 8 * pairs,
            4 * pairs * self.columns,
        ];
        let mut end = 0;
        let places = sizes.map(|bytes| {
            let place = end;
            end = (place + bytes).next_multiple_of(256);
            place
        });
        (places, end)
    }

    /// Bytes of memory that a chunk works in.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.places().1
    }

    /// The buffers in `bytes` bytes of memory at `address`, a multiple of 256.
    #[must_use]
    pub fn buffers(&self, address: u64) -> PromptBuffers {
        let (places, _) = self.places();
        let at = |i: usize| address + places[i] as u64;
        let records = self.tokens * self.used * Record::row_bytes(self.ff as u32);
        PromptBuffers {
            tokens: DevicePtr::from_raw(at(0)),
            x: DevicePtr::from_raw(at(1)),
            records: DevicePtr::from_raw(at(2)),
            factors: DevicePtr::from_raw(at(3)),
            qkv: DevicePtr::from_raw(at(4)),
            queries: DevicePtr::from_raw(at(5)),
            attended: DevicePtr::from_raw(at(6)),
            router_logits: DevicePtr::from_raw(at(7)),
            weights: DevicePtr::from_raw(at(9)),
            grouping: Grouping {
                experts: DevicePtr::from_raw(at(8)),
                tokens: DevicePtr::from_raw(at(10)),
                places: DevicePtr::from_raw(at(11)),
                starts: DevicePtr::from_raw(at(12)),
            },
            h: DevicePtr::from_raw(at(13)),
            h_records: DevicePtr::from_raw(at(14)),
            h_factors: DevicePtr::from_raw(at(14) + records as u64),
            y: DevicePtr::from_raw(at(15)),
        }
    }
}

/// Memory that a chunk works in, the same for all layers.
#[derive(Clone, Copy, Debug)]
pub struct PromptBuffers {
    /// The token ids.
    pub tokens: DevicePtr<u32>,
    /// The residual stream.
    pub x: DevicePtr<f32>,
    /// Its records, or those of the attention output.
    pub records: DevicePtr<u8>,
    /// Their factors.
    pub factors: DevicePtr<F32x2>,
    /// `[token][q | k | v]`.
    pub qkv: DevicePtr<f32>,
    /// The queries as attention takes them.
    pub queries: DevicePtr<u16>,
    /// The attention output.
    pub attended: DevicePtr<f32>,
    /// The router's logits.
    pub router_logits: DevicePtr<f32>,
    /// The chosen experts' weights, `[token][rank]`.
    pub weights: DevicePtr<f32>,
    /// The chosen experts, and who has which place.
    pub grouping: Grouping,
    /// The experts' activations, `[place][ff]`.
    pub h: DevicePtr<f32>,
    /// Their records.
    pub h_records: DevicePtr<u8>,
    /// Their factors.
    pub h_factors: DevicePtr<F32x2>,
    /// The experts' outputs, `[place][column]`.
    pub y: DevicePtr<f32>,
}

/// Shapes of a layer.
#[derive(Clone, Copy, Debug)]
pub struct PromptShape {
    /// Attention.
    pub attention: AttentionShape,
    /// How the cache stores keys and values.
    pub format: KvFormat,
    /// Dims of a head.
    pub head_dim: u32,
    /// The experts; `columns` is the length of the residual stream and `eps` that of its norms.
    pub experts: ExpertShape,
}

/// A launch, and what it is for.
#[derive(Clone, Debug)]
pub struct Named {
    /// What it computes; the same name in every layer.
    pub name: &'static str,
    /// Bytes of weights that it reads at least: of experts, those of one token.
    pub bytes: u64,
    /// The launch.
    pub launch: PreparedLaunch,
}

/// A launch that reads no weights to speak of.
fn small(name: &'static str, launch: PreparedLaunch) -> Named {
    Named { name, bytes: 0, launch }
}

/// A launch that reads matrices of `columns` columns.
fn large(name: &'static str, matrices: &[Matrix], columns: u32, times: u32, launch: PreparedLaunch) -> Named {
    let bytes = matrices.iter().map(|matrix| matrix.bytes(columns)).sum::<u64>() * u64::from(times);
    Named { name, bytes, launch }
}

/// The launches of a layer for a chunk whose pages are in the page table at `table`.
///
/// # Errors
/// The first shape that a kernel does not take.
pub fn layer(
    shape: &PromptShape,
    w: &LayerWeights,
    cache: &LayerCache,
    b: &PromptBuffers,
    table: DevicePtr<u32>,
    chunk: Chunk,
) -> Result<Vec<Named>, ShapeError> {
    let mut launches = attention_part(shape, w, cache, b, table, chunk)?;
    launches.extend(expert_part(shape, w, b, chunk)?);
    Ok(launches)
}

fn attention_part(
    shape: &PromptShape,
    w: &LayerWeights,
    cache: &LayerCache,
    b: &PromptBuffers,
    table: DevicePtr<u32>,
    chunk: Chunk,
) -> Result<Vec<Named>, ShapeError> {
    let ExpertShape { columns, eps, .. } = shape.experts;
    if !w.qkv_bias.is_null() {
        let rule = "a bias of q, k and v; it takes none".to_owned();
        return Err(ShapeError::new("prefill_gemm", rule));
    }
    let none = Matrix::new(DevicePtr::null(), 0, TileKind::Q4K);
    let product = |matrices, columns, add| GemmShape {
        matrices,
        columns,
        tokens: chunk.count,
        add,
        reserved: 0,
    };
    let heads = HeadBuffers {
        qkv: b.qkv,
        q_norm: w.q_norm,
        k_norm: w.k_norm,
        frequencies: w.frequencies,
        table,
        keys: cache.keys,
        values: cache.values,
        queries: b.queries,
        out: b.attended,
    };
    let kind = (shape.format, shape.head_dim);
    let width = shape.attention.heads * shape.head_dim;
    let output = product([w.output, none, none], width, 1);
    let no_gain = DevicePtr::null();
    let normed = split(b.x, w.attention_norm, b.records, b.factors, chunk.count, columns, eps)?;
    let qkv = gemm(b.records, b.factors, b.qkv, product(w.qkv, columns, 0))?;
    let plain = split(b.attended, no_gain, b.records, b.factors, chunk.count, width, eps)?;
    let project = gemm(b.records, b.factors, b.x, output)?;
    Ok(vec![
        small("split_x", normed),
        large("qkv", &w.qkv, columns, 1, qkv),
        small("append", append(&heads, shape.attention, kind, chunk)?),
        small("attention", attention(&heads, shape.attention, kind, chunk)?),
        small("split_attended", plain),
        large("o_proj", &[w.output], width, 1, project),
    ])
}

fn expert_part(
    shape: &PromptShape,
    w: &LayerWeights,
    b: &PromptBuffers,
    chunk: Chunk,
) -> Result<Vec<Named>, ShapeError> {
    let ExpertShape {
        experts,
        used,
        columns,
        ff,
        eps,
        ..
    } = shape.experts;
    let (tokens, g) = (chunk.count, &b.grouping);
    let route = RouterBuffers {
        weights: w.router,
        x: b.x,
        gain: w.expert_norm,
        factors: b.factors,
        out: b.router_logits,
    };
    let both = Pair { gate: w.gate, up: w.up };
    let normed = split(b.x, w.expert_norm, b.records, b.factors, tokens, columns, eps)?;
    let router = Named {
        name: "router",
        bytes: 4 * u64::from(experts) * u64::from(columns),
        launch: router(&route, experts, tokens, columns)?,
    };
    let choose = choose(b.router_logits, g.experts, b.weights, experts, used, tokens)?;
    let gate_up = gateup(b.records, b.factors, g.tokens, g.starts, b.h, both, shape.experts)?;
    let inner = split(b.h, DevicePtr::null(), b.h_records, b.h_factors, tokens * used, ff, eps)?;
    let down = down(b.h_records, b.h_factors, g.starts, b.y, w.down, shape.experts)?;
    Ok(vec![
        small("split_x", normed),
        router,
        small("choose", choose),
        small("group", group(g, experts, used, tokens)?),
        large("gate_up", &[w.gate, w.up], columns, used, gate_up),
        small("split_h", inner),
        large("down", &[w.down], ff, used, down),
        small(
            "combine",
            combine(b.y, g.places, b.weights, b.x, used, tokens, columns)?,
        ),
    ])
}
