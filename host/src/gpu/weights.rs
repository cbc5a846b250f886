//! All weights of a model in one piece of device memory: first the map of what goes where, then the upload.
//!
//! The map is made from the description alone, so that the memory a model needs is known before a byte is moved, and
//! is the memory it takes.

use std::collections::HashMap;

use sparkinfer_gguf::Gguf;

use super::backend::{Backend, DeviceError, Memory, Result};
use super::matrix::Form;
use crate::model::{Matrix, Vector};

/// Every piece begins at a multiple of this.
const ALIGNMENT: u64 = 256;
/// Upload in pieces of about this size: large enough for full speed, small enough to overlap packing and copying.
const PIECE_BYTES: usize = 32 << 20;

/// A matrix, or a stack of experts, on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMatrix {
    /// Where the first expert begins.
    pub address: u64,
    /// The order of its bytes.
    pub form: Form,
    /// Bytes from one expert to the next.
    pub expert_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Matrix {
        tensor: String,
        first_row: usize,
        rows: usize,
        form: Form,
    },
    Vector {
        tensor: String,
        first: usize,
        len: usize,
    },
    Values(String),
}

enum Content {
    Matrix(Matrix, Form),
    Vector(Vector),
    Values(Vec<u8>),
}

/// What lies where in the weights' memory.
#[derive(Default)]
pub struct WeightMap {
    pieces: Vec<(u64, Content)>,
    places: HashMap<Key, u64>,
    bytes: u64,
}

impl WeightMap {
    /// Nothing placed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of memory that the weights take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Places a matrix in a form; the same matrix in the same form is placed once. Returns its offset.
    pub fn matrix(&mut self, matrix: &Matrix, form: Form) -> u64 {
        let (tensor, first_row, rows) = (matrix.tensor.clone(), matrix.first_row, matrix.rows);
        let bytes = (form.expert_bytes(matrix) * matrix.experts) as u64;
        self.place(
            Key::Matrix {
                tensor,
                first_row,
                rows,
                form,
            },
            bytes,
            || Content::Matrix(matrix.clone(), form),
        )
    }

    /// Places a vector, as f32. Returns its offset.
    pub fn vector(&mut self, vector: &Vector) -> u64 {
        let key = Key::Vector {
            tensor: vector.tensor.clone(),
            first: vector.first,
            len: vector.len,
        };
        self.place(key, 4 * vector.len as u64, || Content::Vector(vector.clone()))
    }

    /// Places computed values under a name; a second call with the same name gives the first one's offset.
    pub fn values(&mut self, name: String, bytes: Vec<u8>) -> u64 {
        self.place(Key::Values(name), bytes.len() as u64, || Content::Values(bytes))
    }

    fn place(&mut self, key: Key, bytes: u64, content: impl FnOnce() -> Content) -> u64 {
        if let Some(&offset) = self.places.get(&key) {
            return offset;
        }
        let offset = self.bytes;
        self.bytes = (offset + bytes).next_multiple_of(ALIGNMENT);
        self.pieces.push((offset, content()));
        self.places.insert(key, offset);
        offset
    }

    /// Allocates the memory and fills it from `gguf`. `progress` is told the bytes placed so far.
    ///
    /// # Errors
    /// Too little device memory, a tensor that is not as described, or the driver's.
    pub fn upload<B: Backend>(
        &self,
        backend: &B,
        gguf: &Gguf,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Box<dyn Memory>> {
        let memory = backend.allocate(self.bytes as usize)?;
        for (offset, content) in &self.pieces {
            upload_piece(backend, gguf, memory.address() + offset, content)?;
            progress(*offset);
        }
        backend.synchronize()?;
        progress(self.bytes);
        Ok(memory)
    }
}

fn upload_piece<B: Backend>(backend: &B, gguf: &Gguf, address: u64, content: &Content) -> Result<()> {
    match content {
        Content::Matrix(matrix, form) => upload_matrix(backend, gguf, address, matrix, *form),
        Content::Vector(vector) => {
            let values = vector.values(gguf).map_err(DeviceError::new)?;
            backend.write(address, bytemuck::cast_slice(&values))
        }
        Content::Values(bytes) => backend.write(address, bytes),
    }
}

fn upload_matrix<B: Backend>(backend: &B, gguf: &Gguf, address: u64, matrix: &Matrix, form: Form) -> Result<()> {
    let data = matrix.data(gguf).map_err(DeviceError::new)?;
    let (unit, expert_bytes) = (form.unit_bytes(matrix), form.expert_bytes(matrix));
    let step = (PIECE_BYTES / unit).max(1);
    for expert in 0..matrix.experts {
        let rows = &data[matrix.byte_range(expert)];
        for first in (0..expert_bytes / unit).step_by(step) {
            let bytes = (step * unit).min(expert_bytes - first * unit);
            let target = address + (expert * expert_bytes + first * unit) as u64;
            backend.upload(target, bytes, &mut |staging| form.pack(matrix, rows, first, staging))?;
        }
    }
    Ok(())
}
