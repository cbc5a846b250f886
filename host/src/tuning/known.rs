//! Which tuning is used, and where it comes from.

use std::fmt;

use super::store::{self, Key};
use super::{Tuning, table};
use crate::cuda::DeviceInfo;
use crate::model::{KvType, ModelSpec};

/// Where an engine's tuning is to come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TuningSource {
    /// The best that is known: what `sparkinfer tune` found for GPU and model, else the checked-in table, else the rules.
    #[default]
    Known,
    /// The rules alone.
    Rules,
    /// This one.
    Given(Tuning),
}

/// Where a tuning came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Rules that know nothing but the number of multiprocessors.
    Rules,
    /// The checked-in table: the GPU that it was found on.
    Table(String),
    /// A search on this machine.
    Search,
    /// The command line.
    Given,
}

/// A tuning and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The choices.
    pub tuning: Tuning,
    /// Where they come from.
    pub origin: Origin,
}

impl Known {
    /// What `source` means for the model of `spec` with a cache of type `kv` on `device`. A kept tuning that cannot be used
    /// is worth a warning.
    pub fn of(source: TuningSource, device: &DeviceInfo, spec: &ModelSpec, kv: KvType) -> Self {
        match source {
            TuningSource::Given(tuning) => Self {
                tuning,
                origin: Origin::Given,
            },
            TuningSource::Rules => Self::by_rule(),
            TuningSource::Known => Self::kept(device, spec, kv).unwrap_or_else(|| Self::by_table(device)),
        }
    }

    /// What a search on this machine found, if it can be used.
    fn kept(device: &DeviceInfo, spec: &ModelSpec, kv: KvType) -> Option<Self> {
        let (folder, key) = (store::folder()?, Key::new(device, spec, kv).ok()?);
        let found = store::load(&folder, &key).unwrap_or_else(|reason| {
            tracing::warn!(%reason, "a kept tuning is not used");
            None
        });
        found.map(|tuning| Self {
            tuning,
            origin: Origin::Search,
        })
    }

    /// What the checked-in table says of `device`, else the rules.
    pub fn by_table(device: &DeviceInfo) -> Self {
        let row = table::row(device.capability, device.multiprocessors);
        row.map_or_else(Self::by_rule, |row| Self {
            tuning: row.tuning,
            origin: Origin::Table(row.gpu),
        })
    }

    fn by_rule() -> Self {
        Self {
            tuning: Tuning::default(),
            origin: Origin::Rules,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules => f.write_str("by rule"),
            Self::Table(gpu) => write!(f, "found on {gpu}"),
            Self::Search => f.write_str("found by sparkinfer tune"),
            Self::Given => f.write_str("as given"),
        }
    }
}
