//! Which tokens a block of the attention kernel takes: computed on the device from the position, so that one captured
//! launch serves every depth.

use crate::decode::kv::CHUNK;

/// The part of the old tokens that falls to one split, in chunks of [`CHUNK`] tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// First old token that the new one sees (0 without a window).
    pub first: u32,
    /// First chunk of this split.
    pub begin: u32,
    /// One past its last chunk.
    pub end: u32,
    /// Splits that have work; the last of them also takes the new token.
    pub active: u32,
    /// The split has no work.
    pub idle: bool,
    /// It is the last one that has.
    pub last: bool,
}

impl Share {
    /// The share of `split` of `splits` for the token at `position` with a sliding window of `window` tokens (0: none),
    /// each active split but the last having at least `least` chunks.
    ///
    /// The old tokens are those before `position`; the new one's key and value come from the block itself.
    #[inline(always)]
    #[must_use]
    pub const fn of(position: u32, window: u32, splits: u32, least: u32, split: u32) -> Self {
        let first = if window != 0 && position >= window {
            position + 1 - window
        } else {
            0
        };
        let begin = first / CHUNK;
        let end = position.div_ceil(CHUNK);
        let chunks = end.saturating_sub(begin);
        // Divisions take long, and what loads first waits for the first one. One by what could be zero would bring a panic
        // with it.
        let each = if chunks <= least * splits {
            least
        } else {
            chunks.div_ceil(at_least_one(splits))
        };
        let each = at_least_one(each);
        let (from, all) = (split * each, at_least_one(chunks));
        let to = if from + each < chunks { from + each } else { chunks };
        Self {
            first,
            begin: begin + from,
            end: begin + to,
            active: all.div_ceil(each),
            idle: from >= all,
            last: from < all && from + each >= all,
        }
    }
}

/// `n`, or 1 for 0.
#[inline(always)]
const fn at_least_one(n: u32) -> u32 {
    if n == 0 { 1 } else { n }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_splits_cover_every_old_token_once() {
        for (splits, least, window) in [(1, 1, 0), (33, 2, 0), (33, 1, 100), (8, 2, 1), (16, 4, 4096)] {
            for position in (0..300).chain([511, 512, 4_095, 4_096, 32_767, 40_000]) {
                check(position, window, splits, least);
            }
        }
    }

    fn check(position: u32, window: u32, splits: u32, least: u32) {
        let whole = Share::of(position, window, splits, least, 0);
        assert!((1..=splits).contains(&whole.active));
        let mut next = whole.first / CHUNK;
        for split in 0..whole.active {
            let share = Share::of(position, window, splits, least, split);
            assert_eq!(share.begin, next, "position {position}, split {split}");
            assert!(share.end > share.begin || whole.active == 1);
            assert!(!share.idle && share.last == (split + 1 == whole.active));
            next = share.end.max(share.begin);
        }
        for split in whole.active..splits {
            let share = Share::of(position, window, splits, least, split);
            assert!(share.idle && !share.last);
        }
        assert!(next * CHUNK >= position && next <= position.div_ceil(CHUNK).max(whole.first / CHUNK));
        if window != 0 {
            assert_eq!(whole.first, (position + 1).saturating_sub(window));
        }
    }
}
