//! Byte tokens: what becomes of a character that is no token.

use super::error::{Result, TokenizerError};
use super::merge::Part;
use super::vocab::Vocab;

/// The tokens that stand for single bytes.
#[derive(Debug)]
pub(super) struct ByteTokens {
    tokens: [Option<u32>; 256],
    unknown: Option<u32>,
}

impl ByteTokens {
    /// Looks the 256 tokens up.
    pub(super) fn new(vocab: &Vocab) -> Self {
        Self {
            tokens: std::array::from_fn(|byte| vocab.byte_token(byte as u8)),
            unknown: vocab.ids.unk,
        }
    }

    /// Appends a part of a text: its token, else one per byte, else the unknown token.
    pub(super) fn push(&self, part: Part, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        if let Some(id) = part.id {
            ids.push(id);
            return Ok(());
        }
        for byte in text[part.start..part.end].bytes() {
            let id = self.tokens[byte as usize].or(self.unknown);
            ids.push(id.ok_or(TokenizerError::Unencodable { byte })?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::vocab::{SpecialIds, VocabData};
    use super::*;

    fn push(unk: Option<u32>) -> Result<Vec<u32>> {
        let data = VocabData {
            tokens: vec!["<unk>", "<0xC3>"],
            ids: SpecialIds {
                unk,
                ..SpecialIds::default()
            },
            ..VocabData::default()
        };
        let part = Part {
            start: 1,
            end: 3,
            id: None,
        };
        let mut ids = Vec::new();
        let bytes = ByteTokens::new(&Vocab::new(&data)?);
        bytes.push(part, "aé", &mut ids).map(|()| ids)
    }

    #[test]
    fn bytes_then_unknown_then_an_error() {
        assert_eq!(push(Some(0)), Ok(vec![1, 0]));
        assert_eq!(push(None), Err(TokenizerError::Unencodable { byte: 0xA9 }));
    }
}
