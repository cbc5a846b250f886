//! The windows that a text is scored in: those of [`crate::perplexity`] and of llama.cpp's `llama-perplexity`.

use crate::engine::{EngineError, Result};

/// A stretch of a text that is computed on its own. The second half is scored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The text's tokens.
    text: Vec<u32>,
    /// What the engine is given in place of the first.
    first_input: u32,
}

impl Window {
    /// A window of at least 4 tokens; a model that begins texts with `bos` gets that in place of the first token.
    ///
    /// # Errors
    /// Too few tokens.
    pub fn new(text: &[u32], bos: Option<u32>) -> Result<Self> {
        if text.len() < 4 {
            let problem = format!("a window of {} tokens is too short to score: 4 at least", text.len());
            return Err(EngineError::Invalid(problem));
        }
        Ok(Self {
            text: text.to_vec(),
            first_input: bos.unwrap_or(text[0]),
        })
    }

    /// Cuts a text into windows of `length` tokens, `most` of them if given; a rest is left out.
    ///
    /// # Errors
    /// A text or a length that leaves no window.
    pub fn cut(text: &[u32], length: usize, most: Option<usize>, bos: Option<u32>) -> Result<Vec<Self>> {
        if length >= 4 && text.len() < length {
            let problem = format!(
                "the text has {} tokens, less than one window of {length}: take a longer text or smaller windows",
                text.len()
            );
            return Err(EngineError::Invalid(problem));
        }
        let pieces = text.chunks_exact(length.max(1)).take(most.unwrap_or(usize::MAX));
        pieces.map(|piece| Self::new(piece, bos)).collect()
    }

    /// Its tokens.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Never: a window has tokens.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// What an engine is given: everything but the last token, which is only predicted.
    pub fn input(&self) -> Vec<u32> {
        let mut input = self.text[..self.text.len() - 1].to_vec();
        input[0] = self.first_input;
        input
    }

    /// The first position whose prediction is scored.
    pub fn first_scored(&self) -> usize {
        self.text.len() / 2
    }

    /// The tokens to be predicted, in order: the one behind position [`Window::first_scored`] first.
    pub fn predicted(&self) -> &[u32] {
        &self.text[self.first_scored() + 1..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_half_is_predicted() {
        let windows = Window::cut(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 5, None, Some(99)).unwrap();
        assert_eq!(windows.len(), 2);
        assert_eq!(windows[1].input(), [99, 6, 7, 8]);
        assert_eq!((windows[1].first_scored(), windows[1].predicted()), (2, &[8, 9][..]));
        assert_eq!(Window::cut(&[0; 20], 5, Some(3), None).unwrap().len(), 3);
        assert_eq!(Window::cut(&[7; 5], 5, None, None).unwrap()[0].input(), [7; 4]);
    }

    #[test]
    fn short_ones_are_refused() {
        let problem = |text: &[u32], length| Window::cut(text, length, None, None).unwrap_err().to_string();
        assert!(problem(&[0; 9], 3).contains("3 tokens is too short"));
        assert!(problem(&[0; 9], 10).contains("9 tokens, less than one window of 10"));
        assert!(Window::cut(&[], 0, None, None).unwrap().is_empty());
    }
}
