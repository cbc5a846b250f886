//! GGUF files: reader, writer, block layouts, reference (de)quantisation.
//!
//! The core ([`types`], [`blocks`], [`dequant`], [`quantize`]) is `no_std` and allocates nothing, so that device code
//! shares the block structs with the host. Files need the `std` feature.
//!
//! ```no_run
//! # #[cfg(feature = "std")] fn main() -> Result<(), sparkinfer_gguf::Error> {
//! let gguf = sparkinfer_gguf::Gguf::open("model.gguf")?;
//! let layers = gguf.metadata().require_u32("qwen3moe.block_count")?;
//! let embedding = gguf.require_tensor("token_embd.weight")?;
//! println!("{layers} layers, {} rows of {}", embedding.rows(), embedding.ty);
//! # Ok(()) }
//! # #[cfg(not(feature = "std"))] fn main() {}
//! ```
#![cfg_attr(not(feature = "std"), no_std)]

pub mod blocks;
pub mod dequant;
pub mod quantize;
pub mod types;

#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
pub mod reader;
#[cfg(all(feature = "std", any(test, feature = "test-support")))]
pub mod test_support;
#[cfg(feature = "std")]
pub mod writer;

pub use types::TensorType;

#[cfg(feature = "std")]
pub use error::{Error, ErrorKind};
#[cfg(feature = "std")]
pub use reader::{Array, Gguf, Metadata, TensorView, Value, ValueKind};
#[cfg(feature = "std")]
pub use writer::{GgufWriter, MetaValue};
