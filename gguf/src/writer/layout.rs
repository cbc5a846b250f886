//! Where each tensor lies in a file, and ways to fill the file.

use std::io::{self, Write};
use std::ops::Range;

use super::TensorSpec;
use super::value::{MetaValue, put_string};

/// A tensor's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The number that `GgufWriter::tensor` returned.
    pub tensor: usize,
    /// Its bytes, counted from the start of the file.
    pub range: Range<u64>,
}

/// One file, ready to be filled: its header and the place of every tensor. Bytes between tensors are zero.
#[derive(Clone, Debug)]
pub struct Layout {
    header: Vec<u8>,
    tensors: Vec<Placed>,
    len: u64,
}

impl Layout {
    /// Lays out the tensors `numbers` of `specs`; `None` when sizes overflow.
    pub(super) fn new(
        entries: &[(&str, &MetaValue)],
        specs: &[TensorSpec],
        numbers: &[usize],
        alignment: u64,
    ) -> Option<Self> {
        let mut header = b"GGUF\x03\0\0\0".to_vec();
        header.extend((numbers.len() as u64).to_le_bytes());
        header.extend((entries.len() as u64).to_le_bytes());
        for (key, value) in entries {
            put_string(&mut header, key.as_bytes());
            value.encode(&mut header);
        }
        let mut offset = 0u64;
        let mut offsets = Vec::with_capacity(numbers.len());
        for &number in numbers {
            put_info(&mut header, &specs[number], offset);
            offsets.push(offset);
            offset = offset
                .checked_add(specs[number].bytes)?
                .checked_next_multiple_of(alignment)?;
        }
        header.resize(header.len().checked_next_multiple_of(alignment as usize)?, 0);
        let data = header.len() as u64;
        let len = data.checked_add(offset).filter(|&len| len <= i64::MAX as u64)?;
        let place = |(&tensor, offset): (&usize, u64)| {
            let start = data + offset;
            Placed {
                tensor,
                range: start..start + specs[tensor].bytes,
            }
        };
        let tensors = numbers.iter().zip(offsets).map(place).collect();
        Some(Self { header, tensors, len })
    }

    /// Every tensor's place, in the order of the file.
    pub fn tensors(&self) -> &[Placed] {
        &self.tensors
    }

    /// Everything before the first tensor, padding included.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.len
    }

    /// Writes the file in order. `data` is called once for each tensor, with its number, and must write exactly the
    /// tensor's bytes.
    ///
    /// # Errors
    /// Writing fails, `data` fails, or it writes another number of bytes (`InvalidInput`).
    pub fn write(
        &self,
        out: &mut dyn Write,
        mut data: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        out.write_all(&self.header)?;
        let mut at = self.header.len() as u64;
        for Placed { tensor, range } in &self.tensors {
            pad(out, range.start - at)?;
            let mut exact = Exact {
                out: &mut *out,
                left: range.end - range.start,
            };
            data(*tensor, &mut exact)?;
            if exact.left != 0 {
                return Err(wrong_size(*tensor, format!("{} bytes are missing", exact.left)));
            }
            at = range.end;
        }
        pad(out, self.len - at)
    }

    /// Writes the header into `file`, which must have the file's size and be zero, and hands out the bytes of every
    /// tensor, to be filled in any order and from any thread. `None` when the size differs.
    pub fn slices<'a>(&self, file: &'a mut [u8]) -> Option<Vec<(usize, &'a mut [u8])>> {
        if file.len() as u64 != self.len {
            return None;
        }
        let (header, mut rest) = file.split_at_mut(self.header.len());
        header.copy_from_slice(&self.header);
        let mut at = self.header.len() as u64;
        let mut slices = Vec::with_capacity(self.tensors.len());
        for Placed { tensor, range } in &self.tensors {
            let (_, data) = rest.split_at_mut((range.start - at) as usize);
            let (data, after) = data.split_at_mut((range.end - range.start) as usize);
            slices.push((*tensor, data));
            (rest, at) = (after, range.end);
        }
        Some(slices)
    }
}

/// Appends a tensor info.
fn put_info(header: &mut Vec<u8>, spec: &TensorSpec, offset: u64) {
    put_string(header, spec.name.as_bytes());
    header.extend((spec.n_dims as u32).to_le_bytes());
    header.extend(spec.dims[..spec.n_dims].iter().flat_map(|dim| dim.to_le_bytes()));
    header.extend(spec.ty.id().to_le_bytes());
    header.extend(offset.to_le_bytes());
}

/// Writes zeros.
fn pad(out: &mut dyn Write, len: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), len), out).map(drop)
}

fn wrong_size(tensor: usize, problem: String) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("the data of tensor {tensor} has the wrong size: {problem}"),
    )
}

/// Passes on a fixed number of bytes and refuses more.
struct Exact<'a> {
    out: &'a mut dyn Write,
    left: u64,
}

impl Write for Exact<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "more data than the tensor holds",
            ));
        }
        let written = self.out.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(unix)]
pub use sized::SizedFile;

/// Filling a file from several threads.
#[cfg(unix)]
mod sized {
    use std::collections::HashMap;
    use std::fs::File;
    use std::io;
    use std::ops::Range;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use super::{Layout, wrong_size};
    use crate::error::{Error, ErrorKind, file_label};

    /// A file of its final size; tensors may be written piece by piece, in any order, from any thread. What is not
    /// written reads as zero. The header comes last, so a file that was never finished is no GGUF file.
    pub struct SizedFile {
        file: File,
        header: Vec<u8>,
        ranges: HashMap<usize, Range<u64>>,
        label: String,
    }

    impl Layout {
        /// Creates the file (an existing one is replaced).
        ///
        /// # Errors
        /// The file cannot be created or enlarged.
        pub fn create_sized(&self, path: impl AsRef<Path>) -> Result<SizedFile, Error> {
            let label = file_label(path.as_ref());
            let ranges = self
                .tensors
                .iter()
                .map(|placed| (placed.tensor, placed.range.clone()))
                .collect();
            let create = || {
                let file = File::create(path.as_ref())?;
                file.set_len(self.len)?;
                Ok(file)
            };
            match create() {
                Ok(file) => Ok(SizedFile {
                    file,
                    header: self.header.clone(),
                    ranges,
                    label,
                }),
                Err(e) => Err(cannot_write(&label, &e)),
            }
        }
    }

    impl SizedFile {
        /// Writes `bytes` at `offset` of a tensor's data.
        ///
        /// # Errors
        /// There is no such tensor, the bytes do not fit into it, or writing fails.
        pub fn write(&self, tensor: usize, offset: u64, bytes: &[u8]) -> Result<(), Error> {
            let write = || {
                let range = self
                    .ranges
                    .get(&tensor)
                    .ok_or_else(|| wrong_size(tensor, "no such tensor".into()))?;
                let start = range.start.checked_add(offset).filter(|start| {
                    start
                        .checked_add(bytes.len() as u64)
                        .is_some_and(|end| end <= range.end)
                });
                let start = start.ok_or_else(|| wrong_size(tensor, format!("{} bytes at {offset}", bytes.len())))?;
                self.file.write_all_at(bytes, start)
            };
            write().map_err(|e: io::Error| cannot_write(&self.label, &e))
        }

        /// Writes the header, once all tensors are written.
        ///
        /// # Errors
        /// Writing fails.
        pub fn finish(self) -> Result<(), Error> {
            let written = self.file.write_all_at(&self.header, 0);
            written.map_err(|e| cannot_write(&self.label, &e))
        }
    }

    fn cannot_write(label: &str, error: &io::Error) -> Error {
        Error::new(label, ErrorKind::Io(format!("cannot be written: {error}")))
    }
}
