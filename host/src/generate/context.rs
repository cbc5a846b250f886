//! How much room a run needs.

/// Why a prompt cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// There is nothing to begin with.
    #[error("the prompt is empty, and this model's prompts do not begin with a token of their own: give some text")]
    EmptyPrompt,
    /// The prompt alone is too long.
    #[error("the prompt has {prompt} tokens, more than the context of {context}: shorten it{}", if *.more { " or raise --ctx" } else { "" })]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that there is room for.
        context: usize,
        /// Whether the model would take a longer context.
        more: bool,
    },
    /// More was asked for than the model was made for.
    #[error("--ctx {requested} is more than the {model} tokens that this model was made for")]
    BeyondModel {
        /// Tokens asked for.
        requested: usize,
        /// Tokens that the model was made for.
        model: usize,
    },
}

/// The context, in tokens, for a prompt of `prompt` tokens and at most `limit` new ones: as `requested`, else what they
/// need, at most what the model was made for (`model`).
///
/// # Errors
/// An empty prompt, one that does not fit, or a request beyond the model.
pub fn choose(requested: Option<usize>, prompt: usize, limit: usize, model: usize) -> Result<usize, ContextError> {
    let needed = prompt.saturating_add(limit).clamp(1, model.max(1));
    let context = requested.unwrap_or(needed);
    match () {
        _ if prompt == 0 => Err(ContextError::EmptyPrompt),
        _ if context > model => Err(ContextError::BeyondModel {
            requested: context,
            model,
        }),
        _ if prompt > context => Err(ContextError::PromptTooLong {
            prompt,
            context,
            more: context < model,
        }),
        _ => Ok(context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_is_needed_but_no_more_than_the_model() {
        assert_eq!(choose(None, 10, 128, 2048), Ok(138));
        assert_eq!(choose(None, 2000, 128, 2048), Ok(2048));
        assert_eq!(choose(None, 10, usize::MAX, 2048), Ok(2048));
        assert_eq!(choose(Some(512), 10, 1000, 2048), Ok(512));
    }

    #[test]
    fn refusals_give_both_numbers() {
        let message = |result: Result<usize, ContextError>| result.unwrap_err().to_string();
        assert_eq!(
            message(choose(None, 3000, 1, 2048)),
            "the prompt has 3000 tokens, more than the context of 2048: shorten it"
        );
        assert_eq!(
            message(choose(Some(8), 9, 1, 2048)),
            "the prompt has 9 tokens, more than the context of 8: shorten it or raise --ctx"
        );
        assert_eq!(
            message(choose(Some(4096), 9, 1, 2048)),
            "--ctx 4096 is more than the 2048 tokens that this model was made for"
        );
        assert!(message(choose(None, 0, 1, 2048)).starts_with("the prompt is empty"));
    }
}
