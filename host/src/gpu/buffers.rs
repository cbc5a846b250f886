//! Everything a step reads and writes besides weights, allocated once at load.

use cuda_std::DevicePtr;
use sparkinfer_device::decode::choices::MAX_USED;
use sparkinfer_device::decode::head::Best;
use sparkinfer_device::decode::kv::KvFormat;
use sparkinfer_device::decode::plan::{LayerCache, StepBuffers};
use sparkinfer_device::decode::residual::Residual;
use sparkinfer_device::decode::router::Routing;

use super::backend::{Backend, HostVisible, Memory, Result};
use super::pages::PAGE_TOKENS;

/// Tokens that the ring holds; the host never lets more steps run ahead of it.
pub const RING_LENGTH: u32 = 64;

/// What a cache has to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheRoom {
    /// How keys and values are stored.
    pub format: KvFormat,
    /// Tokens of a sequence.
    pub context: usize,
    /// Sequences.
    pub sequences: usize,
}

/// Sizes that the buffers follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferSizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Values of q, k and v of one token, in the layer that has most.
    pub qkv: usize,
    /// Values of the attention output, in the layer that has most.
    pub attended: usize,
    /// Experts, in the layer that has most.
    pub experts: usize,
    /// Inner values of all chosen experts, in the layer that has most.
    pub inner: usize,
    /// Logits.
    pub vocab: usize,
    /// Candidates that the head leaves.
    pub candidates: usize,
    /// Floats of workspace of the attention.
    pub partial: usize,
    /// Query heads, in the layer that has most.
    pub heads: usize,
    /// Floats of the general path's own values; 0 for the fused one.
    pub work: usize,
    /// Layers with a cache.
    pub layers: usize,
    /// How the cache stores keys and values.
    pub format: KvFormat,
    /// Bytes of a page of keys, and of values.
    pub page_bytes: usize,
    /// Pages of the cache.
    pub pages: usize,
}

impl BufferSizes {
    /// Bytes of the cache.
    pub fn cache_bytes(&self) -> u64 {
        2 * (self.layers * self.pages * self.page_bytes) as u64
    }

    /// Bytes of everything but the cache.
    pub fn scratch_bytes(&self) -> u64 {
        let (sizes, _) = self.places();
        sizes as u64
    }

    /// The byte offsets of the buffers in one allocation, and its size first.
    fn places(&self) -> (usize, [usize; 14]) {
        let floats = [
            self.hidden,
            self.qkv,
            self.attended,
            2 * Routing::words(self.experts),
            self.inner,
            self.vocab.next_multiple_of(16),
            2 * self.candidates,
            self.partial,
            self.heads,
            self.pages,
            self.work,
            self.hidden,
            self.hidden.div_ceil(16),
            2 * MAX_USED as usize,
        ];
        let mut end = 256;
        let offsets = floats.map(|floats| {
            let offset = end;
            end = (offset + 4 * floats).next_multiple_of(256);
            offset
        });
        (end, offsets)
    }
}

/// Addresses of the buffers, and the memory behind them.
pub struct Buffers {
    /// What the launches of a layer work in.
    pub step: StepBuffers,
    /// The logits.
    pub logits: DevicePtr<f32>,
    /// The head's candidates.
    pub best: DevicePtr<Best>,
    /// The general path's own values.
    pub work: DevicePtr<f32>,
    /// The emitted tokens, in memory that the host reads.
    pub ring: DevicePtr<u64>,
    /// Entries of the ring.
    pub ring_length: u32,
    /// How the cache stores keys and values.
    pub format: KvFormat,
    /// Bytes from one page to the next.
    pub page_bytes: u32,
    layer_bytes: u64,
    layers: usize,
    cache: Box<dyn Memory>,
    ring_memory: Box<dyn HostVisible>,
    _scratch: Box<dyn Memory>,
}

impl Buffers {
    /// Allocates the buffers, all zero.
    ///
    /// # Errors
    /// Out of memory, or the driver's.
    pub fn allocate<B: Backend>(backend: &B, sizes: &BufferSizes) -> Result<Self> {
        let (bytes, _) = sizes.places();
        let scratch = backend.allocate(bytes)?;
        let cache = backend.allocate(sizes.cache_bytes() as usize)?;
        let ring = backend.host_visible(RING_LENGTH as usize)?;
        Ok(Self::new(sizes, scratch, cache, ring))
    }

    /// Buffers without memory, for a plan that is made to see whether the kernels take it.
    pub fn nowhere(sizes: &BufferSizes) -> Self {
        Self::new(sizes, Box::new(Nowhere), Box::new(Nowhere), Box::new(Nowhere))
    }

    fn new(
        sizes: &BufferSizes,
        scratch: Box<dyn Memory>,
        cache: Box<dyn Memory>,
        ring_memory: Box<dyn HostVisible>,
    ) -> Self {
        let (_, offsets) = sizes.places();
        let at = |i: usize| scratch.address() + offsets[i] as u64;
        Self {
            step: StepBuffers {
                state: DevicePtr::from_raw(scratch.address()),
                stream: Residual {
                    x: DevicePtr::from_raw(at(0)),
                    gained: DevicePtr::from_raw(at(11)),
                    squares: DevicePtr::from_raw(at(12)),
                },
                qkv: DevicePtr::from_raw(at(1)),
                attention: DevicePtr::from_raw(at(2)),
                router_sums: DevicePtr::from_raw(at(3)),
                choices: DevicePtr::from_raw(at(13)),
                h: DevicePtr::from_raw(at(4)),
                partial: DevicePtr::from_raw(at(7)),
                counters: DevicePtr::from_raw(at(8)),
                table: DevicePtr::from_raw(at(9)),
            },
            logits: DevicePtr::from_raw(at(5)),
            best: DevicePtr::from_raw(at(6)),
            work: DevicePtr::from_raw(at(10)),
            ring: DevicePtr::from_raw(ring_memory.address()),
            ring_length: RING_LENGTH,
            format: sizes.format,
            page_bytes: sizes.page_bytes as u32,
            layer_bytes: (sizes.pages * sizes.page_bytes) as u64,
            layers: sizes.layers,
            cache,
            ring_memory,
            _scratch: scratch,
        }
    }

    /// The cache of a layer.
    pub fn cache(&self, layer: usize) -> LayerCache {
        let pool = |i: usize| DevicePtr::from_raw(self.cache.address() + i as u64 * self.layer_bytes);
        LayerCache {
            keys: pool(layer),
            values: pool(self.layers + layer),
        }
    }

    /// The addresses of all pools of keys and of values.
    pub fn pools(&self) -> impl Iterator<Item = u64> {
        (0..2 * self.layers as u64).map(|pool| self.cache.address() + pool * self.layer_bytes)
    }

    /// The ring as the host reads it.
    pub fn ring_memory(&self) -> &dyn HostVisible {
        self.ring_memory.as_ref()
    }
}

/// No memory.
struct Nowhere;

impl Memory for Nowhere {
    fn address(&self) -> u64 {
        0
    }
    fn bytes(&self) -> usize {
        0
    }
}

impl HostVisible for Nowhere {
    fn address(&self) -> u64 {
        0
    }
    fn load(&self, _index: usize) -> u64 {
        0
    }
}

/// Pages for a context of `tokens` tokens.
pub fn pages_for(tokens: usize) -> usize {
    tokens.div_ceil(PAGE_TOKENS)
}
