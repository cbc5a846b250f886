//! Opening good and bad files.

use super::*;

/// The bundled model.
fn tiny() -> Gguf {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-qwen3moe-q4_k_m.gguf");
    Gguf::open(path).expect("the bundled model")
}

#[test]
fn bundled_model_opens() {
    let gguf = tiny();
    let metadata = gguf.metadata();
    assert_eq!(metadata.require_str("general.architecture").as_deref(), Ok("qwen3moe"));
    assert_eq!(metadata.require_u32("qwen3moe.block_count"), Ok(4));
    assert_eq!(
        metadata.require_strings("tokenizer.ggml.tokens").map(|s| s.count()),
        Ok(4096)
    );
    let down = gguf.require_tensor("blk.2.ffn_down_exps.weight").expect("tensor");
    assert_eq!((down.ty, down.shape()), (crate::TensorType::Q6_K, &[256, 256, 16][..]));
    assert_eq!((down.rows(), down.row_bytes()), (4096, 210));
    for tensor in gguf.tensors() {
        assert!(tensor.dequantize().expect("values").iter().all(|v| v.is_finite()));
    }
}

#[test]
fn getters_name_file_and_key() {
    let gguf = tiny();
    let error = gguf
        .metadata()
        .require_u32("general.architecture")
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("tiny-qwen3moe-q4_k_m.gguf: key 'general.architecture': must be an integer from 0 to 2^32 - 1, but is a string"), "{error}");
    let error = gguf.metadata().require_u32("no.such").unwrap_err().to_string();
    assert!(error.ends_with("key 'no.such': is missing"), "{error}");
    assert_eq!(gguf.metadata().u32("no.such"), Ok(None));
}
