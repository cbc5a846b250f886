//! Which tuning is used, and where it comes from.

use std::fmt;

use super::{Tuning, table};
use crate::cuda::DeviceInfo;

/// Where an engine's tuning is to come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TuningSource {
    /// The best that is known for the GPU.
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
    /// What `source` means on `device`.
    pub fn of(source: TuningSource, device: &DeviceInfo) -> Self {
        let (tuning, origin) = match source {
            TuningSource::Given(tuning) => (tuning, Origin::Given),
            TuningSource::Rules => (Tuning::default(), Origin::Rules),
            TuningSource::Known => return Self::by_table(device),
        };
        Self { tuning, origin }
    }

    /// What the table says of `device`, else the rules.
    fn by_table(device: &DeviceInfo) -> Self {
        let row = table::row(device.capability, device.multiprocessors);
        row.map_or(Self::of(TuningSource::Rules, device), |row| Self {
            tuning: row.tuning,
            origin: Origin::Table(row.gpu),
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules => f.write_str("by rule"),
            Self::Table(gpu) => write!(f, "found on {gpu}"),
            Self::Given => f.write_str("as given"),
        }
    }
}
