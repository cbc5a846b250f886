//! Ctrl-C and termination signals.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Catches the signals from now on: the first one sets the flag that comes back, so that the run can end in order
/// with what it has; a second one ends the process at once.
pub fn watch() -> anyhow::Result<&'static AtomicBool> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(super::INTERRUPTED));
        }
    })?;
    Ok(&INTERRUPTED)
}
