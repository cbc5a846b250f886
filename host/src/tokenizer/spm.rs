//! SentencePiece's BPE (`tokenizer.ggml.model` = `llama`): Llama 2, Gemma 3, Mistral.
//!
//! Spaces are written ▁. Two neighbours are merged if their concatenation is a token, the token
//! with the highest score first. What is no token in the end becomes bytes.

use super::bytes::ByteTokens;
use super::error::Result;
use super::merge::{Joins, Part, merge};
use super::vocab::{Vocab, VocabData};

/// A SentencePiece model.
#[derive(Debug)]
pub(super) struct Spm {
    scores: Vec<Score>,
    bytes: ByteTokens,
    /// Length of the longest token in bytes: nothing longer needs looking up.
    longest: usize,
    /// Does a text begin with a space that is not there?
    pub(super) space_prefix: bool,
}

/// A score in the total order of floats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Score(f32);

impl Eq for Score {}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Spm {
    /// Checks the scores.
    pub(super) fn new(data: &VocabData<'_>, vocab: &Vocab) -> Result<Self> {
        let scores = data.scores.as_deref().unwrap_or_default();
        if scores.len() < vocab.len() {
            let problem = format!("{} entries for {} tokens", scores.len(), vocab.len());
            return Err(data.error("scores", problem));
        }
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(data.error("scores", format!("the score of token {id} is not a number")));
        }
        Ok(Self {
            // Adding zero makes one of the two zeros.
            scores: scores.iter().map(|score| Score(score + 0.0)).collect(),
            bytes: ByteTokens::new(vocab),
            longest: vocab.iter().map(|(_, text, _)| text.len()).max().unwrap_or(0),
            space_prefix: data.add_space_prefix.unwrap_or(true),
        })
    }

    /// Appends the ids of a text without special tokens.
    pub(super) fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let prefix = if self.space_prefix { "▁" } else { "" };
        let text = format!("{prefix}{}", text.replace(' ', "▁"));
        let joins = Concatenations {
            model: self,
            vocab,
            text: &text,
        };
        for part in merge(&text, &joins, |c| vocab.id(c)) {
            self.bytes.push(part, &text, ids)?;
        }
        Ok(())
    }
}

struct Concatenations<'a> {
    model: &'a Spm,
    vocab: &'a Vocab,
    text: &'a str,
}

impl Joins for Concatenations<'_> {
    type Priority = Score;

    fn join(&self, left: Part, right: Part) -> Option<(Score, u32)> {
        if right.end - left.start > self.model.longest {
            return None;
        }
        let id = self.vocab.id(&self.text[left.start..right.end])?;
        Some((self.model.scores[id as usize], id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data<'a>(tokens: &[(&'a str, f32)]) -> VocabData<'a> {
        VocabData {
            file: "x.gguf".into(),
            tokens: tokens.iter().map(|token| token.0).collect(),
            scores: Some(tokens.iter().map(|token| token.1).collect()),
            add_space_prefix: Some(false),
            ..VocabData::default()
        }
    }

    fn encode(data: &VocabData<'_>, text: &str) -> Vec<u32> {
        let vocab = Vocab::new(data).unwrap();
        let mut ids = Vec::new();
        Spm::new(data, &vocab).unwrap().encode(&vocab, text, &mut ids).unwrap();
        ids
    }

    #[test]
    fn highest_score_first_and_leftmost_of_equals() {
        let tokens = [("a", 0.0), ("b", 0.0), ("ab", -2.0), ("ba", -1.0), ("aa", -3.0)];
        assert_eq!(encode(&data(&tokens), "aba"), [0, 3]);
        assert_eq!(encode(&data(&tokens), "aaa"), [4, 0]);
    }

    #[test]
    fn spaces_are_written_and_one_is_added_if_asked() {
        let mut data = data(&[("a", 0.0), ("▁", 0.0), ("▁a", -1.0)]);
        assert_eq!(encode(&data, "a a"), [0, 2]);
        data.add_space_prefix = None;
        assert_eq!(encode(&data, "a a"), [2, 2]);
    }

    #[test]
    fn scores_must_be_there_and_be_numbers() {
        let mut data = data(&[("a", f32::NAN)]);
        let message = |data: &VocabData<'_>| {
            let vocab = Vocab::new(data).unwrap();
            Spm::new(data, &vocab).unwrap_err().to_string()
        };
        assert_eq!(
            message(&data),
            "x.gguf: key 'tokenizer.ggml.scores': the score of token 0 is not a number"
        );
        data.scores = None;
        assert_eq!(
            message(&data),
            "x.gguf: key 'tokenizer.ggml.scores': 0 entries for 1 tokens"
        );
    }
}
