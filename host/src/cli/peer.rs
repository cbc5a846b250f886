//! How long another program may take.

use crate::bench::PEER_LIMIT;
use clap::{Args, value_parser};
use std::time::Duration;

/// The limit of a peer's runs.
#[derive(Args, Debug)]
pub(super) struct PeerArguments {
    /// Seconds that a run of the peer may take before it is stopped
    #[arg(
        long = "peer-limit",
        value_name = "SECONDS",
        requires = "peer",
        default_value_t = PEER_LIMIT.as_secs(),
        value_parser = value_parser!(u64).range(1..)
    )]
    limit: u64,
}

impl PeerArguments {
    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }
}
