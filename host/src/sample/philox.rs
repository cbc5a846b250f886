//! Philox-4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as
//! 1, 2, 3", SC 2011): the n-th number is a pure function of key and n, so that a GPU thread can
//! compute it without state.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox over `counter` under `key`.
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let p0 = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let p1 = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (p1 >> 32) as u32 ^ counter[1] ^ key[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ counter[3] ^ key[1],
            p0 as u32,
        ];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// The `step`-th number of the sequence of `seed`, uniform in [0, 1): 24 bits of the first word.
pub fn uniform(seed: u64, step: u64) -> f32 {
    let words = philox4x32(
        [step as u32, (step >> 32) as u32, 0, 0],
        [seed as u32, (seed >> 32) as u32],
    );
    (words[0] >> 8) as f32 * (1.0 / 16_777_216.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the Random123 library.
    #[test]
    fn known_answers() {
        assert_eq!(
            philox4x32([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn uniform_covers_the_unit_interval() {
        let values: Vec<f32> = (0..10_000).map(|step| uniform(1, step)).collect();
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
        let mean = values.iter().sum::<f32>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
    }
}
