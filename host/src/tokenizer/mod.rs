//! Tokenizers, built from a GGUF file's metadata.
//!
//! Three kinds of model turn text into ids: byte-level BPE (`gpt2`), SentencePiece BPE (`llama`)
//! and BPE over characters (`gemma4`). Around them all is the same: special tokens are found
//! first, the text between them goes to the model, and beginning- and end-of-sequence
//! tokens are added if asked for. Results are llama.cpp's.

mod byte_level;
mod bytes;
mod error;
pub mod listing;
mod merge;
mod merges;
mod metadata;
mod raw_bpe;
mod roles;
mod special;
mod spm;
mod stream;
mod vocab;
mod words;

use std::borrow::Cow;
use std::collections::BTreeSet;

use byte_level::ByteLevel;
use error::quoted;
use raw_bpe::RawBpe;
use sparkinfer_gguf::Gguf;
use special::{Fragment, SpecialTokens};
use spm::Spm;
use vocab::Vocab;
use words::Rules;

pub use error::{Result, TokenizerError};
pub use stream::StreamDecoder;
pub use vocab::{SpecialIds, TokenKind, VocabData};

/// The values of `tokenizer.ggml.model` that are supported.
const MODELS: &str = "gpt2, llama, gemma4";

/// How a text is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncodeOptions {
    /// Add the beginning- and end-of-sequence tokens that the model wants around a prompt.
    pub add_special: bool,
    /// Read control tokens written in the text as such. User-defined tokens always are.
    pub parse_special: bool,
}

impl EncodeOptions {
    /// Text as it is: nothing added, control tokens read as ordinary text.
    pub const TEXT: Self = Self {
        add_special: false,
        parse_special: false,
    };
    /// A whole prompt: with what the model wants around it, control tokens read as such.
    pub const PROMPT: Self = Self {
        add_special: true,
        parse_special: true,
    };
}

/// How ids are turned into text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecodeOptions {
    /// Write control tokens out.
    pub special: bool,
    /// Drop the space that encoding put in front of the text (some SentencePiece models do).
    /// Not for text that continues a prompt.
    pub strip_prefix: bool,
}

/// A tokenizer: text to ids and back.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    special: SpecialTokens,
    model: Model,
    ends: BTreeSet<u32>,
    suppress: Vec<u32>,
    add_bos: bool,
    add_eos: bool,
}

#[derive(Debug)]
enum Model {
    ByteLevel(Box<ByteLevel>),
    Spm(Spm),
    RawBpe(RawBpe),
}

/// A model, and whether its prompts begin with a beginning-of-sequence token where the metadata
/// does not say.
struct Built {
    model: Model,
    add_bos: bool,
}

impl Built {
    /// Do prompts begin with a beginning-of-sequence token? Gemma 4 always needs it: there are
    /// files that say otherwise.
    fn begins(&self, add_bos: Option<bool>) -> bool {
        matches!(self.model, Model::RawBpe(_)) || add_bos.unwrap_or(self.add_bos)
    }
}

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file.
    ///
    /// # Errors
    /// As [`Self::from_data`], and if a key is missing or of the wrong kind.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        Self::from_data(metadata::read(gguf)?)
    }

    /// Builds a tokenizer from metadata.
    ///
    /// # Errors
    /// If the model or its pre-tokeniser is not supported, or lists do not fit together; the
    /// message names file and key.
    pub fn from_data(mut data: VocabData<'_>) -> Result<Self> {
        if data.model == "llama" {
            spm_defaults(&mut data.ids);
        }
        let mut vocab = Vocab::new(&data)?;
        let built = build(&data, &vocab)?;
        let ends = roles::assign(&mut vocab);
        let known = |id: &i32| u32::try_from(*id).ok().filter(|id| vocab.text(*id).is_some());
        Ok(Self {
            special: SpecialTokens::new(&data, &vocab)?,
            suppress: data.suppress.iter().filter_map(known).collect(),
            ends,
            add_bos: built.begins(data.add_bos) && vocab.ids.bos.is_some(),
            add_eos: data.add_eos.unwrap_or(false) && vocab.ids.eos.is_some(),
            model: built.model,
            vocab,
        })
    }

    /// Turns a text into ids.
    ///
    /// # Errors
    /// If the vocabulary has no token for some byte of the text.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if options.add_special && self.add_bos {
            ids.extend(self.vocab.ids.bos);
        }
        for fragment in self.special.split(text, options.parse_special) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => self.encode_text(text, &mut ids)?,
            }
        }
        if options.add_special && self.add_eos {
            ids.extend(self.vocab.ids.eos);
        }
        Ok(ids)
    }

    /// Turns a rendered chat into ids: a prompt, except that templates may write the
    /// beginning-of-sequence token themselves, which must not be there twice.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_chat(&self, text: &str) -> Result<Vec<u32>> {
        let bos = self.bos().filter(|_| self.add_bos);
        let bos = bos.and_then(|id| self.token_text(id));
        let text = bos.and_then(|bos| text.strip_prefix(bos)).unwrap_or(text);
        self.encode(text, EncodeOptions::PROMPT)
    }

    fn encode_text(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        match &self.model {
            Model::ByteLevel(model) => model.encode(text, ids),
            Model::Spm(model) => model.encode(&self.vocab, text, ids),
            Model::RawBpe(model) => model.encode(&self.vocab, text, ids),
        }
    }

    /// The text of some ids. Bytes that are no characters become U+FFFD.
    pub fn decode(&self, ids: &[u32], options: DecodeOptions) -> String {
        let mut stream = self.stream(options);
        let mut text: String = ids.iter().fold(String::new(), |text, &id| text + stream.push(id));
        text.push_str(&stream.finish());
        text
    }

    /// A decoder for ids that come one by one.
    pub fn stream(&self, options: DecodeOptions) -> StreamDecoder<'_> {
        StreamDecoder::new(self, options)
    }

    /// The bytes that a token stands for in a text. Control and unknown tokens have none unless
    /// `special` is set; ids without a token have none.
    pub fn piece(&self, id: u32, special: bool) -> Cow<'_, [u8]> {
        let kind = self.vocab.kind(id);
        let text = self.vocab.text(id).unwrap_or_default();
        match kind {
            TokenKind::Control | TokenKind::Unknown if !special => Cow::default(),
            TokenKind::Unused => Cow::default(),
            TokenKind::Byte => Cow::Owned(byte_value(text).into_iter().collect()),
            TokenKind::Normal => Cow::Owned(self.unescape(text)),
            _ => Cow::Borrowed(text.as_bytes()),
        }
    }

    fn unescape(&self, text: &str) -> Vec<u8> {
        match self.model {
            Model::ByteLevel(_) => byte_level::bytes_of(text),
            Model::Spm(_) | Model::RawBpe(_) => text.replace('▁', " ").into_bytes(),
        }
    }

    /// Number of tokens; ids are below it. A model's output may be wider (padding).
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// A token's text as it stands in the vocabulary (with Ġ or ▁ for spaces).
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocab.text(id)
    }

    /// The id of the token with this very text.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.vocab.id(text)
    }

    /// What a token stands for.
    pub fn token_kind(&self, id: u32) -> TokenKind {
        self.vocab.kind(id)
    }

    /// Ids with a special role.
    pub fn special_ids(&self) -> SpecialIds {
        self.vocab.ids
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.ids.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.ids.eos
    }

    /// Do prompts begin with the beginning-of-sequence token?
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Does the token end a generation?
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// All tokens that end a generation, ascending.
    pub fn end_ids(&self) -> impl Iterator<Item = u32> {
        self.ends.iter().copied()
    }

    /// Tokens that must never be sampled.
    pub fn suppressed(&self) -> &[u32] {
        &self.suppress
    }

    fn adds_space_prefix(&self) -> bool {
        matches!(&self.model, Model::Spm(model) if model.space_prefix)
    }
}

/// The ids that SentencePiece models have where the metadata does not say.
fn spm_defaults(ids: &mut SpecialIds) {
    ids.unk = ids.unk.or(Some(0));
    ids.bos = ids.bos.or(Some(1));
    ids.eos = ids.eos.or(Some(2));
}

fn build(data: &VocabData<'_>, vocab: &Vocab) -> Result<Built> {
    match &*data.model {
        "gpt2" => {
            let rules = rules(data)?;
            let model = ByteLevel::new(data, vocab, rules)?;
            Ok(Built {
                model: Model::ByteLevel(Box::new(model)),
                add_bos: rules.add_bos,
            })
        }
        "llama" => Ok(Built {
            model: Model::Spm(Spm::new(data, vocab)?),
            add_bos: true,
        }),
        "gemma4" => Ok(Built {
            model: Model::RawBpe(RawBpe::new(data, vocab)),
            add_bos: true,
        }),
        other => {
            let problem = format!("{} is not supported (supported: {MODELS})", quoted(other));
            Err(data.error("model", problem))
        }
    }
}

fn rules(data: &VocabData<'_>) -> Result<Rules> {
    let supported = || format!("(supported: {})", Rules::names());
    let Some(name) = &data.pre else {
        let problem = format!("missing; the file must name its pre-tokeniser {}", supported());
        return Err(data.error("pre", problem));
    };
    let unknown = || data.error("pre", format!("{} is not supported {}", quoted(name), supported()));
    Rules::named(name).ok_or_else(unknown)
}

/// The byte of `<0xXX>`.
fn byte_value(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests;
