//! The bar that shows while a model loads: on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget};
use std::time::Duration;

/// A bar on standard error that goes away when it is dropped.
pub struct LoadBar(ProgressBar);

impl LoadBar {
    /// Shows that `model` is being loaded; shows nothing where standard error is no terminal, or if `quiet`.
    pub fn start(model: &str, quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_message(format!("loading {model}"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }
}

impl Drop for LoadBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
