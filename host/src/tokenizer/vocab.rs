//! The vocabulary: texts, kinds and special roles of all tokens, checked once.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::{Result, TokenizerError, quoted};

/// Prefix of all tokenizer keys in GGUF metadata.
pub(super) const PREFIX: &str = "tokenizer.ggml.";

/// Ids with a special role, as the metadata gives them (`tokenizer.ggml.*_token_id`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Beginning of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// End of a chat turn.
    pub eot: Option<u32>,
    /// End of a message that expects a tool's answer.
    pub eom: Option<u32>,
    /// Unknown piece of text.
    pub unk: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Fill-in-the-middle: before the gap.
    pub fim_pre: Option<u32>,
    /// Fill-in-the-middle: after the gap.
    pub fim_suf: Option<u32>,
    /// Fill-in-the-middle: the gap.
    pub fim_mid: Option<u32>,
    /// Fill-in-the-middle: padding.
    pub fim_pad: Option<u32>,
    /// Fill-in-the-middle: name of a repository.
    pub fim_rep: Option<u32>,
    /// Fill-in-the-middle: separator between files.
    pub fim_sep: Option<u32>,
}

impl SpecialIds {
    /// Forgets every id that none of `count` tokens has, and returns those with their names in the metadata.
    fn forget_from(&mut self, count: usize) -> Vec<(&'static str, u32)> {
        let ids = [
            ("bos", &mut self.bos),
            ("eos", &mut self.eos),
            ("eot", &mut self.eot),
            ("eom", &mut self.eom),
            ("unknown", &mut self.unk),
            ("padding", &mut self.pad),
            ("fim_pre", &mut self.fim_pre),
            ("fim_suf", &mut self.fim_suf),
            ("fim_mid", &mut self.fim_mid),
            ("fim_pad", &mut self.fim_pad),
            ("fim_rep", &mut self.fim_rep),
            ("fim_sep", &mut self.fim_sep),
        ];
        let forget = |(name, id): (_, &mut Option<u32>)| Some((name, id.take_if(|id| *id as usize >= count)?));
        ids.into_iter().filter_map(forget).collect()
    }
}

/// Tokenizer metadata as it stands in a file, before any check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VocabData<'a> {
    /// The file's name, for error messages.
    pub file: String,
    /// `tokenizer.ggml.model`.
    pub model: String,
    /// `tokenizer.ggml.pre`.
    pub pre: Option<String>,
    /// Token texts; the index is the id.
    pub tokens: Vec<&'a str>,
    /// Token types; at least as many as tokens, or none at all.
    pub types: Option<Vec<i32>>,
    /// Scores (SentencePiece); at least as many as tokens.
    pub scores: Option<Vec<f32>>,
    /// Merges, `left right`, in order of rank.
    pub merges: Vec<&'a str>,
    /// Ids with a special role.
    pub ids: SpecialIds,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.ggml.suppress_tokens`: ids that must never be sampled.
    pub suppress: Vec<i32>,
}

impl VocabData<'_> {
    /// An error about one of the file's keys (given without the common prefix).
    pub(super) fn error(&self, key: &str, problem: impl Into<String>) -> TokenizerError {
        TokenizerError::Metadata {
            file: self.file.clone(),
            key: format!("{PREFIX}{key}"),
            problem: problem.into(),
        }
    }
}

/// What a token stands for (`tokenizer.ggml.token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Ordinary text.
    Normal,
    /// The unknown token.
    Unknown,
    /// A control token: structure, not text.
    Control,
    /// A token that is matched verbatim before the text is split, and that is visible text.
    UserDefined,
    /// A row that the tokenizer never produces.
    Unused,
    /// One raw byte, written `<0xXX>`.
    Byte,
}

impl TokenKind {
    fn from_type(value: i32) -> Self {
        match value {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            6 => Self::Byte,
            _ => Self::Unused,
        }
    }

    /// Is the token hidden from ordinary output, and matched in text only on request?
    pub fn is_hidden(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }

    /// Is the token matched verbatim in a text (if allowed)?
    pub fn is_special(self) -> bool {
        self.is_hidden() || self == Self::UserDefined
    }
}

/// A checked vocabulary.
#[derive(Debug)]
pub(super) struct Vocab {
    texts: Vec<Arc<str>>,
    kinds: Vec<TokenKind>,
    by_text: HashMap<Arc<str>, u32>,
    pub(super) ids: SpecialIds,
}

impl Vocab {
    /// Checks the token list and its types.
    pub(super) fn new(data: &VocabData<'_>) -> Result<Self> {
        let count = data.tokens.len();
        if count == 0 || u32::try_from(count).is_err() {
            return Err(data.error("tokens", format!("{count} tokens; at least 1 is needed")));
        }
        let texts: Vec<Arc<str>> = data.tokens.iter().enumerate().map(token_text).collect();
        let mut ids = data.ids;
        for (name, id) in ids.forget_from(count) {
            let problem = format!("{id} is none of the {count} tokens: ignored");
            tracing::warn!("{}", data.error(&format!("{name}_token_id"), problem));
        }
        Ok(Self {
            by_text: index(data, &texts)?,
            kinds: kinds(data)?,
            ids,
            texts,
        })
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Text of a token as it stands in the vocabulary.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize).map(|text| &**text)
    }

    /// Kind of a token; `Unused` past the end.
    pub(super) fn kind(&self, id: u32) -> TokenKind {
        let kind = self.kinds.get(id as usize);
        kind.copied().unwrap_or(TokenKind::Unused)
    }

    /// Gives a token another kind.
    pub(super) fn set_kind(&mut self, id: u32, kind: TokenKind) {
        if let Some(slot) = self.kinds.get_mut(id as usize) {
            *slot = kind;
        }
    }

    /// Id of the token with this text.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }

    /// All tokens: id, text, kind.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        let kinds = self.kinds.iter().copied();
        let tokens = self.texts.iter().zip(kinds).enumerate();
        tokens.map(|(id, (text, kind))| (id as u32, &**text, kind))
    }

    /// Id of the token that stands for one raw byte: `<0xXX>`, else the byte as text.
    pub(super) fn byte_token(&self, byte: u8) -> Option<u32> {
        let as_text = || {
            let text = std::str::from_utf8(std::slice::from_ref(&byte)).ok()?;
            self.id(text)
        };
        self.id(&format!("<0x{byte:02X}>")).or_else(as_text)
    }
}

/// Empty texts get a name of their own: nothing may match an empty string.
fn token_text((id, text): (usize, &&str)) -> Arc<str> {
    if text.is_empty() {
        format!("[EMPTY_{id}]").into()
    } else {
        (*text).into()
    }
}

fn index(data: &VocabData<'_>, texts: &[Arc<str>]) -> Result<HashMap<Arc<str>, u32>> {
    let mut by_text = HashMap::with_capacity(texts.len());
    for (id, text) in texts.iter().enumerate() {
        if let Some(first) = by_text.insert(text.clone(), id as u32) {
            let problem = format!("tokens {first} and {id} are both {}", quoted(text));
            return Err(data.error("tokens", problem));
        }
    }
    Ok(by_text)
}

fn kinds(data: &VocabData<'_>) -> Result<Vec<TokenKind>> {
    let count = data.tokens.len();
    match &data.types {
        None => Ok(vec![TokenKind::Normal; count]),
        Some(types) if types.len() < count => {
            let problem = format!("{} entries for {count} tokens", types.len());
            Err(data.error("token_type", problem))
        }
        Some(types) => {
            let types = types[..count].iter();
            Ok(types.map(|&value| TokenKind::from_type(value)).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data<'a>(tokens: &[&'a str]) -> VocabData<'a> {
        VocabData {
            file: "x.gguf".into(),
            tokens: tokens.to_vec(),
            ..VocabData::default()
        }
    }

    fn message(data: &VocabData<'_>) -> String {
        Vocab::new(data).unwrap_err().to_string()
    }

    #[test]
    fn refuses_damaged_lists_by_key() {
        assert_eq!(
            message(&data(&[])),
            "x.gguf: key 'tokenizer.ggml.tokens': 0 tokens; at least 1 is needed"
        );
        assert_eq!(
            message(&data(&["a", "b", "a"])),
            "x.gguf: key 'tokenizer.ggml.tokens': tokens 0 and 2 are both 'a'"
        );
        let mut short = data(&["a", "b"]);
        short.types = Some(vec![1]);
        assert_eq!(
            message(&short),
            "x.gguf: key 'tokenizer.ggml.token_type': 1 entries for 2 tokens"
        );
    }

    #[test]
    fn ids_without_a_token_are_forgotten() {
        let mut data = data(&["a", "b"]);
        data.ids.bos = Some(1);
        data.ids.eos = Some(2);
        let vocab = Vocab::new(&data).unwrap();
        assert_eq!((vocab.ids.bos, vocab.ids.eos), (Some(1), None));
        assert_eq!(data.ids.forget_from(2), [("eos", 2)]);
    }

    #[test]
    fn empty_texts_are_named_and_unknown_types_unused() {
        let mut data = data(&["a", ""]);
        data.types = Some(vec![1, 77, 3]);
        let vocab = Vocab::new(&data).unwrap();
        assert_eq!(vocab.text(1), Some("[EMPTY_1]"));
        assert_eq!(vocab.kind(1), TokenKind::Unused);
        assert_eq!(vocab.kind(2), TokenKind::Unused);
        assert_eq!(vocab.text(2), None);
    }

    #[test]
    fn bytes_are_found_in_both_spellings() {
        let vocab = Vocab::new(&data(&["<0x41>", "B"])).unwrap();
        assert_eq!(vocab.byte_token(b'A'), Some(0));
        assert_eq!(vocab.byte_token(b'B'), Some(1));
        assert_eq!(vocab.byte_token(0xFF), None);
    }
}
