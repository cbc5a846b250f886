//! The sparkinfer engine.

pub mod bundled;
pub mod chat;
pub mod cli;
pub mod device;
pub mod engine;
pub mod exp;
pub mod generate;
pub mod inspect;
pub mod sample;
pub mod tokenizer;
