//! Random rows of every type, and rows whose length fits no type.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sparkinfer_gguf::TensorType;
use sparkinfer_gguf::dequant::dequantize_row;

fuzz_target!(|data: &[u8]| {
    let Some((&number, row)) = data.split_first() else {
        return;
    };
    let count = TensorType::all().count();
    let Some(ty) = TensorType::all().nth(usize::from(number) % count) else {
        return;
    };
    let blocks = row.len() / ty.block_bytes();
    let whole = &row[..blocks * ty.block_bytes()];
    let mut values = vec![0f32; blocks * ty.block_len()];
    assert_eq!(dequantize_row(ty, whole, &mut values).is_ok(), ty.is_supported());
    if whole.len() < row.len() {
        assert!(dequantize_row(ty, row, &mut values).is_err());
    }
});
