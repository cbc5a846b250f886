//! BPE over characters instead of bytes (`tokenizer.ggml.model` = `gemma4`).
//!
//! Spaces are written ▁, and merges run over whole lines (runs of line breaks are pieces of their
//! own). A character without a token becomes one `<0xXX>` token per byte.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::bytes::ByteTokens;
use super::error::Result;
use super::merge::{Joins, Part, merge};
use super::merges;
use super::vocab::{Vocab, VocabData};

/// A BPE model over characters.
#[derive(Debug)]
pub(super) struct RawBpe {
    /// Rank and result of each pair of tokens that may be merged.
    merges: HashMap<(u32, u32), (u32, u32)>,
    bytes: ByteTokens,
}

impl RawBpe {
    /// Builds the model; of equal merges the first counts.
    pub(super) fn new(data: &VocabData<'_>, vocab: &Vocab) -> Self {
        let parsed = merges::parse(data, vocab);
        let mut merges = HashMap::with_capacity(parsed.len());
        for (rank, merge) in parsed.iter().enumerate() {
            let (left, right, id) = merge.ids;
            merges.entry((left, right)).or_insert((rank as u32, id));
        }
        Self {
            merges,
            bytes: ByteTokens::new(vocab),
        }
    }

    /// Appends the ids of a text without special tokens.
    pub(super) fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let text = text.replace(' ', "▁");
        let mut rest = &*text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(piece_end(rest));
            for part in merge(piece, self, |c| vocab.id(c)) {
                self.bytes.push(part, piece, ids)?;
            }
            rest = after;
        }
        Ok(())
    }
}

/// Where the run of line breaks, or the line without its break, ends that a text begins with.
fn piece_end(text: &str) -> usize {
    let breaks = text.starts_with('\n');
    text.find(|c| (c == '\n') != breaks).unwrap_or(text.len())
}

impl Joins for RawBpe {
    type Priority = Reverse<u32>;

    fn join(&self, left: Part, right: Part) -> Option<(Self::Priority, u32)> {
        let &(rank, id) = self.merges.get(&(left.id?, right.id?))?;
        Some((Reverse(rank), id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(tokens: &[&str], merges: &[&str], text: &str) -> Vec<u32> {
        let data = VocabData {
            tokens: tokens.to_vec(),
            merges: merges.to_vec(),
            ..VocabData::default()
        };
        let vocab = Vocab::new(&data).unwrap();
        let mut ids = Vec::new();
        RawBpe::new(&data, &vocab).encode(&vocab, text, &mut ids).unwrap();
        ids
    }

    #[test]
    fn spaces_are_merged_like_letters() {
        let tokens = ["a", "▁", "▁a", "a▁"];
        assert_eq!(encode(&tokens, &["▁ a", "a ▁"], "a a"), [0, 2]);
        assert_eq!(encode(&tokens, &["a ▁", "▁ a", "a ▁"], "a a"), [3, 0]);
    }

    #[test]
    fn line_breaks_are_pieces_of_their_own() {
        let tokens = ["a", "\n", "\n\n", "a\n"];
        assert_eq!(encode(&tokens, &["a \n", "\n \n"], "a\n\na"), [0, 2, 0]);
    }

    #[test]
    fn characters_without_a_token_become_bytes() {
        let tokens = ["a", "<0xC3>", "<0xA9>"];
        assert_eq!(encode(&tokens, &[], "aé"), [0, 1, 2]);
    }
}
