//! Bars on standard error: on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Shows that a model is being loaded; goes away when it is dropped.
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

    /// `done` of `all` bytes have been brought to the device.
    pub fn set(&self, done: u64, all: u64) {
        if self.0.length() != Some(all) {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}");
            self.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.0.set_length(all);
        }
        self.0.set_position(done);
    }
}

impl Drop for LoadBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Shows how many windows of a text are done, and the perplexity so far; goes away when it is dropped.
pub struct WindowBar(ProgressBar);

impl WindowBar {
    /// A bar for this many windows.
    pub fn start(windows: usize, quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(windows as u64), target(quiet));
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} windows, perplexity {msg}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// One more window is done.
    pub fn next(&self, perplexity: f64) {
        self.0.set_message(format!("{perplexity:.3}"));
        self.0.inc(1);
    }
}

impl Drop for WindowBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Standard error; indicatif leaves it alone where it is no terminal.
fn target(quiet: bool) -> ProgressDrawTarget {
    if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    }
}
