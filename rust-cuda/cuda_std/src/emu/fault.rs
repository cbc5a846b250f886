//! What the emulator reports.

use crate::launch::LaunchError;
use core::panic::Location;

/// What kind of mistake a [`Fault`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Threads that must meet at one place are at different ones.
    Divergence,
    /// Threads wait for what will not come.
    Deadlock,
    /// Two threads use a byte of shared memory, one of them writes, and nothing orders them.
    SharedRace,
    /// An access outside shared memory or outside a handle's values.
    SharedBounds,
    /// Shared memory of another block is touched while that block may not run.
    RemoteAccess,
    /// Bytes of shared memory are read that nobody wrote.
    SharedUninitialised,
    /// An access to memory that is in no buffer.
    GlobalAccess,
    /// An address that is no multiple of the access's size.
    Misaligned,
    /// The kernel's declaration and its waiting for the launch before it do not agree.
    DependencyWait,
    /// An operation used against its rules.
    Misuse,
    /// The kernel panicked.
    Panic,
    /// The shape of the launch is not allowed.
    Launch,
}

/// A mistake found in the emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kernel.
    pub kernel: &'static str,
    /// The block, where one was running.
    pub block: Option<[u32; 3]>,
    /// The thread, where one was running.
    pub thread: Option<[u32; 3]>,
    /// What kind of mistake.
    pub kind: FaultKind,
    /// What happened, in words.
    pub detail: String,
    /// Where in the source, if known.
    pub site: Option<&'static Location<'static>>,
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.kernel)?;
        if let Some(block) = self.block {
            write!(f, ", block {block:?}")?;
        }
        if let Some(thread) = self.thread {
            write!(f, ", thread {thread:?}")?;
        }
        write!(f, ": {:?}: {}", self.kind, self.detail)?;
        if let Some(site) = self.site {
            write!(f, " ({site})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

impl From<LaunchError> for Fault {
    fn from(error: LaunchError) -> Self {
        let kind = FaultKind::Launch;
        Self {
            kernel: error.kernel,
            block: None,
            thread: None,
            kind,
            detail: error.to_string(),
            site: None,
        }
    }
}

/// The payload that unwinds a thread after its fault has been noted.
pub(super) struct Raised;

/// Ends the running thread, and with it the launch, with a fault.
pub(super) fn raise(kind: FaultKind, site: Option<&'static Location<'static>>, detail: String) -> ! {
    super::context::with(|cluster| cluster.note(kind, site, detail));
    std::panic::resume_unwind(Box::new(Raised))
}
