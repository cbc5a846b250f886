//! A general model as prompts take it, if they do: decoding goes one operation a launch, a prompt many tokens at a time.

use cuda_std::DevicePtr;
use sparkinfer_device::dense::plan::{After, AttentionWeights, NetworkWeights};
use sparkinfer_device::dense::prompt::ExpertWeights;
use sparkinfer_device::dense::{Kind, Matrix};
use sparkinfer_device::embed::Table;
use sparkinfer_device::general::gated;
use sparkinfer_device::prefill::rare::Rare;
use sparkinfer_gguf::TensorType;

use super::super::decode::attention_shape;
use super::super::matrix::Form;
use super::super::prompt::tiled::{ChunkPart, ChunkWork, TiledModel};
use super::plan::GeneralParts;
use super::{Network, Placed, PlacedAttention, PlacedMoe, PlacedPart, Product};
use crate::model::Activation;

impl GeneralParts<'_> {
    /// What prompts are made from; none where some matrix does not lie in tiles of a kind that they take, or an operation
    /// is none of theirs.
    pub fn tiled(&self) -> Option<TiledModel> {
        let (spec, embedding) = (self.spec, &self.model.embedding);
        if self.model.exact || embedding.scale.is_some() {
            return None;
        }
        let layers = self.model.layers.iter().enumerate();
        let parts = layers.flat_map(|(layer, parts)| parts.iter().map(move |part| self.chunk_part(layer, part)));
        Some(TiledModel {
            parts: parts.collect::<Option<_>>()?,
            embedding: (
                embedding.linear.matrix.ty,
                self.at(embedding.offset),
                Table {
                    rows: spec.vocab_size as u32,
                    columns: spec.embedding_length as u32,
                    scale: spec.embedding.scale,
                },
            ),
            eps: spec.norm_eps,
            table: self.buffers.step.table,
        })
    }

    fn chunk_part(&self, layer: usize, part: &PlacedPart) -> Option<ChunkPart> {
        Some(ChunkPart {
            layer,
            norm: self.at(part.norm),
            work: match &part.operation {
                Placed::Attention(attention) => self.chunk_attention(attention)?,
                Placed::Dense(network) => ChunkWork::Network {
                    weights: Box::new(self.chunk_network(network)?),
                    width: network.width as u32,
                },
                Placed::Moe(moe) if part.post_norm.is_none() => ChunkWork::Experts(Box::new(self.chunk_experts(moe)?)),
                Placed::Moe(_) => return None,
            },
            after: After {
                post: self.optional(part.post_norm),
                next: DevicePtr::null(),
                added: false,
            },
        })
    }

    fn chunk_attention(&self, part: &PlacedAttention) -> Option<ChunkWork> {
        let (b, spec) = (self.buffers, &part.spec);
        let [q_norm, k_norm] = part.head_norms.map(|norm| self.optional(norm));
        Some(ChunkWork::Attention {
            kind: (
                attention_shape(self.spec, spec, b.page_bytes),
                b.format,
                spec.head_dim as u32,
            ),
            weights: Box::new(AttentionWeights {
                qkv: [
                    self.tiled_matrix(&part.q)?,
                    self.tiled_matrix(&part.k)?,
                    self.tiled_matrix(&part.v)?,
                ],
                q_norm,
                k_norm,
                frequencies: self.at(part.frequencies),
                output: self.tiled_matrix(&part.output)?,
            }),
            cache: b.cache(part.cache),
        })
    }

    fn chunk_network(&self, network: &Network) -> Option<NetworkWeights> {
        Some(NetworkWeights {
            gate: self.tiled_matrix(&network.gate)?,
            up: self.tiled_matrix(&network.up)?,
            down: self.tiled_matrix(&network.down)?,
            activation: match network.activation {
                Activation::Silu => gated::Activation::Silu,
                Activation::GeluTanh => gated::Activation::GeluTanh,
            },
        })
    }

    /// Experts that are chosen by a plain f32 router, and weighted by a softmax over them.
    fn chunk_experts(&self, moe: &PlacedMoe) -> Option<ExpertWeights> {
        let (spec, router) = (&moe.spec, &moe.router);
        let plain = router.linear.matrix.ty == TensorType::F32 && router.scale.is_none() && router.bias.is_none();
        if !plain || !spec.renormalise || spec.weight_scale != 1.0 || moe.shared.is_some() {
            return None;
        }
        let network = self.chunk_network(&moe.experts)?;
        Some(ExpertWeights {
            router: self.at(router.offset),
            gate: network.gate,
            up: network.up,
            down: network.down,
            activation: network.activation,
            experts: spec.experts as u32,
            used: spec.used as u32,
            width: spec.width as u32,
        })
    }

    /// A matrix, or a stack of them, that some kernel takes; a stack has a scale for each or none.
    fn tiled_matrix(&self, product: &Product) -> Option<Matrix> {
        let matrix = &product.linear.matrix;
        let kind = Kind::of(matrix.ty).map(|kind| kind as u32);
        let rare = Rare::of(matrix.ty).map(|rare| rare as u32);
        let scales = product.linear.scale.as_ref().map_or(0, |scale| scale.len);
        let scaled = scales == 0 || rare.is_some() && scales == matrix.experts;
        let form = Form::tiled(matrix).unwrap_or(Form::File);
        if product.form != form || !matrix.rows.is_multiple_of(16) || !scaled {
            return None;
        }
        Some(Matrix {
            tiles: self.at(product.offset),
            bias: self.optional(product.bias),
            scale: self.optional(product.scale),
            groups: (matrix.rows / 16) as u32,
            kind: kind.or(rare)?,
        })
    }
}
