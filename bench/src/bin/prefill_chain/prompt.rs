//! The launches of a prompt through the random model.

use crate::model::{COLUMNS, EPS, EXPERTS, FF, HEAD_DIM, HEADS, KV_HEADS, Model, USED, VOCABULARY};
use anyhow::Result;
use sparkinfer::cuda::{Buffer, Gpu};
use sparkinfer_device::decode::attention::AttentionShape;
use sparkinfer_device::decode::gateup::ExpertShape;
use sparkinfer_device::decode::plan::LayerCache;
use sparkinfer_device::decode::{kv::KvFormat, rope::Pairing};
use sparkinfer_device::embed::{self, Table};
use sparkinfer_device::prefill::append::Chunk;
use sparkinfer_device::prefill::plan::{Named, PromptBuffers, PromptShape, PromptSizes, layer};

/// A model and the memory of a chunk.
pub struct Prompt<'a> {
    model: &'a Model,
    buffers: PromptBuffers,
    chunk: u32,
    _memory: Buffer<u8>,
}

impl<'a> Prompt<'a> {
    /// Memory for chunks of `chunk` tokens, with token ids in it.
    pub fn new(gpu: &Gpu, model: &'a Model, chunk: u32) -> Result<Self> {
        let sizes = PromptSizes {
            tokens: chunk as usize,
            columns: COLUMNS as usize,
            qkv: ((HEADS + 2 * KV_HEADS) * HEAD_DIM) as usize,
            attended: (HEADS * HEAD_DIM) as usize,
            experts: EXPERTS as usize,
            used: USED as usize,
            ff: FF as usize,
        };
        let mut memory = Buffer::<u8>::zeroed(gpu.stream(), sizes.bytes())?;
        let buffers = sizes.buffers(memory.ptr().as_raw());
        let ids: Vec<u8> = (0..chunk).flat_map(|i| (i * 7919 % VOCABULARY).to_ne_bytes()).collect();
        let at = buffers.tokens.as_raw() - memory.ptr().as_raw();
        memory.write(gpu.stream(), at as usize, &ids)?;
        Ok(Self {
            model,
            buffers,
            chunk,
            _memory: memory,
        })
    }

    /// The launches of a prompt of `tokens` tokens, chunk by chunk.
    pub fn launches(&self, tokens: u32) -> Result<Vec<Named>> {
        let mut all = Vec::new();
        let mut position = 0;
        while position < tokens {
            let count = self.chunk.min(tokens - position);
            all.extend(self.one_chunk(Chunk { count, position })?);
            position += count;
        }
        Ok(all)
    }

    fn one_chunk(&self, chunk: Chunk) -> Result<Vec<Named>> {
        let (model, b, shape) = (self.model, &self.buffers, shape());
        let table = Table {
            rows: VOCABULARY,
            columns: COLUMNS,
            scale: 1.0,
        };
        let config = embed::config(table, chunk.count as usize)?;
        let embedding = embed::embed_q4_k::prepare(config, model.embedding.ptr(), table, b.tokens, b.x);
        let mut all = vec![Named {
            name: "embed",
            bytes: 0,
            launch: embedding,
        }];
        let (ones, frequencies) = (model.ones.ptr(), model.frequencies.ptr());
        for part in &model.layers {
            let cache = LayerCache {
                keys: part.keys.ptr(),
                values: part.values.ptr(),
            };
            let weights = part.weights(ones, frequencies);
            all.extend(layer(&shape, &weights, &cache, b, model.table.ptr(), chunk)?);
        }
        Ok(all)
    }
}

fn shape() -> PromptShape {
    PromptShape {
        attention: AttentionShape {
            heads: HEADS,
            kv_heads: KV_HEADS,
            rotated: HEAD_DIM,
            pairing: Pairing::Halves as u32,
            window: 0,
            page_bytes: KvFormat::F16.page_bytes(KV_HEADS, HEAD_DIM),
            least_chunks: 1,
            eps: EPS,
            scale: 1.0 / (HEAD_DIM as f32).sqrt(),
            mscale: 1.0,
            softcap: 0.0,
        },
        format: KvFormat::F16,
        head_dim: HEAD_DIM,
        experts: ExpertShape {
            experts: EXPERTS,
            used: USED,
            columns: COLUMNS,
            ff: FF,
            eps: EPS,
            reserved: 0,
        },
    }
}
