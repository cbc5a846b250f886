//! The tokens that fill the cache before something is measured.

use serde::Serialize;

use super::{BenchError, Result};
use crate::tokenizer::{DecodeOptions, EncodeOptions, Tokenizer, TokenizerError};

/// Where a prompt's tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptKind {
    /// All over the vocabulary.
    Synthetic,
    /// A text.
    Real,
}

/// A prompt, as a report names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PromptFacts {
    /// Where its tokens come from.
    pub kind: PromptKind,
    /// The same in words.
    pub description: String,
}

/// The tokens that fill the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptTokens {
    ids: Vec<u32>,
    facts: PromptFacts,
}

impl PromptTokens {
    /// Tokens from all over a vocabulary of `vocab_size`, the same ones every time.
    pub fn spread(vocab_size: usize, count: usize) -> Self {
        let id = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % vocab_size.max(1) as u64;
        Self {
            ids: (1..=count as u64).map(|i| id(i) as u32).collect(),
            facts: PromptFacts {
                kind: PromptKind::Synthetic,
                description: "tokens from all over the vocabulary".to_owned(),
            },
        }
    }

    /// The first `count` tokens of a text called `name`, behind the one that the model wants at a beginning; a shorter text
    /// begins again. Special tokens in it are read as text.
    ///
    /// # Errors
    /// A text without tokens, or with bytes that the vocabulary cannot express.
    pub fn text(tokenizer: &Tokenizer, text: &str, name: &str, count: usize) -> Result<Self> {
        let failed = |error: TokenizerError| BenchError::Text(format!("{name}: {error}"));
        let body = tokenizer.encode(text, EncodeOptions::TEXT).map_err(failed)?;
        if body.is_empty() {
            return Err(BenchError::Nothing("the number of tokens of the prompt's text"));
        }
        let first = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        let again = if body.len() < count { ", again and again" } else { "" };
        Ok(Self {
            ids: first.into_iter().chain(body.into_iter().cycle()).take(count).collect(),
            facts: PromptFacts {
                kind: PromptKind::Real,
                description: format!("the text of {name}{again}"),
            },
        })
    }

    /// The token ids.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The token ids, to be kept.
    pub fn into_ids(self) -> Vec<u32> {
        self.ids
    }

    /// What a report says of them.
    pub fn facts(&self) -> &PromptFacts {
        &self.facts
    }

    /// The text of the first `count` tokens, but at least of one, without special tokens: for programs that take no ids.
    /// None for tokens that come from no text.
    pub(super) fn beginning(&self, tokenizer: &Tokenizer, count: usize) -> Option<String> {
        let skipped = tokenizer.bos().filter(|_| tokenizer.adds_bos()).is_some();
        let from = usize::from(skipped).min(self.ids.len());
        let to = count.max(from + 1).min(self.ids.len());
        let options = DecodeOptions {
            special: false,
            strip_prefix: true,
        };
        (self.facts.kind == PromptKind::Real).then(|| tokenizer.decode(&self.ids[from..to], options))
    }
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    use super::*;
    use crate::load::Model;

    #[test]
    fn prompts_are_long_enough_and_inside_the_vocabulary() {
        let spread = PromptTokens::spread(50, 1000);
        assert!(spread.ids.len() == 1000 && spread.ids.iter().all(|&id| id < 50));
        let different: std::collections::HashSet<_> = spread.ids.iter().collect();
        assert!(different.len() > 40);
    }

    #[test]
    fn a_text_begins_again_and_can_be_read_back() {
        let tokenizer = Model::open(None).unwrap().tokenizer;
        let once = tokenizer.encode("The river", EncodeOptions::TEXT).unwrap();
        let prompt = PromptTokens::text(&tokenizer, "The river", "a file", 3 * once.len()).unwrap();
        assert_eq!(prompt.ids, [&once[..]; 3].concat());
        assert_eq!(prompt.facts.description, "the text of a file, again and again");
        assert_eq!(prompt.beginning(&tokenizer, once.len()).as_deref(), Some("The river"));
        assert!(
            prompt
                .beginning(&tokenizer, 0)
                .is_some_and(|text| "The river".starts_with(&text) && !text.is_empty())
        );
        assert_eq!(PromptTokens::spread(50, 9).beginning(&tokenizer, 3), None);
        assert!(PromptTokens::text(&tokenizer, "", "a file", 3).is_err());
    }
}
