//! The launches of a layer for a chunk of a prompt, as data (host): the kernels of [`prefill`](crate::prefill) over weights of
//! any [`Kind`](super::Kind) or [`Rare`] type, of layers with experts too.
//!
//! | launch | reads |
//! |---|---|
//! | norm, split | residual stream |
//! | Q, K, V, a launch for each type of weights | split activations |
//! | head norms, rotation, cache; attention | q, k, v; cache |
//! | split, output projection | attention output |
//! | norm, split | residual stream |
//! | gate and up | split activations |
//! | activation and split, down | gate, up |
//! | of experts: router, choice and grouping | residual stream |
//! | of experts: gate, up, down, each for an expert's own tokens; weighted sum | as above |
//!
//! Matrices of [`Rare`] types have launches of their own.
//!
//! A projection adds to the residual stream, or leaves its result for the norm behind it. Everything works in place; a
//! launch ends before the next one reads.

use super::Matrix;
use super::plan::{After, AttentionWeights, Named, NetworkWeights};
use crate::decode::attention::AttentionShape;
use crate::decode::kv::KvFormat;
use crate::decode::plan::LayerCache;
use crate::general::gated::Activation;
use crate::prefill::append::{Chunk, HeadBuffers, append};
use crate::prefill::attention::attention;
use crate::prefill::combine::combine;
use crate::prefill::expert_matrix::{ExpertProduct, expert_product};
use crate::prefill::gated_split::gated_split;
use crate::prefill::matrix::{ProductShape, product};
use crate::prefill::post::post;
use crate::prefill::rare::{Places, Rare, RareProduct, rare_product};
use crate::prefill::record::Record;
use crate::prefill::route::{Grouping, choose, group};
use crate::prefill::router::{RouterBuffers, router};
use crate::prefill::split::split;
use crate::shape::ShapeError;
use bytemuck::Zeroable;
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
    /// Inner values of a network.
    pub width: usize,
    /// Experts; 0 where there are none.
    pub experts: usize,
    /// Experts that a token uses.
    pub used: usize,
    /// Inner values of an expert.
    pub expert_width: usize,
}

impl PromptSizes {
    /// The buffers' byte offsets, and the bytes of all.
    fn places(&self) -> ([usize; 15], usize) {
        let longest = self.columns.max(self.attended).max(self.width);
        let records = |columns: usize| Record::whole_row_bytes(columns as u32);
        let sizes = [
            4,
            4 * self.columns,
            records(longest).max(self.used * records(self.expert_width)),
            8 * self.used.max(1),
            4 * self.qkv,
            4 * self.attended,
            4 * self.attended,
            8 * self.width.max(self.used * self.expert_width),
            4 * self.columns * self.used.max(1),
            4 * self.experts,
            4 * self.used,
            4 * self.used,
            4 * self.used,
            4 * self.used,
        ];
        let (mut places, mut end) = ([0; 15], 0);
        for (place, bytes) in places.iter_mut().zip(sizes) {
            *place = end;
            end = (end + self.tokens * bytes).next_multiple_of(256);
        }
        places[14] = end;
        (places, (end + 4 * (self.experts + 1)).next_multiple_of(256))
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
        PromptBuffers {
            tokens: DevicePtr::from_raw(at(0)),
            x: DevicePtr::from_raw(at(1)),
            records: DevicePtr::from_raw(at(2)),
            factors: DevicePtr::from_raw(at(3)),
            qkv: DevicePtr::from_raw(at(4)),
            queries: DevicePtr::from_raw(at(5)),
            attended: DevicePtr::from_raw(at(6)),
            both: DevicePtr::from_raw(at(7)),
            apart: DevicePtr::from_raw(at(8)),
            router_logits: DevicePtr::from_raw(at(9)),
            weights: DevicePtr::from_raw(at(10)),
            grouping: Grouping {
                experts: DevicePtr::from_raw(at(11)),
                tokens: DevicePtr::from_raw(at(12)),
                places: DevicePtr::from_raw(at(13)),
                starts: DevicePtr::from_raw(at(14)),
            },
        }
    }
}

/// Memory that a chunk works in, the same for all layers.
#[derive(Clone, Copy, Debug)]
pub struct PromptBuffers {
    /// The token ids.
    pub tokens: DevicePtr<u32>,
    /// The residual stream, `[token][column]`.
    pub x: DevicePtr<f32>,
    /// Records of what the next product reads.
    pub records: DevicePtr<u8>,
    /// Their factors.
    pub factors: DevicePtr<F32x2>,
    /// `[token][q | k | v]`.
    pub qkv: DevicePtr<f32>,
    /// The queries as attention takes them.
    pub queries: DevicePtr<u16>,
    /// The attention output.
    pub attended: DevicePtr<f32>,
    /// `[token][gate | up]`, or of experts `[place][gate | up]`.
    pub both: DevicePtr<f32>,
    /// A result that a norm stands behind, or the experts' results, `[place][column]`.
    pub apart: DevicePtr<f32>,
    /// The router's logits.
    pub router_logits: DevicePtr<f32>,
    /// The chosen experts' weights, `[token][rank]`.
    pub weights: DevicePtr<f32>,
    /// The chosen experts, and who has which place.
    pub grouping: Grouping,
}

/// Weights and shape of a mixture of experts: softmax over the chosen ones.
#[derive(Clone, Copy, Debug)]
pub struct ExpertWeights {
    /// The router, f32, a row for each expert.
    pub router: DevicePtr<f32>,
    /// Gate of expert 0, its groups those of one expert; the others behind it.
    pub gate: Matrix,
    /// Up, likewise.
    pub up: Matrix,
    /// Down, likewise.
    pub down: Matrix,
    /// What bends the gate.
    pub activation: Activation,
    /// Experts.
    pub experts: u32,
    /// Experts that a token uses.
    pub used: u32,
    /// Inner values of an expert.
    pub width: u32,
}

/// What all launches of a chunk have in common.
#[derive(Clone, Copy, Debug)]
pub struct PromptChunk<'a> {
    /// Columns of the residual stream.
    pub columns: u32,
    /// The norms' epsilon.
    pub eps: f32,
    /// The chunk's memory.
    pub buffers: &'a PromptBuffers,
    /// The page table.
    pub table: DevicePtr<u32>,
    /// Which tokens.
    pub chunk: Chunk,
}

impl PromptChunk<'_> {
    /// The launches of an attention part behind the norm of gains `norm`: heads of `head_dim` dims, a cache of `format`.
    ///
    /// # Errors
    /// The first shape that a kernel does not take.
    pub fn attention(
        &self,
        (shape, format, head_dim): (AttentionShape, KvFormat, u32),
        norm: DevicePtr<f32>,
        w: &AttentionWeights,
        cache: &LayerCache,
        after: After,
    ) -> Result<Vec<Named>, ShapeError> {
        let b = self.buffers;
        let heads = HeadBuffers {
            qkv: b.qkv,
            q_norm: w.q_norm,
            k_norm: w.k_norm,
            frequencies: w.frequencies,
            table: self.table,
            keys: cache.keys,
            values: cache.values,
            queries: b.queries,
            out: b.attended,
        };
        let kind = (format, head_dim);
        let mut launches = vec![("split_x", self.split(b.x, norm, self.columns)?)];
        self.beside(&mut launches, "norm_qkv", &w.qkv, b.qkv)?;
        launches.push(("append", append(&heads, shape, kind, self.chunk)?));
        launches.push(("attention", attention(&heads, shape, kind, self.chunk)?));
        let width = shape.heads * head_dim;
        launches.push(("split_attended", self.split(b.attended, DevicePtr::null(), width)?));
        self.onto_stream(&mut launches, "o_proj", (w.output, width), after)?;
        Ok(launches)
    }

    /// The launches of a gated network of `width` inner values behind the norm of gains `norm`.
    ///
    /// # Errors
    /// The first shape that a kernel does not take.
    pub fn network(
        &self,
        norm: DevicePtr<f32>,
        w: &NetworkWeights,
        width: u32,
        after: After,
    ) -> Result<Vec<Named>, ShapeError> {
        let b = self.buffers;
        let mut launches = vec![("split_x", self.split(b.x, norm, self.columns)?)];
        self.beside(&mut launches, "gate_up", &[w.gate, w.up], b.both)?;
        let rows = (self.chunk.count, width);
        let bent = gated_split(b.both, b.records, b.factors, rows, w.activation)?;
        launches.push(("gated", bent));
        self.onto_stream(&mut launches, "down", (w.down, width), after)?;
        Ok(launches)
    }

    /// The launches of a mixture of experts behind the norm of gains `norm`.
    ///
    /// # Errors
    /// The first shape that a kernel does not take.
    pub fn experts(&self, norm: DevicePtr<f32>, w: &ExpertWeights) -> Result<Vec<Named>, ShapeError> {
        let (b, tokens) = (self.buffers, self.chunk.count);
        let g = &b.grouping;
        let route = RouterBuffers {
            weights: w.router,
            x: b.x,
            gain: norm,
            factors: b.factors,
            out: b.router_logits,
        };
        let choice = choose(b.router_logits, g.experts, b.weights, w.experts, w.used, tokens)?;
        let none = DevicePtr::null();
        let product = |matrix, columns, stride, first| ExpertProduct {
            matrix,
            columns,
            experts: w.experts,
            stride,
            first,
        };
        let gate = product(w.gate, self.columns, 2 * w.width, 0);
        let up = product(w.up, self.columns, 2 * w.width, w.width);
        let down = product(w.down, w.width, self.columns, 0);
        let through = (g.tokens, g.starts);
        let rows = (tokens * w.used, w.width);
        let sum = combine(b.apart, g.places, b.weights, b.x, w.used, tokens, self.columns)?;
        Ok(vec![
            ("split_x", self.split(b.x, norm, self.columns)?),
            ("router", router(&route, w.experts, tokens, self.columns)?),
            ("choose", choice),
            ("group", group(g, w.experts, w.used, tokens)?),
            ("gate_up", self.stack(gate, through, b.both)?),
            ("gate_up", self.stack(up, through, b.both)?),
            ("gated", gated_split(b.both, b.records, b.factors, rows, w.activation)?),
            ("down", self.stack(down, (none, g.starts), b.apart)?),
            ("combine", sum),
        ])
    }

    /// A stack of matrices times the records, by whichever kernel takes its type.
    fn stack(&self, shape: ExpertProduct, places: Places, out: DevicePtr<f32>) -> Result<PreparedLaunch, ShapeError> {
        let x = (self.buffers.records, self.buffers.factors);
        if Rare::numbered(shape.matrix.kind).is_none() {
            return expert_product(x, places.0, places.1, out, shape);
        }
        let shape = RareProduct {
            matrix: shape.matrix,
            columns: shape.columns,
            experts: shape.experts,
            tokens: 0,
            stride: shape.stride,
            first: shape.first,
            add: 0,
        };
        rare_product(x, places, out, shape)
    }

    /// The launches of up to three matrices of one type times the records of all tokens: one, or one for each matrix of a rare
    /// type.
    fn alike(&self, shape: ProductShape, out: DevicePtr<f32>) -> Result<Vec<PreparedLaunch>, ShapeError> {
        let x = (self.buffers.records, self.buffers.factors);
        if Rare::numbered(shape.matrices[0].kind).is_none() {
            return Ok(vec![product(x.0, x.1, out, shape)?]);
        }
        let mut first = shape.first;
        let matrices = shape.matrices.iter().filter(|matrix| matrix.groups > 0);
        matrices
            .map(|matrix| {
                let one = RareProduct {
                    matrix: *matrix,
                    columns: shape.columns,
                    experts: 1,
                    tokens: shape.tokens,
                    stride: shape.stride,
                    first,
                    add: shape.add,
                };
                first += 16 * matrix.groups;
                rare_product(x, (DevicePtr::null(), DevicePtr::null()), out, one)
            })
            .collect()
    }

    fn split(&self, x: DevicePtr<f32>, gain: DevicePtr<f32>, columns: u32) -> Result<PreparedLaunch, ShapeError> {
        let b = self.buffers;
        split(x, gain, b.records, b.factors, self.chunk.count, columns, self.eps)
    }

    /// Up to three matrices times the stream's records, their results side by side in rows of `out`: neighbours of one type in
    /// one launch.
    fn beside(
        &self,
        launches: &mut Vec<Named>,
        name: &'static str,
        matrices: &[Matrix],
        out: DevicePtr<f32>,
    ) -> Result<(), ShapeError> {
        let stride = matrices.iter().map(|matrix| 16 * matrix.groups).sum();
        let mut first = 0;
        for alike in matrices.chunk_by(|a, b| a.kind == b.kind) {
            let shape = ProductShape {
                first,
                ..self.product(alike, self.columns, stride)
            };
            let some = self.alike(shape, out)?;
            launches.extend(some.into_iter().map(|launch| (name, launch)));
            first += alike.iter().map(|matrix| 16 * matrix.groups).sum::<u32>();
        }
        Ok(())
    }

    /// Up to three matrices of `columns` columns times all tokens, over rows of `stride` floats.
    fn product(&self, alike: &[Matrix], columns: u32, stride: u32) -> ProductShape {
        let mut matrices = [Matrix::zeroed(); 3];
        matrices.iter_mut().zip(alike).for_each(|(to, matrix)| *to = *matrix);
        ProductShape {
            matrices,
            columns,
            tokens: self.chunk.count,
            stride,
            first: 0,
            add: 0,
            reserved: 0,
        }
    }

    /// A projection of the records onto the stream, by way of a norm where there is one behind it.
    fn onto_stream(
        &self,
        launches: &mut Vec<Named>,
        name: &'static str,
        (matrix, columns): (Matrix, u32),
        after: After,
    ) -> Result<(), ShapeError> {
        let (b, apart) = (self.buffers, !after.post.is_null());
        let shape = ProductShape {
            add: u32::from(!apart),
            ..self.product(&[matrix], columns, self.columns)
        };
        let to = if apart { b.apart } else { b.x };
        let some = self.alike(shape, to)?;
        launches.extend(some.into_iter().map(|launch| (name, launch)));
        if apart {
            let rows = (self.chunk.count, self.columns);
            launches.push(("post_norm", post(b.x, b.apart, after.post, rows, self.eps)?));
        }
        Ok(())
    }
}
