//! The sparkinfer engine.

pub mod bundled;
pub mod device;
pub mod engine;
pub mod exp;
pub mod generate;
pub mod sample;
pub mod tokenizer;
