//! Steps of several sequences, for engines that take one after the other.

use super::{Engine, EngineError, Result, Sequence, meaningful};
use crate::sample::argmax;

/// Refuses tokens that are not one a sequence.
///
/// # Errors
/// None at all, or other numbers of both.
pub(crate) fn check_pairs(sequences: &[Sequence], tokens: &[u32]) -> Result<()> {
    if sequences.len() == tokens.len() && !tokens.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "{} tokens for {} sequences: each takes one",
        tokens.len(),
        sequences.len()
    );
    Err(EngineError::Invalid(problem))
}

/// [`Engine::next_of_many`], one sequence after the other.
///
/// # Errors
/// As [`Engine::next_of_many`].
pub(crate) fn next_one_by_one<E: Engine + ?Sized>(
    engine: &mut E,
    sequences: &mut [Sequence],
    tokens: &mut [u32],
) -> Result<()> {
    let mut next = tokens.to_vec();
    logits_one_by_one(engine, sequences, tokens, &mut |i, logits| {
        next[i] = argmax(meaningful(logits)?);
        Ok(())
    })?;
    tokens.copy_from_slice(&next);
    Ok(())
}

/// [`Engine::logits_of_many`], one sequence after the other.
///
/// # Errors
/// As [`Engine::logits_of_many`].
pub(crate) fn logits_one_by_one<E: Engine + ?Sized>(
    engine: &mut E,
    sequences: &mut [Sequence],
    tokens: &[u32],
    each: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
) -> Result<()> {
    check_pairs(sequences, tokens)?;
    for (i, (sequence, &token)) in sequences.iter_mut().zip(tokens).enumerate() {
        let last = engine.switch(sequence.alias())?;
        let given = engine.decode(token).and_then(|logits| each(i, logits));
        *sequence = engine.switch(last)?;
        given?;
    }
    Ok(())
}
