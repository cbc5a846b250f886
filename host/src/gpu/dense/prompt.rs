//! A dense model as prompts take it.

use super::plan::DenseParts;
use super::{PlacedAttention, PlacedPart, Work};
use crate::gpu::decode::attention_shape;
use crate::gpu::prompt::tiled::{ChunkPart, ChunkWork, TiledModel};

impl DenseParts<'_> {
    /// What prompts are made from.
    pub fn tiled(&self) -> TiledModel {
        let parts = self.model.parts.iter().enumerate();
        TiledModel {
            parts: parts.map(|(index, part)| self.chunk_part(index, part)).collect(),
            embedding: (
                self.spec.embedding.table.matrix.ty,
                self.at(self.model.embedding),
                self.table(),
            ),
            eps: self.spec.norm_eps,
            table: self.buffers.step.table,
        }
    }

    fn chunk_part(&self, index: usize, part: &PlacedPart) -> ChunkPart {
        ChunkPart {
            layer: part.layer,
            norm: self.at(part.norm),
            work: match &part.work {
                Work::Attention(attention) => self.chunk_attention(attention),
                Work::Network(network) => ChunkWork::Network {
                    weights: Box::new(self.network_weights(network)),
                    width: network.width,
                },
            },
            after: self.after(index, part),
        }
    }

    fn chunk_attention(&self, attention: &PlacedAttention) -> ChunkWork {
        let (b, spec) = (self.buffers, &attention.spec);
        ChunkWork::Attention {
            kind: (
                attention_shape(self.spec, spec, b.page_bytes),
                b.format,
                spec.head_dim as u32,
            ),
            weights: Box::new(self.attention_weights(attention)),
            cache: b.cache(attention.cache),
        }
    }
}
