//! Reading: a mapped file, its metadata and tensors, nothing copied.
//!
//! Whatever the bytes are, opening either fails with one [`Error`] or gives views that lie inside the file; memory used
//! grows with the header's real size only, never with a number read from it.
//!
//! Tensors need not follow each other without gaps, as some readers demand: each must be aligned, inside the file and
//! apart from all others. A file must not be shortened by someone else while it is mapped.

mod metadata;
pub(crate) mod parse;
pub(crate) mod split;
mod storage;
mod tensor;
mod value;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

pub use metadata::{Metadata, Scalar, Strings};
pub use tensor::TensorView;
pub use value::{Array, Elements, Value, ValueKind};

use crate::error::{Error, ErrorKind, file_label};
use parse::{Entries, Header, RawTensor};
use storage::Storage;
use tensor::TensorInfo;

/// What messages call a file that is not on disk.
const EMBEDDED: &str = "embedded model";

/// One file of a set.
struct Shard {
    /// As messages call it.
    label: String,
    storage: Storage,
}

/// An open GGUF file, or a set of split files.
pub struct Gguf {
    shards: Vec<Shard>,
    version: u32,
    alignment: u32,
    entries: Entries,
    tensors: Vec<TensorInfo>,
    tensor_index: HashMap<String, usize>,
}

impl Gguf {
    /// Maps a file; of split files, the first is given and the others are found beside it.
    ///
    /// # Errors
    /// The file cannot be read, is no valid GGUF file, or its parts do not belong together.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut gguf = Self::open_part(path)?;
        let others = split::other_parts(&gguf, path)?;
        if others.is_empty() {
            return Ok(gguf);
        }
        for (no, path) in (1..).zip(&others) {
            let part = Self::open_part(path)?;
            split::check_part(&gguf, &part, no)?;
            gguf.append(part)?;
        }
        split::check_total(&gguf)?;
        Ok(gguf)
    }

    /// Reads an embedded file. Its alignment counts from its own start.
    ///
    /// # Errors
    /// The bytes are no valid GGUF file, or one part of several.
    pub fn from_bytes(bytes: &'static [u8]) -> Result<Self, Error> {
        Self::from_storage(EMBEDDED.to_owned(), Storage::Static(bytes))?.whole()
    }

    /// Reads a file that is already in memory; `label` names it in messages.
    ///
    /// # Errors
    /// As [`Gguf::from_bytes`].
    pub fn from_vec(label: &str, bytes: Vec<u8>) -> Result<Self, Error> {
        Self::from_storage(label.to_owned(), Storage::Owned(bytes))?.whole()
    }

    /// The metadata.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata::new(self)
    }

    /// The tensor of this name. Takes constant time.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.tensor_index.get(name).map(|&i| self.view(&self.tensors[i]))
    }

    /// The tensor of this name, which must be there.
    ///
    /// # Errors
    /// There is none.
    pub fn require_tensor(&self, name: &str) -> Result<TensorView<'_>, Error> {
        self.tensor(name).ok_or_else(|| self.tensor_error(name, "is missing"))
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = TensorView<'_>> {
        self.tensors.iter().map(|info| self.view(info))
    }

    /// Version of the container format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of the (first part's) data section in bytes.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// The file as messages call it (the first of split files).
    pub fn label(&self) -> &str {
        &self.shards[0].label
    }

    /// Number of files.
    pub fn file_count(&self) -> usize {
        self.shards.len()
    }

    /// Bytes of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.storage.len() as u64).sum()
    }

    /// The bytes of each file, in order.
    pub fn contents(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.shards.iter().map(|shard| &shard.storage[..])
    }

    /// An error about a tensor, naming the file that holds it.
    pub fn tensor_error(&self, name: &str, problem: impl fmt::Display) -> Error {
        let shard = self.tensor_index.get(name).map_or(0, |&i| self.tensors[i].shard);
        Error::new(&self.shards[shard].label, ErrorKind::tensor(name, problem.to_string()))
    }

    /// An error about the (first) file.
    pub fn error(&self, kind: ErrorKind) -> Error {
        Error::new(self.label(), kind)
    }

    fn open_part(path: &Path) -> Result<Self, Error> {
        let label = file_label(path);
        let storage = Storage::map(path).map_err(|kind| Error::new(&label, kind))?;
        Self::from_storage(label, storage)
    }

    fn from_storage(label: String, storage: Storage) -> Result<Self, Error> {
        Self::parse(&storage)
            .map_err(|kind| Error::new(&label, kind))
            .map(|mut gguf| {
                gguf.shards.push(Shard { label, storage });
                gguf
            })
    }

    /// Everything but the shard itself.
    fn parse(file: &[u8]) -> Result<Self, ErrorKind> {
        let header = Header::parse(file)?;
        let mut gguf = Self {
            shards: Vec::new(),
            version: header.version,
            alignment: header.alignment,
            entries: header.entries,
            tensors: Vec::with_capacity(header.tensors.len()),
            tensor_index: HashMap::with_capacity(header.tensors.len()),
        };
        for raw in header.tensors {
            let range = place(&raw, header.data_start, header.alignment, file.len())
                .map_err(|problem| ErrorKind::tensor(&raw.name, problem))?;
            let RawTensor {
                name, ty, n_dims, dims, ..
            } = raw;
            gguf.add(TensorInfo {
                name,
                ty,
                n_dims,
                dims,
                shard: 0,
                range,
            })?;
        }
        check_overlaps(&gguf.tensors)?;
        Ok(gguf)
    }

    fn add(&mut self, info: TensorInfo) -> Result<(), ErrorKind> {
        if self
            .tensor_index
            .insert(info.name.clone(), self.tensors.len())
            .is_some()
        {
            return Err(ErrorKind::tensor(&info.name, "occurs twice"));
        }
        self.tensors.push(info);
        Ok(())
    }

    /// Takes over the tensors of the next part.
    fn append(&mut self, part: Self) -> Result<(), Error> {
        let shard = self.shards.len();
        self.shards.extend(part.shards);
        for info in part.tensors {
            let added = self.add(TensorInfo { shard, ..info });
            added.map_err(|kind| Error::new(&self.shards[shard].label, kind))?;
        }
        Ok(())
    }

    /// Refuses one part of several.
    fn whole(self) -> Result<Self, Error> {
        match split::part_count(&self)? {
            0 | 1 => Ok(self),
            count => Err(self.error(ErrorKind::Split(format!(
                "is one of {count} parts; only a file can be opened so"
            )))),
        }
    }

    fn view<'a>(&'a self, info: &'a TensorInfo) -> TensorView<'a> {
        let data = &self.shards[info.shard].storage[info.range.clone()];
        TensorView {
            name: &info.name,
            ty: info.ty,
            dims: info.dims,
            n_dims: info.n_dims,
            data,
        }
    }
}

/// Shows file and sizes, not contents.
impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Gguf");
        shown.field("file", &self.label()).field("keys", &self.metadata().len());
        shown.field("tensors", &self.tensors.len()).finish_non_exhaustive()
    }
}

/// The bytes of a tensor within its file.
fn place(raw: &RawTensor, data_start: u64, alignment: u32, file_len: usize) -> Result<Range<usize>, String> {
    let RawTensor { offset, bytes, .. } = *raw;
    if !offset.is_multiple_of(alignment.into()) {
        return Err(format!("offset {offset} is not aligned to {alignment} bytes"));
    }
    let start = data_start.checked_add(offset);
    let end = start.and_then(|start| start.checked_add(bytes));
    match (start, end) {
        (Some(start), Some(end)) if end <= file_len as u64 => Ok(start as usize..end as usize),
        _ => Err(format!(
            "its {bytes} bytes at offset {offset} lie outside the file of {file_len} bytes; is the download complete?"
        )),
    }
}

/// Refuses tensors that share bytes.
fn check_overlaps(tensors: &[TensorInfo]) -> Result<(), ErrorKind> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|info| info.range.start);
    match order.windows(2).find(|pair| pair[1].range.start < pair[0].range.end) {
        Some(pair) => Err(ErrorKind::tensor(
            &pair[1].name,
            format!("overlaps tensor {}", crate::error::Quoted(&pair[0].name)),
        )),
        None => Ok(()),
    }
}
