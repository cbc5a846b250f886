//! What the accuracy gate must catch: faults that are planted in a model that runs.
//!
//! The gate itself is `sparkinfer::accuracy`; its limits are in `gates/`. Each fault here is planted from outside, into
//! the file's bytes ([`mod@file`]), into the model's description, or between two launches of the GPU engine ([`device`]), so
//! that the code under test is what ships.

pub mod device;
pub mod file;
