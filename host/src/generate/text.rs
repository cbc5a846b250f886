//! The tokenizer's side of the loop.

use super::TextStream;
use crate::tokenizer::{DecodeOptions, StreamDecoder, Tokenizer};

/// The text of sampled tokens. Control tokens have none.
#[derive(Debug)]
pub struct TokenText<'t> {
    tokenizer: &'t Tokenizer,
    decoder: Option<StreamDecoder<'t>>,
}

impl<'t> TokenText<'t> {
    /// A text that goes on after a prompt.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        Self {
            tokenizer,
            decoder: Some(tokenizer.stream(DecodeOptions::default())),
        }
    }
}

impl TextStream for TokenText<'_> {
    fn ends_text(&self, token: u32) -> bool {
        self.tokenizer.is_end(token)
    }

    fn push(&mut self, token: u32) -> String {
        self.decoder
            .as_mut()
            .map_or(String::new(), |decoder| decoder.push(token).to_owned())
    }

    fn finish(&mut self) -> String {
        self.decoder.take().map_or(String::new(), StreamDecoder::finish)
    }
}
