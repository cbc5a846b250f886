//! The header: magic, counts, metadata, tensor infos. Every number is checked before it is used.

use std::collections::HashMap;

use super::value::{Array, Value, ValueKind};
use crate::error::{ErrorKind, Quoted};
use crate::types::TensorType;

/// Most keys, and most tensors, that a file may have.
const MAX_RECORDS: u64 = 1 << 20;
/// Fewest bytes a metadata record takes: length and one byte of key, kind, one byte of value.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;
/// Fewest bytes a tensor info takes: length of the name, dimensions, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;
/// Tensor names are shorter than this.
pub(crate) const NAME_LIMIT: usize = 64;
/// Alignments above this serve no purpose but to break things.
const MAX_ALIGNMENT: u32 = 1 << 20;
/// Alignment of the data section where the file names none.
pub(crate) const DEFAULT_ALIGNMENT: u32 = 32;
/// The key that names the alignment.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// A value's kind and place in the file.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    kind: ValueKind,
    /// Elements of an array; 1 otherwise.
    len: usize,
    is_array: bool,
    /// Payload: a scalar's bytes, a string's text, an array's packed elements.
    start: usize,
    end: usize,
}

impl Stored {
    /// The value, read from the file's bytes.
    pub(super) fn read<'a>(&self, file: &'a [u8]) -> Value<'a> {
        let bytes = &file[self.start..self.end];
        match self.is_array {
            true => Value::Array(Array {
                kind: self.kind,
                len: self.len,
                bytes,
            }),
            false => Value::scalar(self.kind, bytes),
        }
    }
}

/// A tensor info as stored; `offset` counts from the data section.
pub(super) struct RawTensor {
    pub(super) name: String,
    pub(super) ty: TensorType,
    pub(super) n_dims: usize,
    pub(super) dims: [u64; 4],
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Keys and values in file order, found by key in constant time.
#[derive(Default)]
pub(super) struct Entries {
    list: Vec<(String, Stored)>,
    index: HashMap<String, usize>,
}

impl Entries {
    /// All of them in file order.
    pub(super) fn list(&self) -> &[(String, Stored)] {
        &self.list
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Stored> {
        self.index.get(key).map(|&i| &self.list[i].1)
    }

    /// Adds a key that must be new.
    fn add(&mut self, key: String, stored: Stored) -> Result<(), ErrorKind> {
        if self.index.insert(key.clone(), self.list.len()).is_some() {
            return Err(ErrorKind::key(&key, "occurs twice"));
        }
        self.list.push((key, stored));
        Ok(())
    }
}

/// Everything before the data section.
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) entries: Entries,
    pub(super) tensors: Vec<RawTensor>,
    pub(super) alignment: u32,
    /// Where the data section starts.
    pub(super) data_start: u64,
}

impl Header {
    /// Parses the header of a whole file.
    pub(super) fn parse(file: &[u8]) -> Result<Self, ErrorKind> {
        let mut cursor = Cursor { file, at: 0 };
        let version = version(&mut cursor)?;
        let n_tensors = cursor.count("tensors", MIN_TENSOR_BYTES)?;
        let n_entries = cursor.count("metadata keys", MIN_ENTRY_BYTES)?;
        let entries = entries(&mut cursor, n_entries)?;
        let alignment = alignment(file, &entries)?;
        let tensors = (0..n_tensors)
            .map(|_| tensor(&mut cursor))
            .collect::<Result<Vec<_>, _>>()?;
        let data_start = (cursor.at as u64).next_multiple_of(alignment.into());
        Ok(Self {
            version,
            entries,
            tensors,
            alignment,
            data_start,
        })
    }
}

/// Reads the magic and the version.
fn version(cursor: &mut Cursor<'_>) -> Result<u32, ErrorKind> {
    if cursor.take(4, "the magic").ok() != Some(b"GGUF") {
        return Err(ErrorKind::Container {
            at: 0,
            problem: "not a GGUF file: it does not start with 'GGUF'".into(),
        });
    }
    let version = cursor.u32("the version")?;
    let problem = match version {
        2 | 3 => return Ok(version),
        v if v & 0xffff == 0 && v != 0 => "big-endian GGUF files are not supported".into(),
        1 => "GGUF version 1 is no longer supported; convert the file again".into(),
        v => format!("unknown GGUF version {v}; versions 2 and 3 can be read"),
    };
    Err(ErrorKind::Container { at: 4, problem })
}

/// Reads the metadata.
fn entries(cursor: &mut Cursor<'_>, count: u64) -> Result<Entries, ErrorKind> {
    let mut entries = Entries::default();
    for _ in 0..count {
        let at = cursor.at;
        let key = cursor.text("a metadata key")?.to_owned();
        if key.is_empty() {
            return Err(container(at, "a metadata key is empty"));
        }
        let stored = value(cursor, &key)?;
        entries.add(key, stored)?;
    }
    Ok(entries)
}

/// Reads one value: its kind, then its payload, which is checked but stays where it is.
fn value(cursor: &mut Cursor<'_>, key: &str) -> Result<Stored, ErrorKind> {
    let kind = kind(cursor, key)?;
    if kind != ValueKind::Array {
        let (start, end) = payload(cursor, kind)?;
        return Ok(Stored {
            kind,
            len: 1,
            is_array: false,
            start,
            end,
        });
    }
    let element = self::kind(cursor, key)?;
    if element == ValueKind::Array {
        return Err(ErrorKind::key(key, "nested arrays are not supported"));
    }
    let len = array_len(cursor, element, key)?;
    let start = cursor.at;
    match element.size() {
        Some(size) => drop(cursor.take((len * size) as u64, "an array")?),
        None => (0..len).try_for_each(|_| payload(cursor, element).map(drop))?,
    }
    Ok(Stored {
        kind: element,
        len,
        is_array: true,
        start,
        end: cursor.at,
    })
}

/// Reads a value's kind.
fn kind(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueKind, ErrorKind> {
    let id = cursor.u32("a value's kind")?;
    ValueKind::from_id(id).ok_or_else(|| ErrorKind::key(key, format!("unknown value kind {id}")))
}

/// Steps over a scalar or a string; where its payload lies.
fn payload(cursor: &mut Cursor<'_>, kind: ValueKind) -> Result<(usize, usize), ErrorKind> {
    match kind.size() {
        Some(size) => drop(cursor.take(size as u64, "a value")?),
        None => {
            let text = cursor.bytes("a string")?;
            return Ok((cursor.at - text.len(), cursor.at));
        }
    }
    Ok((cursor.at - kind.size().unwrap_or_default(), cursor.at))
}

/// Reads an array's length; no longer than the rest of the file can hold.
fn array_len(cursor: &mut Cursor<'_>, element: ValueKind, key: &str) -> Result<usize, ErrorKind> {
    let len = cursor.u64("an array's length")?;
    let smallest = element.size().unwrap_or(8) as u64;
    if len > cursor.remaining() / smallest {
        let problem = format!("an array of {len} {} does not fit into the file", element.name());
        return Err(ErrorKind::key(key, problem));
    }
    Ok(len as usize)
}

/// The data section's alignment.
fn alignment(file: &[u8], entries: &Entries) -> Result<u32, ErrorKind> {
    let Some(stored) = entries.get(ALIGNMENT_KEY) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    match stored.read(file) {
        Value::U32(v) => check_alignment(v),
        other => Err(ErrorKind::key(
            ALIGNMENT_KEY,
            format!("must be a u32, but is {}", other.describe()),
        )),
    }
}

/// Refuses alignments that are no power of two or absurdly large.
pub(crate) fn check_alignment(v: u32) -> Result<u32, ErrorKind> {
    let usable = v.is_power_of_two() && v <= MAX_ALIGNMENT;
    let problem = || format!("{v} is not a power of two up to {MAX_ALIGNMENT}");
    if usable {
        Ok(v)
    } else {
        Err(ErrorKind::key(ALIGNMENT_KEY, problem()))
    }
}

/// Reads one tensor info.
fn tensor(cursor: &mut Cursor<'_>) -> Result<RawTensor, ErrorKind> {
    let at = cursor.at;
    let name = cursor.text("a tensor's name")?.to_owned();
    if name.is_empty() || name.len() >= NAME_LIMIT {
        let problem = format!(
            "a tensor's name has {} bytes; 1 to {} are allowed",
            name.len(),
            NAME_LIMIT - 1
        );
        return Err(container(at, problem));
    }
    let n_dims = cursor.u32("a tensor's number of dimensions")? as usize;
    if n_dims > 4 {
        return Err(ErrorKind::tensor(
            &name,
            format!("has {n_dims} dimensions; 4 at most are supported"),
        ));
    }
    let mut dims = [1; 4];
    for dim in &mut dims[..n_dims] {
        *dim = cursor.u64("a tensor's dimension")?;
    }
    let id = cursor.u32("a tensor's type")?;
    let ty = TensorType::from_id(id)
        .ok_or_else(|| ErrorKind::tensor(&name, format!("type {id} is unknown or no longer in use")))?;
    let offset = cursor.u64("a tensor's offset")?;
    let bytes = tensor_bytes(ty, &dims).map_err(|problem| ErrorKind::tensor(&name, problem))?;
    Ok(RawTensor {
        name,
        ty,
        n_dims,
        dims,
        offset,
        bytes,
    })
}

/// Bytes of a tensor's data, all dimensions checked.
pub(crate) fn tensor_bytes(ty: TensorType, dims: &[u64; 4]) -> Result<u64, String> {
    if dims.contains(&0) {
        return Err(format!("a dimension of {dims:?} is zero"));
    }
    let elements = dims
        .iter()
        .try_fold(1i64, |n, &d| n.checked_mul(i64::try_from(d).ok()?));
    let too_large = || format!("dimensions {dims:?} are too large");
    let elements = elements.ok_or_else(too_large)? as u64;
    let block = ty.block_len() as u64;
    if !dims[0].is_multiple_of(block) {
        return Err(format!(
            "rows of {} values are no multiple of {ty}'s block of {block}",
            dims[0]
        ));
    }
    (elements / block)
        .checked_mul(ty.block_bytes() as u64)
        .ok_or_else(too_large)
}

/// A structural problem at a place.
fn container(at: usize, problem: impl Into<String>) -> ErrorKind {
    ErrorKind::Container {
        at: at as u64,
        problem: problem.into(),
    }
}

/// Reads little-endian fields one after the other.
struct Cursor<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn remaining(&self) -> u64 {
        (self.file.len() - self.at) as u64
    }

    fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8], ErrorKind> {
        if len > self.remaining() {
            let problem = format!(
                "the file ends within {what}: {len} bytes wanted, {} left",
                self.remaining()
            );
            return Err(container(self.at, problem));
        }
        let bytes = &self.file[self.at..self.at + len as usize];
        self.at += bytes.len();
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ErrorKind> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    fn u32(&mut self, what: &str) -> Result<u32, ErrorKind> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, ErrorKind> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string's bytes.
    fn bytes(&mut self, what: &str) -> Result<&'a [u8], ErrorKind> {
        let len = self.u64(what)?;
        self.take(len, what)
    }

    /// A string that must be UTF-8.
    fn text(&mut self, what: &str) -> Result<&'a str, ErrorKind> {
        let at = self.at;
        let bytes = self.bytes(what)?;
        std::str::from_utf8(bytes).map_err(|_| {
            container(
                at,
                format!("{what} is not valid UTF-8: {}", Quoted(String::from_utf8_lossy(bytes))),
            )
        })
    }

    /// A number of records, each of at least `smallest` bytes.
    fn count(&mut self, what: &str, smallest: u64) -> Result<u64, ErrorKind> {
        let at = self.at;
        let count = self.u64("the header")?;
        if count > MAX_RECORDS {
            return Err(container(
                at,
                format!("{count} {what} are too many; {MAX_RECORDS} at most are supported"),
            ));
        }
        if count > self.remaining() / smallest {
            return Err(container(at, format!("{count} {what} do not fit into the file")));
        }
        Ok(count)
    }
}
