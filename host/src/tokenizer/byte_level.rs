//! Byte-level BPE (`tokenizer.ggml.model` = `gpt2`): GPT-2, Qwen, Llama 3, SmolLM.
//!
//! Each byte of a word is written as one printable character, and merges work on those. The
//! merging itself is the `tokenizers` crate's; the cutting into words is ours ([`super::words`]).
//! No Unicode normalisation takes place: text is encoded as it is, as llama.cpp does it.

use tokenizers::models::bpe::{BPE, Vocab as TextIds};
use tokenizers::{Model, Token};

use super::error::{Result, TokenizerError};
use super::merges;
use super::vocab::{Vocab, VocabData};
use super::words::{Rules, Words};

/// The bytes that stand for themselves: printable, and not a space.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, 33..=126 | 161..=172 | 174..=255)
}

/// Character of each byte: itself if printable, else the next character from U+0100 on.
const CHAR_OF_BYTE: [char; 256] = {
    let mut table = ['\0'; 256];
    let mut byte = 0;
    let mut next = 0x100;
    while byte < 256 {
        let code = if is_printable(byte as u8) { byte as u32 } else { next };
        if !is_printable(byte as u8) {
            next += 1;
        }
        table[byte] = match char::from_u32(code) {
            Some(c) => c,
            None => unreachable!(),
        };
        byte += 1;
    }
    table
};

/// Byte of each character below U+0144, the inverse of [`CHAR_OF_BYTE`].
const BYTE_OF_CHAR: [Option<u8>; 0x144] = {
    let mut table = [None; 0x144];
    let mut byte = 0;
    while byte < 256 {
        table[CHAR_OF_BYTE[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    table
};

/// The bytes that a token's text stands for; text outside of the alphabet stands for itself.
pub(super) fn bytes_of(text: &str) -> Vec<u8> {
    let byte = |c: char| BYTE_OF_CHAR.get(c as usize).copied().flatten();
    let bytes: Option<Vec<u8>> = text.chars().map(byte).collect();
    bytes.unwrap_or_else(|| text.as_bytes().to_vec())
}

/// A byte-level BPE model.
#[derive(Debug)]
pub(super) struct ByteLevel {
    words: Words,
    bpe: BPE,
    /// Bytes whose character is no token.
    missing: [bool; 256],
}

impl ByteLevel {
    /// Builds the model with the rules of the file's pre-tokeniser.
    pub(super) fn new(data: &VocabData<'_>, vocab: &Vocab, rules: Rules) -> Result<Self> {
        let words = Words::new(rules).map_err(|error| data.error("pre", error.to_string()))?;
        let bpe = build(data, vocab, rules.whole_words).map_err(|error| data.error("merges", error.to_string()))?;
        let mut name = [0; 4];
        let missing = CHAR_OF_BYTE.map(|c| vocab.id(c.encode_utf8(&mut name)).is_none());
        Ok(Self { words, bpe, missing })
    }

    /// Appends the ids of a text without special tokens.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let mut written = String::new();
        self.words.each(text, &mut |word| {
            written.clear();
            written.extend(word.bytes().map(|byte| CHAR_OF_BYTE[byte as usize]));
            let tokens = self.bpe.tokenize(&written).unwrap_or_default();
            self.check(word, &written, &tokens)?;
            ids.extend(tokens.iter().map(|token| token.id));
            Ok(())
        })
    }

    /// Nothing of a word may be lost: a model without a token for some byte leaves it out.
    fn check(&self, word: &str, written: &str, tokens: &[Token]) -> Result<()> {
        let covered: usize = tokens.iter().map(|token| token.value.len()).sum();
        if covered == written.len() {
            return Ok(());
        }
        let lost = word.bytes().find(|&byte| self.missing[byte as usize]);
        Err(TokenizerError::Unencodable {
            byte: lost.unwrap_or_default(),
        })
    }
}

/// Hands vocabulary and merges to the crate. Of equal merges the first counts: the crate keeps
/// the last, so they are handed over once.
fn build(data: &VocabData<'_>, vocab: &Vocab, whole_words: bool) -> tokenizers::Result<BPE> {
    let ids: TextIds = vocab.iter().map(|(id, text, _)| (text.to_owned(), id)).collect();
    let mut seen = std::collections::HashSet::new();
    let mut merges = merges::parse(data, vocab);
    merges.retain(|merge| seen.insert((merge.ids.0, merge.ids.1)));
    let merges = merges
        .iter()
        .map(|merge| (merge.left.to_owned(), merge.right.to_owned()));
    BPE::builder()
        .vocab_and_merges(ids, merges.collect())
        .ignore_merges(whole_words)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_is_one_to_one() {
        assert_eq!(CHAR_OF_BYTE[b' ' as usize], 'Ġ');
        assert_eq!(CHAR_OF_BYTE[b'\n' as usize], 'Ċ');
        assert_eq!(CHAR_OF_BYTE[173], '\u{143}');
        for byte in 0..=255u8 {
            assert_eq!(bytes_of(&CHAR_OF_BYTE[byte as usize].to_string()), [byte]);
        }
        assert_eq!(bytes_of("日"), "日".as_bytes());
    }

    fn model<'a>(tokens: &[&'a str], merges: &[&'a str], pre: &str) -> Result<ByteLevel> {
        let data = VocabData {
            tokens: tokens.to_vec(),
            merges: merges.to_vec(),
            ..VocabData::default()
        };
        ByteLevel::new(&data, &Vocab::new(&data)?, Rules::named(pre).unwrap())
    }

    fn encode(model: &ByteLevel, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        model.encode(text, &mut ids).map(|()| ids)
    }

    #[test]
    fn merges_by_rank_and_first_of_equals() {
        let tokens = ["a", "b", "c", "ab", "bc", "abc"];
        let model = model(&tokens, &["b c", "a b", "a bc", "b c"], "gpt-2").unwrap();
        assert_eq!(encode(&model, "abcab").unwrap(), [5, 3]);
    }

    #[test]
    fn whole_words_skip_merges() {
        let tokens = ["a", "b", "ab"];
        let with = model(&tokens, &[], "llama-bpe").unwrap();
        let without = model(&tokens, &[], "gpt-2").unwrap();
        assert_eq!(encode(&with, "ab").unwrap(), [2]);
        assert_eq!(encode(&without, "ab").unwrap(), [0, 1]);
    }

    #[test]
    fn lost_bytes_are_an_error() {
        let model = model(&["a"], &[], "gpt-2").unwrap();
        let error = encode(&model, "aéa").unwrap_err();
        assert_eq!(error, TokenizerError::Unencodable { byte: 0xC3 });
    }
}
