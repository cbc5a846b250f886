//! The sparkinfer engine.

pub mod accuracy;
pub mod bench;
pub mod bundled;
pub mod chat;
pub mod cli;
pub mod cpu;
pub mod cuda;
pub mod device;
pub mod doctor;
pub mod engine;
pub mod exp;
pub mod generate;
pub mod gpu;
pub mod inspect;
pub mod kernels;
pub mod load;
pub mod model;
pub mod perplexity;
pub mod profile;
pub mod sample;
pub mod synth;
pub mod tokenizer;
pub mod trace;
pub mod tuning;
