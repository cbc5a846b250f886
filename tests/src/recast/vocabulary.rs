//! A shorter vocabulary: the first tokens, and the merges that they allow.

use std::borrow::Cow;
use std::collections::HashSet;

use anyhow::{Context, Result, ensure};
use sparkinfer_gguf::MetaValue;

use super::Recast;

/// Matrices with a row for each token.
const ROWS: [&str; 2] = ["token_embd.weight", "output.weight"];

impl Recast<'_> {
    /// Keeps the first `tokens` tokens of the vocabulary.
    ///
    /// # Errors
    /// There are fewer, or the file has no vocabulary.
    pub fn keep_tokens(&mut self, tokens: usize) -> Result<&mut Self> {
        for name in ROWS {
            self.keep_rows(name, tokens)?;
        }
        let metadata = self.source.metadata();
        let all = metadata.require_strings("tokenizer.ggml.tokens")?;
        let kept: Vec<&[u8]> = all.take(tokens).collect();
        if let Some(merges) = metadata.strings("tokenizer.ggml.merges")? {
            let known: HashSet<&[u8]> = kept.iter().copied().collect();
            let merges = merges.filter(|merge| is_possible(merge, &known));
            self.full("tokenizer.ggml.merges", MetaValue::strings(merges));
        }
        self.full("tokenizer.ggml.tokens", MetaValue::strings(&kept));
        if let Some(scores) = metadata.list::<f32>("tokenizer.ggml.scores")? {
            self.full("tokenizer.ggml.scores", scores[..tokens].into());
        }
        if let Some(types) = metadata.list::<i32>("tokenizer.ggml.token_type")? {
            self.full("tokenizer.ggml.token_type", types[..tokens].into());
        }
        for (key, _) in metadata.iter().filter(|(key, _)| key.ends_with("_token_id")) {
            if metadata.u32(key)?.is_some_and(|id| id as usize >= tokens) {
                self.metadata.remove(key);
            }
        }
        Ok(self.set("vocab_size", tokens as u32))
    }

    fn full(&mut self, key: &str, value: MetaValue) {
        self.metadata.insert(key.into(), value);
    }

    /// Keeps the first rows of a matrix, if there is such a matrix.
    fn keep_rows(&mut self, name: &str, rows: usize) -> Result<()> {
        let Some(piece) = self.tensors.get_mut(name) else {
            return Ok(());
        };
        let had = *piece.shape.get(1).with_context(|| format!("{name} is no matrix"))? as usize;
        ensure!(rows <= had, "{name} has {had} rows, not {rows}");
        let bytes = piece.data.len() / had * rows;
        piece.shape[1] = rows as u64;
        match &mut piece.data {
            Cow::Borrowed(data) => *data = &data[..bytes],
            Cow::Owned(data) => data.truncate(bytes),
        }
        Ok(())
    }
}

/// Whether both halves of a merge and what it makes are tokens.
fn is_possible(merge: &[u8], known: &HashSet<&[u8]>) -> bool {
    // A half may begin with a space of its own.
    let space = (1..merge.len()).find(|&at| merge[at] == b' ');
    space.is_some_and(|at| {
        let (first, second) = (&merge[..at], &merge[at + 1..]);
        [first, second, &[first, second].concat()]
            .iter()
            .all(|token| known.contains(*token))
    })
}
