//! Faults in a file's bytes: a model whose weights are not quite the right ones.

use sparkinfer_gguf::Gguf;
use sparkinfer_gguf::blocks::{BlockQ4K, F16, as_blocks_mut};

/// The bytes of `gguf`'s only file with `change` made to a tensor's, of which it is told the bytes of a row.
///
/// # Errors
/// No such tensor, or a model of several files.
pub fn with_tensor(gguf: &Gguf, name: &str, change: impl FnOnce(&mut [u8], usize)) -> Result<Gguf, String> {
    let tensor = gguf.require_tensor(name).map_err(|error| error.to_string())?;
    let mut files = gguf.contents();
    let (Some(file), None) = (files.next(), files.next()) else {
        return Err("the model has several files".to_owned());
    };
    let first = tensor.data.as_ptr() as usize - file.as_ptr() as usize;
    let mut bytes = file.to_vec();
    change(&mut bytes[first..first + tensor.data.len()], tensor.row_bytes());
    Gguf::from_vec("planted", bytes).map_err(|error| error.to_string())
}

/// Multiplies the scale of one Q4_K block of a tensor.
///
/// # Errors
/// As [`with_tensor`]; a tensor that has no such block.
pub fn wrong_scale(gguf: &Gguf, name: &str, block: usize, factor: f32) -> Result<Gguf, String> {
    let mut planted = false;
    let changed = with_tensor(gguf, name, |bytes, _| {
        let block = as_blocks_mut::<BlockQ4K>(bytes).and_then(|blocks| blocks.get_mut(block));
        if let Some(block) = block {
            block.d = F16::from_f32(block.d.to_f32() * factor);
            planted = true;
        }
    })?;
    planted
        .then_some(changed)
        .ok_or_else(|| format!("{name} has no Q4_K block {block}"))
}

/// Takes away what one expert of a stack adds: all its bytes become 0, which in every quantised type is the number 0.
///
/// # Errors
/// As [`with_tensor`]; a tensor without that expert.
pub fn dropped_expert(gguf: &Gguf, name: &str, expert: usize) -> Result<Gguf, String> {
    let tensor = gguf.require_tensor(name).map_err(|error| error.to_string())?;
    let &[_, rows, experts] = tensor.shape() else {
        return Err(format!("{name} is no stack of experts"));
    };
    if expert as u64 >= experts {
        return Err(format!("{name} has {experts} experts, no expert {expert}"));
    }
    with_tensor(gguf, name, |bytes, row_bytes| {
        let size = rows as usize * row_bytes;
        bytes[expert * size..(expert + 1) * size].fill(0);
    })
}
