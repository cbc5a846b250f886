//! Arguments about launch shapes.

use crate::tuning::{TuningSource, store};
use clap::Args;
use std::path::PathBuf;

/// What commands that make an engine take.
#[derive(Args, Debug, Clone)]
pub struct TuningArguments {
    /// Launch shapes from this file, in place of those that `sparkinfer tune` found or that come with the program
    #[arg(long, value_name = "PATH", conflicts_with = "no_tune")]
    tuning: Option<PathBuf>,
    /// Launch shapes by rule alone
    #[arg(long)]
    no_tune: bool,
}

impl TuningArguments {
    /// Where the tuning is to come from.
    ///
    /// # Errors
    /// A file that is missing or no tuning.
    pub fn source(&self) -> anyhow::Result<TuningSource> {
        match &self.tuning {
            Some(path) => Ok(TuningSource::Given(
                store::read(path).map_err(anyhow::Error::msg)?.tuning,
            )),
            None if self.no_tune => Ok(TuningSource::Rules),
            None => Ok(TuningSource::Known),
        }
    }
}
