//! Which dims of a head rotate together.
//!
//! The angles are data: a table of frequencies ([`table`](crate::rope::table)) and a factor of the rotated
//! dims, as for the [`rope`](crate::rope) kernels.

/// Which two dims make a rotating pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Pairing {
    /// Dims `i` and `i + rotated / 2` (NEOX: Qwen, Gemma).
    Halves = 0,
    /// Dims `2i` and `2i + 1` (NORM: Llama).
    Neighbours = 1,
}

/// The two dims of pair `pair` of a head of which `rotated` dims rotate; pairs from `rotated / 2` on are the dims that
/// stay as they are, two by two.
#[inline(always)]
#[must_use]
pub const fn dims_of_pair(pair: u32, rotated: u32, pairing: u32) -> (u32, u32) {
    if pair < rotated / 2 && pairing == Pairing::Halves as u32 {
        (pair, pair + rotated / 2)
    } else {
        (2 * pair, 2 * pair + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_cover_every_dim_once() {
        use Pairing::{Halves, Neighbours};
        for (rotated, pairing) in [(128, Halves), (128, Neighbours), (64, Halves), (32, Neighbours)] {
            let mut seen = [false; 128];
            for pair in 0..64 {
                let (a, b) = dims_of_pair(pair, rotated, pairing as u32);
                for d in [a, b] {
                    assert!(!std::mem::replace(&mut seen[d as usize], true), "dim {d} of {rotated}");
                }
            }
        }
    }
}
