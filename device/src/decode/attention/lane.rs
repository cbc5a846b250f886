//! What a lane holds of a head while it is normalised and rotated: pairs `lane`, `lane + 32`, … of the head's dims.

use super::AttentionShape;
use crate::decode::kv::{BLOCK, Encoded, KvType};
use crate::decode::rope;
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// The pairs of one lane, of a head of `HD` dims (at most 256): which dims, and how they rotate.
pub(crate) struct Pairs<const HD: u32> {
    dims: [(u32, u32); 4],
    turns: [(f32, f32); 4],
}

/// The values of a lane's pairs.
pub(crate) type Values = [(f32, f32); 4];

/// The frequencies of a lane's pairs.
pub(crate) type Frequencies = [F32x2; 4];

impl<const HD: u32> Pairs<HD> {
    /// The lane's pairs at `position`. Reads the rotation table only: data that no launch of a step writes.
    ///
    /// # Safety
    /// `frequencies` holds `shape.rotated / 2` entries.
    #[inline(always)]
    pub(crate) unsafe fn at(position: u32, shape: &AttentionShape, frequencies: *const F32x2, lane: u32) -> Self {
        let mut pairs = Self::of(shape, lane);
        // SAFETY: passed on.
        let frequencies = unsafe { pairs.frequencies(shape, frequencies, lane) };
        pairs.rotate(position, shape, &frequencies, lane);
        pairs
    }

    /// The lane's pairs, before they are told how they rotate.
    #[inline(always)]
    pub(crate) fn of(shape: &AttentionShape, lane: u32) -> Self {
        let mut dims = [(0, 0); 4];
        unroll!(for I in 0..4 {
            if (I as u32) < HD / 64 {
                dims[I] = rope::dims_of_pair(lane + 32 * I as u32, shape.rotated, shape.pairing);
            }
        });
        Self {
            dims,
            turns: [(0.0, 1.0); 4],
        }
    }

    /// The frequencies of the pairs that rotate.
    ///
    /// # Safety
    /// As [`at`](Self::at).
    #[inline(always)]
    pub(crate) unsafe fn frequencies(
        &self,
        shape: &AttentionShape,
        frequencies: *const F32x2,
        lane: u32,
    ) -> Frequencies {
        let mut found = [F32x2([0.0; 2]); 4];
        unroll!(for I in 0..4 {
            let pair = lane + 32 * I as u32;
            if (I as u32) < HD / 64 && pair < shape.rotated / 2 {
                // SAFETY: the pair rotates, so the table has its entry.
                found[I] = unsafe { global::load_nc(frequencies.add(pair as usize)) };
            }
        });
        found
    }

    /// Sets how the pairs rotate at `position`.
    #[inline(always)]
    pub(crate) fn rotate(&mut self, position: u32, shape: &AttentionShape, frequencies: &Frequencies, lane: u32) {
        unroll!(for I in 0..4 {
            if (I as u32) < HD / 64 {
                let (sin, cos) = crate::rope::rotation(position, frequencies[I]);
                if lane + 32 * (I as u32) < shape.rotated / 2 {
                    self.turns[I] = (sin * shape.mscale, cos * shape.mscale);
                }
            }
        });
    }

    /// The lane's values of the head at `x`.
    ///
    /// # Safety
    /// `x` points to `HD` floats.
    #[inline(always)]
    pub(crate) unsafe fn load(&self, x: *const f32) -> Values {
        let mut v = [(0.0, 0.0); 4];
        unroll!(for I in 0..4 {
            if (I as u32) < HD / 64 {
                let (a, b) = self.dims[I];
                // SAFETY: both dims are below HD.
                v[I] = unsafe { (global::load(x.add(a as usize)), global::load(x.add(b as usize))) };
            }
        });
        v
    }

    /// The lane's values of the norm weights at `weight`, or ones where the model has none.
    ///
    /// # Safety
    /// `weight` is null or points to `HD` floats.
    #[inline(always)]
    pub(crate) unsafe fn weights(&self, weight: *const f32) -> Values {
        if weight.is_null() {
            return [(1.0, 1.0); 4];
        }
        // SAFETY: passed on.
        unsafe { self.load(weight) }
    }

    /// The lane's part of the sum of squares.
    #[inline(always)]
    pub(crate) fn squares(&self, v: &Values) -> f32 {
        self.dot(v, v)
    }

    /// The values times `scale · weight`, rotated.
    #[inline(always)]
    pub(crate) fn turn(&self, v: &Values, weight: &Values, scale: f32) -> Values {
        let mut out = [(0.0, 0.0); 4];
        unroll!(for I in 0..4 {
            if (I as u32) < HD / 64 {
                let (a, b) = (v[I].0 * (scale * weight[I].0), v[I].1 * (scale * weight[I].1));
                let (sin, cos) = self.turns[I];
                out[I] = (float::fma(a, cos, -(b * sin)), float::fma(a, sin, b * cos));
            }
        });
        out
    }

    /// Calls `f(dim, value)` for each of the lane's values.
    #[inline(always)]
    pub(crate) fn each(&self, v: &Values, mut f: impl FnMut(u32, f32)) {
        unroll!(for I in 0..4 {
            if (I as u32) < HD / 64 {
                f(self.dims[I].0, v[I].0);
                f(self.dims[I].1, v[I].1);
            }
        });
    }

    /// Calls `f(i, dim, stored)` for the lane's `i`-th value as the cache keeps it, and returns the lane's values as they
    /// are kept. Where 32 dims share a scale they meet in `scratch`, HD floats of the warp's own.
    #[inline(always)]
    pub(crate) fn each_stored<T: KvType>(
        &self,
        v: &Values,
        scratch: Shared<f32>,
        mut f: impl FnMut(u32, u32, Encoded),
    ) -> Values {
        let mut kept = *v;
        if !T::FORMAT.scaled() {
            unroll!(for I in 0..4 {
                if (I as u32) < HD / 64 {
                    let (a, b) = (T::encode(v[I].0), T::encode(v[I].1));
                    f(2 * I as u32, self.dims[I].0, a);
                    f(2 * I as u32 + 1, self.dims[I].1, b);
                    kept[I] = (a.value, b.value);
                }
            });
            return kept;
        }
        self.each(v, |dim, v| scratch.store(dim, v));
        warp::sync();
        // A loop: this runs once, and then takes as long as its code takes to be fetched.
        let mut block = 0;
        while block < HD / BLOCK {
            let dim = BLOCK * block + warp::lane();
            let stored = T::encode(scratch.load(dim));
            f(block, dim, stored);
            scratch.store(dim, stored.value);
            block = rolled(block + 1);
        }
        warp::sync();
        unroll!(for I in 0..4 {
            if (I as u32) < HD / 64 {
                kept[I] = (scratch.load(self.dims[I].0), scratch.load(self.dims[I].1));
            }
        });
        kept
    }

    /// The lane's part of the product of two heads.
    #[inline(always)]
    pub(crate) fn dot(&self, x: &Values, y: &Values) -> f32 {
        let mut sum = 0.0;
        unroll!(for I in 0..4 {
            if (I as u32) < HD / 64 {
                sum = float::fma(x[I].0, y[I].0, float::fma(x[I].1, y[I].1, sum));
            }
        });
        sum
    }
}
