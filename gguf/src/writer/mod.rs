//! Writing: describe the file first, then fill it, in order through any [`Write`] or in parallel through a file that
//! has its final size from the start.
//!
//! ```
//! use sparkinfer_gguf::{Gguf, GgufWriter, TensorType};
//!
//! let mut writer = GgufWriter::new();
//! writer.set("general.architecture", "llama");
//! writer.tensor("output_norm.weight", TensorType::F32, &[2])?;
//! let bytes = writer.to_vec(|_, out| out.write_all(bytemuck::bytes_of(&[1.0f32, 2.0])))?;
//! let gguf = Gguf::from_vec("example", bytes)?;
//! assert_eq!(gguf.require_tensor("output_norm.weight")?.shape(), [2]);
//! # Ok::<(), sparkinfer_gguf::Error>(())
//! ```

mod layout;
mod value;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

#[cfg(unix)]
pub use layout::SizedFile;
pub use layout::{Layout, Placed};
pub use value::MetaValue;

use crate::error::{Error, ErrorKind, file_label};
use crate::reader::parse::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, NAME_LIMIT, check_alignment, tensor_bytes};
use crate::reader::{Gguf, split};
use crate::types::TensorType;

/// What messages call a file that has no path yet.
const NEW_FILE: &str = "new GGUF file";

/// A tensor to be written.
struct TensorSpec {
    name: String,
    ty: TensorType,
    n_dims: usize,
    dims: [u64; 4],
    bytes: u64,
}

/// Describes a file: metadata and tensors, in the order in which they will be written (version 3, little-endian).
#[derive(Default)]
pub struct GgufWriter {
    entries: Vec<(String, MetaValue)>,
    index: HashMap<String, usize>,
    tensors: Vec<TensorSpec>,
    names: HashMap<String, usize>,
}

impl GgufWriter {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key, replacing its value if it is there already. `general.alignment` takes effect.
    pub fn set(&mut self, key: &str, value: impl Into<MetaValue>) -> &mut Self {
        let value = value.into();
        match self.index.get(key) {
            Some(&i) => self.entries[i].1 = value,
            None => {
                self.index.insert(key.to_owned(), self.entries.len());
                self.entries.push((key.to_owned(), value));
            }
        }
        self
    }

    /// Sets every key of another file, except those that describe how it is split.
    pub fn copy_metadata(&mut self, from: &Gguf) -> &mut Self {
        let is_split_key = |key: &str| [split::NO_KEY, split::COUNT_KEY, split::TENSORS_KEY].contains(&key);
        for (key, value) in from.metadata().iter().filter(|(key, _)| !is_split_key(key)) {
            self.set(key, value);
        }
        self
    }

    /// Adds a tensor of up to four dimensions, the contiguous one first. Returns its number, counted from 0.
    ///
    /// # Errors
    /// The name is empty, too long or taken; a dimension is zero, too large or no multiple of the type's block.
    pub fn tensor(&mut self, name: &str, ty: TensorType, shape: &[u64]) -> Result<usize, Error> {
        let fail = |problem: String| Err(Error::new(NEW_FILE, ErrorKind::tensor(name, problem)));
        if name.is_empty() || name.len() >= NAME_LIMIT {
            return fail(format!(
                "the name has {} bytes; 1 to {} are allowed",
                name.len(),
                NAME_LIMIT - 1
            ));
        }
        if shape.len() > 4 {
            return fail(format!("has {} dimensions; 4 at most are supported", shape.len()));
        }
        let mut dims = [1; 4];
        dims[..shape.len()].copy_from_slice(shape);
        let bytes = match tensor_bytes(ty, &dims) {
            Ok(bytes) => bytes,
            Err(problem) => return fail(problem),
        };
        let number = self.tensors.len();
        if self.names.insert(name.to_owned(), number).is_some() {
            return fail("occurs twice".into());
        }
        self.tensors.push(TensorSpec {
            name: name.to_owned(),
            ty,
            n_dims: shape.len(),
            dims,
            bytes,
        });
        Ok(number)
    }

    /// Where everything will lie in a single file.
    ///
    /// # Errors
    /// `general.alignment` is not usable, or the file would exceed 2^63 bytes.
    pub fn layout(&self) -> Result<Layout, Error> {
        let entries: Vec<_> = self.entries.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let numbers: Vec<usize> = (0..self.tensors.len()).collect();
        self.layout_of(&entries, &numbers)
    }

    /// The layouts of a set of split files, each with at most `max_bytes` of tensor data (or one larger tensor).
    /// All metadata goes into the first. A single part is an ordinary file.
    ///
    /// # Errors
    /// As [`GgufWriter::layout`]; also more than 65,535 parts.
    pub fn split_layouts(&self, max_bytes: u64) -> Result<Vec<Layout>, Error> {
        let parts = self.partition(max_bytes);
        if parts.len() < 2 {
            return Ok(vec![self.layout()?]);
        }
        let too_many = |_| {
            Error::new(
                NEW_FILE,
                ErrorKind::Split(format!("{} parts are too many", parts.len())),
            )
        };
        let count = u16::try_from(parts.len()).map_err(too_many)?;
        (0..count)
            .zip(&parts)
            .map(|(no, numbers)| self.part_layout(no, count, numbers))
            .collect()
    }

    /// Writes a single file in order. `data` is called once for each tensor, with its number, and must write exactly
    /// the tensor's bytes.
    ///
    /// # Errors
    /// As [`GgufWriter::layout`]; the file cannot be written; `data` fails or writes another number of bytes.
    pub fn write_file(
        &self,
        path: impl AsRef<Path>,
        data: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Error> {
        self.layout()?.write_file(path, data)
    }

    /// Writes split files `<prefix>-00001-of-0000N.gguf` (a single part: `<prefix>.gguf`) and returns their paths.
    ///
    /// # Errors
    /// As [`GgufWriter::split_layouts`] and [`GgufWriter::write_file`].
    pub fn write_split_files(
        &self,
        prefix: impl AsRef<Path>,
        max_bytes: u64,
        mut data: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
    ) -> Result<Vec<PathBuf>, Error> {
        let layouts = self.split_layouts(max_bytes)?;
        let prefix = prefix.as_ref();
        let stem = prefix.file_name().unwrap_or_default().to_string_lossy();
        let mut paths = Vec::with_capacity(layouts.len());
        for (no, layout) in (0..).zip(&layouts) {
            let name = match layouts.len() {
                1 => format!("{stem}.gguf"),
                count => split::file_name(&stem, no, count as u32),
            };
            let path = prefix.with_file_name(name);
            layout.write_file(&path, &mut data)?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// Writes a single file into memory.
    ///
    /// # Errors
    /// As [`GgufWriter::write_file`].
    pub fn to_vec(&self, data: impl FnMut(usize, &mut dyn Write) -> io::Result<()>) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let written = self.layout()?.write(&mut bytes, data);
        written.map_err(|e| Error::new(NEW_FILE, ErrorKind::Io(format!("cannot be written: {e}"))))?;
        Ok(bytes)
    }

    /// Groups the tensors, in order, by what a part may hold.
    fn partition(&self, max_bytes: u64) -> Vec<Vec<usize>> {
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut room = 0;
        for (number, tensor) in self.tensors.iter().enumerate() {
            match parts.last_mut() {
                Some(part) if tensor.bytes <= room => part.push(number),
                _ => {
                    parts.push(vec![number]);
                    room = max_bytes;
                }
            }
            room = room.saturating_sub(tensor.bytes);
        }
        parts
    }

    fn part_layout(&self, no: u16, count: u16, numbers: &[usize]) -> Result<Layout, Error> {
        let keys = [
            (split::NO_KEY, MetaValue::from(no)),
            (split::COUNT_KEY, MetaValue::from(count)),
            (split::TENSORS_KEY, MetaValue::from(self.tensors.len() as i32)),
        ];
        let own = self.entries.iter().filter(|(key, _)| no == 0 || key == ALIGNMENT_KEY);
        let own = own.map(|(key, value)| (key.as_str(), value));
        let entries: Vec<_> = own.chain(keys.iter().map(|(key, value)| (*key, value))).collect();
        self.layout_of(&entries, numbers)
    }

    fn layout_of(&self, entries: &[(&str, &MetaValue)], numbers: &[usize]) -> Result<Layout, Error> {
        let alignment = self.alignment().map_err(|kind| Error::new(NEW_FILE, kind))?;
        let too_large = || Error::new(NEW_FILE, ErrorKind::Io("the file would be too large".into()));
        Layout::new(entries, &self.tensors, numbers, alignment.into()).ok_or_else(too_large)
    }

    fn alignment(&self) -> Result<u32, ErrorKind> {
        let Some(&i) = self.index.get(ALIGNMENT_KEY) else {
            return Ok(DEFAULT_ALIGNMENT);
        };
        let value = self.entries[i].1.as_u32();
        check_alignment(value.ok_or_else(|| ErrorKind::key(ALIGNMENT_KEY, "must be a u32"))?)
    }
}

impl Layout {
    /// Writes the file in order; see [`GgufWriter::write_file`].
    ///
    /// # Errors
    /// The file cannot be written; `data` fails or writes another number of bytes.
    pub fn write_file(
        &self,
        path: impl AsRef<Path>,
        data: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Error> {
        let path = path.as_ref();
        let fail = |e: io::Error| Error::new(&file_label(path), ErrorKind::Io(format!("cannot be written: {e}")));
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(fail)?);
        self.write(&mut out, data).map_err(fail)?;
        out.flush().map_err(fail)
    }
}
