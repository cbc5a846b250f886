//! From ids back to text, one token at a time.

use super::{DecodeOptions, Tokenizer};

/// Turns a stream of ids into text that never ends inside a character.
///
/// A character may span several tokens: its bytes are held back until it is complete (three at
/// most). Bytes that cannot become a character come out as U+FFFD.
#[derive(Debug, Clone)]
pub struct StreamDecoder<'t> {
    tokenizer: &'t Tokenizer,
    options: DecodeOptions,
    held: Vec<u8>,
    text: String,
    at_start: bool,
}

impl<'t> StreamDecoder<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer, options: DecodeOptions) -> Self {
        Self {
            tokenizer,
            options,
            held: Vec::new(),
            text: String::new(),
            at_start: true,
        }
    }

    /// Adds a token and returns the text that is complete now; it may be empty.
    pub fn push(&mut self, id: u32) -> &str {
        let piece = self.tokenizer.piece(id, self.options.special);
        let mut bytes = &piece[..];
        if self.at_start && !bytes.is_empty() {
            let strip = self.options.strip_prefix && self.tokenizer.adds_space_prefix();
            bytes = bytes.strip_prefix(b" ").filter(|_| strip).unwrap_or(bytes);
            self.at_start = false;
        }
        self.held.extend_from_slice(bytes);
        self.text.clear();
        self.release();
        &self.text
    }

    /// Ends the stream and returns what was held back: U+FFFD if a character is incomplete, else
    /// nothing.
    pub fn finish(mut self) -> String {
        self.text.clear();
        if !self.held.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        self.text
    }

    /// Moves what is complete from the bytes to the text.
    fn release(&mut self) {
        let mut done = 0;
        for chunk in self.held.utf8_chunks() {
            self.text.push_str(chunk.valid());
            done += chunk.valid().len();
            let lost = chunk.invalid();
            let is_last = done + lost.len() == self.held.len();
            if lost.is_empty() || (is_last && is_incomplete(lost)) {
                continue;
            }
            self.text.push(char::REPLACEMENT_CHARACTER);
            done += lost.len();
        }
        self.held.drain(..done);
    }
}

/// Could more bytes make a character of these?
fn is_incomplete(bytes: &[u8]) -> bool {
    let error = std::str::from_utf8(bytes).err();
    error.is_some_and(|error| error.error_len().is_none())
}
