//! Arguments about the key/value cache.

use crate::model::KvType;
use clap::Args;

/// What commands that make an engine take.
#[derive(Args, Debug, Clone, Copy)]
pub struct CacheArguments {
    /// Type of the key/value cache: f16, bf16 or q8_0 (half the size of f16), on the CPU also f32
    /// [default: f16; f32 for the CPU's f32 arithmetic]
    #[arg(long, value_name = "TYPE")]
    pub kv_type: Option<KvType>,
}
