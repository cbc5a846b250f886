//! The sparkinfer engine.

pub mod bundled;
pub mod chat;
pub mod cli;
pub mod cpu;
pub mod device;
pub mod engine;
pub mod exp;
pub mod generate;
pub mod inspect;
pub mod load;
pub mod model;
pub mod sample;
pub mod tokenizer;
