//! `sparkinfer tokenize`: the tokens of a text.

use super::{Outcome, output};
use crate::generate::prompt::Source;
use crate::load;
use crate::tokenizer::{EncodeOptions, Tokenizer, listing};
use clap::Args;
use std::path::PathBuf;

/// Show the tokens of a text
///
/// The text is read like a prompt: with the tokens that the model wants around one, and special tokens written in the
/// text taken as such.
#[derive(Args, Debug)]
pub struct Arguments {
    /// GGUF file; the first one of a split model [default: the bundled model]
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Print ids on one line, separated by spaces
    #[arg(long)]
    ids: bool,
    /// Add nothing, and take special tokens in the text as ordinary text
    #[arg(long)]
    no_special: bool,
    /// The text; - reads standard input (less one newline at its end)
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
}

impl Arguments {
    fn options(&self) -> EncodeOptions {
        if self.no_special {
            EncodeOptions::TEXT
        } else {
            EncodeOptions::PROMPT
        }
    }

    fn source(&self) -> Source {
        match &*self.text {
            "-" => Source::Stdin,
            text => Source::Text(text.to_owned()),
        }
    }
}

/// Prints the tokens.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let tokenizer = Tokenizer::from_gguf(&load::gguf(arguments.model.as_deref())?)?;
    let text = arguments.source().read()?;
    let ids = tokenizer.encode(&text, arguments.options())?;
    output::print_text(&if arguments.ids {
        listing::ids_line(&ids)
    } else {
        listing::lines(&tokenizer, &ids)
    })?;
    Ok(Outcome::Done)
}
