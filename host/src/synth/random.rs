//! Random numbers: a counter run through a mixing function, fast and the same everywhere.

/// SplitMix64.
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// The sequence that belongs to these numbers.
    pub(super) fn new(keys: &[u64]) -> Self {
        let fold = |state: u64, &key: &u64| mix(state ^ mix(key.wrapping_add(0x9e37_79b9_7f4a_7c15)));
        Self {
            state: keys.iter().fold(0, fold),
        }
    }

    /// The next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Fills all bytes.
    pub(super) fn bytes(&mut self, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        words.iter_mut().for_each(|word| *word = self.next().to_le_bytes());
        let last = self.next().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// A number from 0 up to 1.
    pub(super) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// 1 or -1.
    pub(super) fn sign(&mut self) -> f32 {
        if self.next() >> 63 == 0 { 1.0 } else { -1.0 }
    }

    /// A bell-shaped number of mean 0 and deviation 1, at most 3.5 (the sum of four uniform ones).
    pub(super) fn bell(&mut self) -> f32 {
        let bits = self.next();
        let sum: f32 = (0..4).map(|i| f32::from((bits >> (16 * i)) as u16) + 0.5).sum();
        (sum / 65536.0 - 2.0) * 3f32.sqrt()
    }
}

/// SplitMix64's output function.
fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
