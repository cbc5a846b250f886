//! Orders that a seed decides.

/// SplitMix64: small, and good enough to shuffle with.
#[derive(Debug, Clone)]
pub(super) struct Order {
    state: u64,
    /// Seed 0: everything in its natural order.
    natural: bool,
}

impl Order {
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed,
            natural: seed == 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The numbers below `n`, in some order.
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        if !self.natural {
            for i in (1..n).rev() {
                all.swap(i, self.below(i + 1));
            }
        }
        all
    }

    /// A mask m such that i ^ m, for i below a power of two, is the order of that many things.
    pub fn flip(&mut self, power: usize) -> usize {
        if self.natural {
            0
        } else {
            self.next() as usize & (power - 1)
        }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_order_and_zero_is_natural() {
        assert_eq!(Order::new(0).permutation(5), [0, 1, 2, 3, 4]);
        let (a, b) = (Order::new(7).permutation(100), Order::new(7).permutation(100));
        assert_eq!(a, b);
        assert_ne!(a, Order::new(8).permutation(100));
        let mut sorted = a;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }
}
