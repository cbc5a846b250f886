//! Metadata values, read in place.

use std::fmt;

use crate::error::Quoted;

/// The kind of a metadata value. The discriminant is the id in the file.
#[allow(missing_docs)] // the names say it all
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ValueKind {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    Str = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueKind {
    /// The kind with this id in a file.
    pub const fn from_id(id: u32) -> Option<Self> {
        use ValueKind::*;
        const ALL: [ValueKind; 13] = [U8, I8, U16, I16, U32, I32, F32, Bool, Str, Array, U64, I64, F64];
        if (id as usize) < ALL.len() {
            Some(ALL[id as usize])
        } else {
            None
        }
    }

    /// Bytes of one value; `None` for strings and arrays, which carry their own length.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Str | Self::Array => None,
        }
    }

    /// The name as messages and listings show it: `u32`, `str`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::Str => "str",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

/// A metadata value; strings and arrays borrow the file.
#[allow(missing_docs)] // as the kinds
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    /// Any bytes: files do not promise UTF-8.
    Str(&'a [u8]),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// The kind.
    pub const fn kind(&self) -> ValueKind {
        match self {
            Self::U8(_) => ValueKind::U8,
            Self::I8(_) => ValueKind::I8,
            Self::U16(_) => ValueKind::U16,
            Self::I16(_) => ValueKind::I16,
            Self::U32(_) => ValueKind::U32,
            Self::I32(_) => ValueKind::I32,
            Self::F32(_) => ValueKind::F32,
            Self::Bool(_) => ValueKind::Bool,
            Self::Str(_) => ValueKind::Str,
            Self::Array(_) => ValueKind::Array,
            Self::U64(_) => ValueKind::U64,
            Self::I64(_) => ValueKind::I64,
            Self::F64(_) => ValueKind::F64,
        }
    }

    /// The value as an integer, whatever its width; `None` for everything else.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// The value as a floating-point number, whatever its width; `None` for everything else.
    pub fn float(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            _ => None,
        }
    }

    /// Decodes a value of a fixed-size kind; missing bytes count as zero (callers have checked the size).
    pub(super) fn scalar(kind: ValueKind, bytes: &'a [u8]) -> Self {
        match kind {
            ValueKind::U8 => Self::U8(u8::from_le_bytes(first(bytes))),
            ValueKind::I8 => Self::I8(i8::from_le_bytes(first(bytes))),
            ValueKind::U16 => Self::U16(u16::from_le_bytes(first(bytes))),
            ValueKind::I16 => Self::I16(i16::from_le_bytes(first(bytes))),
            ValueKind::U32 => Self::U32(u32::from_le_bytes(first(bytes))),
            ValueKind::I32 => Self::I32(i32::from_le_bytes(first(bytes))),
            ValueKind::F32 => Self::F32(f32::from_le_bytes(first(bytes))),
            ValueKind::Bool => Self::Bool(u8::from_le_bytes(first(bytes)) != 0),
            ValueKind::U64 => Self::U64(u64::from_le_bytes(first(bytes))),
            ValueKind::I64 => Self::I64(i64::from_le_bytes(first(bytes))),
            ValueKind::F64 => Self::F64(f64::from_le_bytes(first(bytes))),
            ValueKind::Str | ValueKind::Array => Self::Str(bytes),
        }
    }

    /// What the value is, for messages: `a string`, `the u32 7`, `an array of 3 i32`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Str(_) => "a string".into(),
            Self::Array(a) => format!("an array of {} {}", a.len(), a.kind().name()),
            Self::Bool(v) => format!("the bool {v}"),
            other => format!("the {} {other}", other.kind().name()),
        }
    }
}

/// Shows strings in quotes (escaped, cut) and arrays by their size.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32(v) => write!(f, "{v}"),
            Self::F64(v) => write!(f, "{v}"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::Str(bytes) => write!(f, "{}", Quoted(String::from_utf8_lossy(bytes))),
            Self::Array(a) => write!(f, "[{}; {}]", a.kind().name(), a.len()),
            other => write!(f, "{}", other.integer().unwrap_or_default()),
        }
    }
}

/// The first `N` bytes, zero-filled.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

/// An array value, decoded as it is walked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Array<'a> {
    pub(super) kind: ValueKind,
    pub(super) len: usize,
    /// The packed elements, exactly.
    pub(super) bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Kind of the elements; never [`ValueKind::Array`].
    pub const fn kind(&self) -> ValueKind {
        self.kind
    }

    /// Number of elements.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements as they are packed in the file.
    pub const fn packed(&self) -> &'a [u8] {
        self.bytes
    }

    /// Walks the elements.
    pub fn iter(&self) -> Elements<'a> {
        Elements { array: *self }
    }
}

impl<'a> IntoIterator for Array<'a> {
    type Item = Value<'a>;
    type IntoIter = Elements<'a>;

    fn into_iter(self) -> Elements<'a> {
        Elements { array: self }
    }
}

/// Iterator over an array's elements.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    array: Array<'a>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let array = &mut self.array;
        array.len = array.len.checked_sub(1)?;
        let size = match array.kind.size() {
            Some(size) => size,
            None => {
                let (length, rest) = array.bytes.split_first_chunk()?;
                array.bytes = rest;
                usize::try_from(u64::from_le_bytes(*length)).ok()?
            }
        };
        let (element, rest) = array.bytes.split_at_checked(size)?;
        array.bytes = rest;
        Some(Value::scalar(array.kind, element))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.array.len, Some(self.array.len))
    }
}

impl ExactSizeIterator for Elements<'_> {}
