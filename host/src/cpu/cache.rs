//! The key/value cache of one attention part.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use sparkinfer_gguf::blocks::{Block, BlockQ8_0};
use sparkinfer_gguf::dequant::Dequantize;
use sparkinfer_gguf::quantize::Quantize;

use super::simd::{Level, widen};
use crate::model::KvType;

/// Dims that share a scale in q8_0.
const BLOCK: usize = BlockQ8_0::LEN;

/// Keys and values, `[kv_heads][context][head_dim]` each.
pub(super) struct Cache {
    kv_heads: usize,
    head_dim: usize,
    context: usize,
    keys: Store,
    values: Store,
}

/// Numbers of each type. Those of q8_0 are blocks: heads are a multiple of 32 dims.
enum Store {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    Q8_0(Vec<BlockQ8_0>),
}

impl Cache {
    /// An empty cache with room for `context` positions, or `None` if there is no memory for it.
    pub(super) fn new(kind: KvType, kv_heads: usize, head_dim: usize, context: usize) -> Option<Self> {
        let len = kv_heads.checked_mul(head_dim)?.checked_mul(context)?;
        let (keys, values) = (Store::new(kind, len)?, Store::new(kind, len)?);
        Some(Cache {
            kv_heads,
            head_dim,
            context,
            keys,
            values,
        })
    }

    /// A cache of the same room with the first `len` positions of this one, or `None` if there is no memory for it.
    pub(super) fn fork(&self, len: usize) -> Option<Self> {
        let mut fork = Cache {
            keys: self.keys.zeros()?,
            values: self.values.zeros()?,
            ..*self
        };
        for head in 0..self.kv_heads {
            let first = head * self.context * self.head_dim;
            let range = first..first + len * self.head_dim;
            fork.keys.copy(&self.keys, range.clone());
            fork.values.copy(&self.values, range);
        }
        Some(fork)
    }

    /// Stores `[kv_heads][head_dim]` keys and values at a position.
    pub(super) fn put(&mut self, position: usize, keys: &[f32], values: &[f32]) {
        for head in 0..self.kv_heads {
            let (from, to) = (head * self.head_dim, (head * self.context + position) * self.head_dim);
            self.keys.put(to, &keys[from..from + self.head_dim]);
            self.values.put(to, &values[from..from + self.head_dim]);
        }
    }

    /// Copies keys and values of a head, from position `first` on, as many as `keys` and `values` hold.
    pub(super) fn get(&self, level: Level, head: usize, first: usize, keys: &mut [f32], values: &mut [f32]) {
        let from = (head * self.context + first) * self.head_dim;
        self.keys.get(level, from, keys);
        self.values.get(level, from, values);
    }
}

impl Store {
    fn new(kind: KvType, len: usize) -> Option<Self> {
        Some(match kind {
            KvType::F32 => Store::F32(zeroed(len)?),
            KvType::F16 => Store::F16(zeroed(len)?),
            KvType::Bf16 => Store::Bf16(zeroed(len)?),
            KvType::Q8_0 => Store::Q8_0(zeroed(len / BLOCK)?),
        })
    }

    /// As many zeros of the same type.
    fn zeros(&self) -> Option<Self> {
        Some(match self {
            Store::F32(all) => Store::F32(zeroed(all.len())?),
            Store::F16(all) => Store::F16(zeroed(all.len())?),
            Store::Bf16(all) => Store::Bf16(zeroed(all.len())?),
            Store::Q8_0(all) => Store::Q8_0(zeroed(all.len())?),
        })
    }

    /// Copies a range of `from`, which is of the same type and size.
    fn copy(&mut self, from: &Self, range: Range<usize>) {
        match (self, from) {
            (Store::F32(to), Store::F32(from)) => to[range.clone()].copy_from_slice(&from[range]),
            (Store::F16(to), Store::F16(from)) => to[range.clone()].copy_from_slice(&from[range]),
            (Store::Bf16(to), Store::Bf16(from)) => to[range.clone()].copy_from_slice(&from[range]),
            (Store::Q8_0(to), Store::Q8_0(from)) => {
                let blocks = range.start / BLOCK..range.end / BLOCK;
                to[blocks.clone()].copy_from_slice(&from[blocks]);
            }
            _ => {}
        }
    }

    fn put(&mut self, at: usize, from: &[f32]) {
        match self {
            Store::F32(all) => all[at..at + from.len()].copy_from_slice(from),
            Store::F16(all) => all[at..at + from.len()].convert_from_f32_slice(from),
            Store::Bf16(all) => all[at..at + from.len()].convert_from_f32_slice(from),
            Store::Q8_0(all) => {
                let blocks = all[at / BLOCK..].iter_mut().zip(from.chunks_exact(BLOCK));
                blocks.for_each(|(block, values)| *block = BlockQ8_0::quantize(values));
            }
        }
    }

    fn get(&self, level: Level, at: usize, to: &mut [f32]) {
        match self {
            Store::F32(all) => to.copy_from_slice(&all[at..at + to.len()]),
            Store::F16(all) => widen(level, &all[at..at + to.len()], to),
            Store::Bf16(all) => all[at..at + to.len()].convert_to_f32_slice(to),
            Store::Q8_0(all) => {
                let blocks = all[at / BLOCK..].iter().zip(to.chunks_exact_mut(BLOCK));
                blocks.for_each(|(block, to)| block.dequantize(to));
            }
        }
    }
}

/// Zeros that the system hands out page by page as they are touched, or `None` if it has too few.
fn zeroed<T: bytemuck::Zeroable + Copy>(len: usize) -> Option<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(len).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_comes_back_rounded() {
        for (kind, third) in [
            (KvType::F32, 1.0f32 / 3.0),
            (KvType::F16, f16::from_f32(1.0 / 3.0).to_f32()),
        ] {
            let mut cache = Cache::new(kind, 2, 2, 3).unwrap();
            cache.put(1, &[0.0, 0.0, 1.0 / 3.0, 2.0], &[0.0, 0.0, 4.0, 5.0]);
            let (mut keys, mut values) = ([9.0; 4], [9.0; 4]);
            cache.get(Level::best(), 1, 0, &mut keys, &mut values);
            assert_eq!((keys, values), ([0.0, 0.0, third, 2.0], [0.0, 0.0, 4.0, 5.0]));
        }
    }

    #[test]
    fn bf16_and_q8_0_round() {
        let values: Vec<f32> = (0..64).map(|i| (i as f32 - 20.0) / 7.0).collect();
        for (kind, error) in [(KvType::Bf16, 1.0 / 64.0), (KvType::Q8_0, 43.0 / 7.0 / 250.0)] {
            let mut cache = Cache::new(kind, 2, 32, 3).unwrap();
            cache.put(1, &values, &values);
            let fork = cache.fork(2).unwrap();
            let (mut keys, mut read) = (vec![9.0; 64], vec![9.0; 64]);
            fork.get(Level::best(), 1, 0, &mut keys, &mut read);
            assert_eq!((&keys, &read[..32]), (&read, &[0.0; 32][..]));
            let worst = read[32..]
                .iter()
                .zip(&values[32..])
                .fold(0f32, |m, (a, b)| m.max((a - b).abs()));
            assert!(worst > 0.0 && worst < error, "{kind}: {worst}");
        }
    }

    #[test]
    fn a_fork_has_the_first_positions_only() {
        let mut cache = Cache::new(KvType::F16, 2, 1, 3).unwrap();
        for position in 0..3 {
            let x = 1.0 + position as f32;
            cache.put(position, &[x, -x], &[10.0 * x, 5.0]);
        }
        let fork = cache.fork(2).unwrap();
        let (mut keys, mut values) = ([9.0; 3], [9.0; 3]);
        fork.get(Level::best(), 1, 0, &mut keys, &mut values);
        assert_eq!((keys, values), ([-1.0, -2.0, 0.0], [5.0, 5.0, 0.0]));
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Cache::new(KvType::F16, 1 << 20, 1 << 10, 1 << 40).is_none());
        assert!(Cache::new(KvType::F32, 1 << 10, 1 << 10, 1 << 32).is_none());
    }
}
