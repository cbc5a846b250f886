//! The step state: what one decode step hands to the next, on the device.
//!
//! A captured graph of a step reads its token and its position from here and
//! its last kernel writes the next ones, so that the same graph, replayed,
//! decodes one token after the other without the host.

/// Token, position and count of a sequence that is being decoded.
///
/// Lives in device memory, 16-byte aligned. Read by every kernel of a step;
/// written only by the last one ([`advance`](super::advance)).
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct StepState {
    /// The token that this step reads (its embedding row).
    pub token: u32,
    /// The position of that token: the number of tokens in the KV cache before it.
    pub position: u32,
    /// Number of the step, which its entry of the ring bears; the device counts it up.
    pub step: u32,
    /// Added to `step`, it is the number of the step's draw in the sampler's random sequence.
    pub draws: u32,
}

/// What a step leaves in the ring in place of a token when none of its logits is a number. The step behind it reads
/// token 0, so that it may run before the host has seen this.
pub const NO_TOKEN: u32 = u32::MAX;

/// One entry of the ring through which emitted tokens reach the host.
///
/// The entry of step `s` lies at `s % ring length` and holds
/// `(s + 1) << 32 | token`, written by one 8-byte store: a host that polls
/// mapped memory knows from the upper half that the lower half is the token
/// of the step that it waits for.
#[inline(always)]
#[must_use]
pub const fn ring_entry(step: u32, token: u32) -> u64 {
    ((step.wrapping_add(1) as u64) << 32) | token as u64
}

/// The token of step `step` in a ring entry, or `None` while it is not written.
#[inline(always)]
#[must_use]
pub const fn ring_token(entry: u64, step: u32) -> Option<u32> {
    if (entry >> 32) as u32 == step.wrapping_add(1) {
        Some(entry as u32)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_entry_is_known_by_its_step() {
        let entry = ring_entry(7, 151_643);
        assert_eq!(ring_token(entry, 7), Some(151_643));
        assert_eq!(ring_token(entry, 8), None);
        assert_eq!(ring_token(0, 0), None);
    }

    #[test]
    fn the_state_is_sixteen_bytes() {
        assert_eq!(core::mem::size_of::<StepState>(), 16);
    }
}
