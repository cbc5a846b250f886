//! The sparkinfer engine.

pub mod engine;
pub mod exp;
pub mod sample;
