//! Little-endian words at byte offsets.

/// The 4 bytes of `s` at `at`.
pub(super) fn word(s: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([s[at], s[at + 1], s[at + 2], s[at + 3]])
}

/// Stores `w` at byte `at` of `s`.
pub(super) fn set_word(s: &mut [u8], at: usize, w: u32) {
    s[at..at + 4].copy_from_slice(&w.to_le_bytes());
}
