//! What every engine can do: take tokens, give logits.
//!
//! An engine works on one sequence, its current one: a cache of keys and values that [`Engine::prefill`] and
//! [`Engine::decode`] extend. Others wait meanwhile ([`Engine::fork`], [`Engine::switch`]). An engine knows token ids
//! only; text, JSON and stop strings live above it.

pub(crate) mod many;
mod sequence;

use std::ops::ControlFlow;

use crate::model::KvType;
use crate::profile::Profile;
use crate::sample::Sampler;
use crate::tuning::Tuning;

pub use sequence::Sequence;
pub(crate) use sequence::{Mark, Waiting};

/// The result of everything an engine does.
pub type Result<T> = std::result::Result<T, EngineError>;

/// Why an engine could not do what was asked. The sequence is unchanged, except after
/// [`EngineError::Device`], when it must be [reset](Engine::reset).
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The tokens do not fit behind those already cached.
    #[error(
        "{position} cached and {new} new tokens exceed the context of {context}: shorten the prompt or raise --ctx"
    )]
    ContextFull {
        /// Tokens already cached.
        position: usize,
        /// Tokens to be added.
        new: usize,
        /// Room of the cache, in tokens.
        context: usize,
    },
    /// A token id that the model has no embedding for.
    #[error("token id {token} is outside the vocabulary of {vocab_size}")]
    BadToken {
        /// The offending id.
        token: u32,
        /// Number of ids the model knows.
        vocab_size: usize,
    },
    /// Logits were asked for without giving a token.
    #[error("no tokens were given: a prompt needs at least one")]
    Empty,
    /// A score without a meaning (perplexity of too short a text, for example).
    #[error("{0}")]
    Invalid(String),
    /// The caller's own callback failed.
    #[error("{0}")]
    Callback(String),
    /// The accelerator or its driver failed.
    #[error("device: {0}")]
    Device(String),
}

/// What an engine says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The model, as its file names it, and its architecture.
    pub model: String,
    /// The device and the arithmetic, for example `CPU, 2 threads, q8 activations`.
    pub device: String,
    /// Bytes of weights held (mapped files count).
    pub weight_bytes: u64,
    /// Bytes of the key/value cache at full context.
    pub kv_bytes: u64,
    /// Type of the key/value cache.
    pub kv: KvType,
}

/// Sequences on one device, one of them the current one.
pub trait Engine {
    /// Appends `tokens` to the cache and returns the logits (`vocab_size` values) that follow the
    /// last of them.
    ///
    /// # Errors
    /// No token, a token outside the vocabulary, or more tokens than the context has room for.
    fn prefill(&mut self, tokens: &[u32]) -> Result<&[f32]>;

    /// Appends one token and returns the logits that follow it.
    ///
    /// # Errors
    /// As [`Engine::prefill`].
    fn decode(&mut self, token: u32) -> Result<&[f32]>;

    /// Appends `tokens` and calls `each(i, logits)` with the logits that follow `tokens[i]`, for
    /// every i from `from` on, in order.
    ///
    /// # Errors
    /// As [`Engine::prefill`], and whatever `each` returns.
    fn logits_of_all(
        &mut self,
        tokens: &[u32],
        from: usize,
        each: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()>;

    /// Forgets all but the first `len` cached tokens; a `len` past the end changes nothing.
    fn truncate(&mut self, len: usize);

    /// Forgets every cached token.
    fn reset(&mut self) {
        self.truncate(0);
    }

    /// A new sequence that begins with the first `len` cached tokens of the current one (with all, for a `len` past
    /// the end), which stays the current one. Both go on independently; what they have in common is kept once where
    /// the engine can.
    ///
    /// # Errors
    /// Too little memory, or an engine of one sequence.
    fn fork(&mut self, _len: usize) -> Result<Sequence> {
        Err(EngineError::Invalid("this engine has one sequence only".into()))
    }

    /// Makes `to` the current sequence and returns the one that was.
    ///
    /// # Errors
    /// A sequence of another engine.
    fn switch(&mut self, _to: Sequence) -> Result<Sequence> {
        Err(EngineError::Invalid("this engine has one sequence only".into()))
    }

    /// Appends `tokens[i]` to `sequences[i]` (of those that wait: [`Engine::fork`], [`Engine::switch`]), each for itself,
    /// and puts the likeliest next token in its place. Engines that can take all in one step; then a sequence's tokens
    /// depend neither on the other sequences nor on their number, but may differ from [`Engine::decode`]'s by rounding.
    ///
    /// # Errors
    /// As [`Engine::prefill`] for any of them, a sequence of another engine, or not as many tokens as sequences. An
    /// engine that takes one after the other may have appended some.
    fn next_of_many(&mut self, sequences: &mut [Sequence], tokens: &mut [u32]) -> Result<()> {
        many::next_one_by_one(self, sequences, tokens)
    }

    /// As [`Engine::next_of_many`], but calls `each(i, logits)` with the logits behind each token, in order.
    ///
    /// # Errors
    /// As [`Engine::next_of_many`], and whatever `each` returns.
    fn logits_of_many(
        &mut self,
        sequences: &mut [Sequence],
        tokens: &[u32],
        each: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        many::logits_one_by_one(self, sequences, tokens, each)
    }

    /// Number of cached tokens.
    fn position(&self) -> usize;

    /// Room of the cache, in tokens.
    fn context(&self) -> usize;

    /// Number of logits.
    fn vocab_size(&self) -> usize;

    /// Model, device and memory.
    fn description(&self) -> &Description;

    /// Appends one token like [`Engine::decode`], slowly, and gives what can be compared between engines: the residual
    /// stream behind the embedding and behind each part of each layer, in the model's order, and last the logits.
    ///
    /// # Errors
    /// As [`Engine::prefill`], and [`EngineError::Invalid`] for an engine that cannot be looked into.
    fn trace(&mut self, _token: u32) -> Result<Vec<Vec<f32>>> {
        Err(EngineError::Invalid("this engine keeps no trace of its parts".into()))
    }

    /// Times the stages of the step that would append `token`, each repeated `repetitions` times; nothing is appended.
    /// None for an engine whose step has no stages.
    ///
    /// # Errors
    /// As [`Engine::prefill`].
    fn profile(&mut self, _token: u32, _repetitions: usize) -> Result<Option<Profile>> {
        Ok(None)
    }

    /// As [`Engine::profile`], of the step that would append `tokens[i]` to `sequences[i]`. None for an engine that takes one
    /// sequence after the other.
    ///
    /// # Errors
    /// As [`Engine::next_of_many`], or more sequences than a step takes.
    fn profile_of_many(
        &mut self,
        _sequences: &[Sequence],
        _tokens: &[u32],
        _repetitions: usize,
    ) -> Result<Option<Profile>> {
        Ok(None)
    }

    /// Bytes a second at which the engine's device reads memory that no cache holds, measured now with nothing but
    /// reads: the limit of decoding. None where that means nothing.
    ///
    /// # Errors
    /// No memory to measure with, or the device's.
    fn read_bandwidth(&mut self) -> Result<Option<f64>> {
        Ok(None)
    }

    /// How launches are cut; none for an engine without launches.
    fn tuning(&self) -> Option<Tuning> {
        None
    }

    /// Cuts launches otherwise, as far as memory allows that was taken for another tuning; engines without launches
    /// ignore it. Cached tokens stay.
    ///
    /// # Errors
    /// A choice that is out of its range, or the device's.
    fn retune(&mut self, _tuning: Tuning) -> Result<()> {
        Ok(())
    }

    /// Prefills `prompt`, then samples up to `limit` tokens, giving each to `on_token` until that
    /// breaks or the context is full. Returns how many were given.
    ///
    /// Afterwards the cache holds the prompt and every generated token but the last. An engine
    /// with a sampler on its device overrides this and must give the same tokens.
    ///
    /// # Errors
    /// As [`Engine::prefill`].
    fn generate(
        &mut self,
        prompt: &[u32],
        sampler: &mut Sampler,
        limit: usize,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<usize> {
        generate_on_host(self, prompt, sampler, limit, on_token)
    }
}

/// [`Engine::generate`] with every token sampled from logits on the host.
///
/// # Errors
/// As [`Engine::prefill`].
pub fn generate_on_host<E: Engine + ?Sized>(
    engine: &mut E,
    prompt: &[u32],
    sampler: &mut Sampler,
    limit: usize,
    on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
) -> Result<usize> {
    prompt.iter().for_each(|&token| sampler.accept(token));
    if limit == 0 {
        engine.prefill(prompt)?;
        return Ok(0);
    }
    let mut token = sampler.sample(meaningful(engine.prefill(prompt)?)?);
    for count in 1.. {
        sampler.accept(token);
        if on_token(token).is_break() || count == limit || engine.position() == engine.context() {
            return Ok(count);
        }
        token = sampler.sample(meaningful(engine.decode(token)?)?);
    }
    Ok(limit)
}

/// Logits from which a token can be chosen: one of them at least is a number.
///
/// # Errors
/// None is.
pub(crate) fn meaningful(logits: &[f32]) -> Result<&[f32]> {
    if logits.iter().any(|logit| logit.is_finite()) {
        return Ok(logits);
    }
    Err(no_number())
}

/// The error over logits from which no token can be chosen.
pub(crate) fn no_number() -> EngineError {
    let problem = "none of the model's logits is a number: its weights are damaged, or too large for this arithmetic";
    EngineError::Invalid(problem.into())
}

/// Checks, before anything changes, that `tokens` can be appended to a cache.
///
/// # Errors
/// As [`Engine::prefill`].
pub fn check_tokens(tokens: &[u32], position: usize, context: usize, vocab_size: usize) -> Result<()> {
    if tokens.is_empty() {
        return Err(EngineError::Empty);
    }
    if tokens.len() > context.saturating_sub(position) {
        return Err(EngineError::ContextFull {
            position,
            new: tokens.len(),
            context,
        });
    }
    match tokens.iter().find(|&&token| token as usize >= vocab_size) {
        Some(&token) => Err(EngineError::BadToken { token, vocab_size }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::SampleOptions;

    /// Prefers token `position % vocab`.
    struct Counting {
        logits: Vec<f32>,
        position: usize,
        description: Description,
    }

    impl Counting {
        fn new() -> Self {
            let text = String::new();
            Counting {
                logits: vec![0.0; 5],
                position: 0,
                description: Description {
                    model: text.clone(),
                    device: text,
                    weight_bytes: 0,
                    kv_bytes: 0,
                    kv: KvType::F16,
                },
            }
        }
    }

    impl Engine for Counting {
        fn prefill(&mut self, tokens: &[u32]) -> Result<&[f32]> {
            check_tokens(tokens, self.position, self.context(), 5)?;
            self.position += tokens.len();
            self.logits.fill(0.0);
            self.logits[self.position % 5] = 1.0;
            Ok(&self.logits)
        }
        fn decode(&mut self, token: u32) -> Result<&[f32]> {
            self.prefill(&[token])
        }
        fn logits_of_all(&mut self, _: &[u32], _: usize, _: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
            Ok(())
        }
        fn truncate(&mut self, len: usize) {
            self.position = self.position.min(len);
        }
        fn position(&self) -> usize {
            self.position
        }
        fn context(&self) -> usize {
            8
        }
        fn vocab_size(&self) -> usize {
            5
        }
        fn description(&self) -> &Description {
            &self.description
        }
    }

    fn run(limit: usize, stop: Option<u32>) -> (Vec<u32>, usize) {
        let mut engine = Counting::new();
        let mut sampler = Sampler::new(SampleOptions::default());
        let mut seen = Vec::new();
        let count = engine
            .generate(&[1, 2], &mut sampler, limit, &mut |token| {
                seen.push(token);
                if Some(token) == stop {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .unwrap();
        assert_eq!(count, seen.len());
        (seen, engine.position())
    }

    #[test]
    fn logits_without_a_number_are_refused() {
        assert!(meaningful(&[f32::NAN, 1.0]).is_ok());
        assert!(meaningful(&[f32::NAN, f32::NEG_INFINITY]).is_err());
    }

    #[test]
    fn generation_stops_at_limit_break_and_full_context() {
        assert_eq!(run(3, None), (vec![2, 3, 4], 4));
        assert_eq!(run(100, Some(4)), (vec![2, 3, 4], 4));
        assert_eq!(run(100, None), (vec![2, 3, 4, 0, 1, 2, 3], 8));
        assert_eq!(run(0, None), (vec![], 2));
    }

    #[test]
    fn bad_tokens_are_named() {
        assert!(matches!(check_tokens(&[], 0, 8, 5), Err(EngineError::Empty)));
        assert!(matches!(
            check_tokens(&[0, 7], 0, 8, 5),
            Err(EngineError::BadToken { token: 7, .. })
        ));
        let error = check_tokens(&[0; 3], 6, 8, 5).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("6 cached and 3 new tokens exceed the context of 8")
        );
    }
}
