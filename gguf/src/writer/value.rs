//! Metadata values to be written, kept in the file's own encoding.

use crate::reader::{Array, Value, ValueKind};

/// A metadata value to write. Made with `From` from numbers, flags, text, slices of them, or a value that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaValue {
    kind: ValueKind,
    /// Kind and number of an array's elements.
    elements: Option<(ValueKind, u64)>,
    payload: Vec<u8>,
}

impl MetaValue {
    /// An array of strings.
    pub fn strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Self {
        let (mut payload, mut count) = (Vec::new(), 0);
        for string in strings {
            put_string(&mut payload, string.as_ref());
            count += 1;
        }
        Self::array(ValueKind::Str, count, payload)
    }

    /// A string of any bytes.
    pub fn bytes(bytes: &[u8]) -> Self {
        let mut payload = Vec::with_capacity(8 + bytes.len());
        put_string(&mut payload, bytes);
        Self {
            kind: ValueKind::Str,
            elements: None,
            payload,
        }
    }

    /// Appends kind and payload.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.kind as u32).to_le_bytes());
        if let Some((kind, count)) = self.elements {
            out.extend((kind as u32).to_le_bytes());
            out.extend(count.to_le_bytes());
        }
        out.extend(&self.payload);
    }

    /// The value, if it is a `u32`.
    pub(super) fn as_u32(&self) -> Option<u32> {
        let is_u32 = self.kind == ValueKind::U32;
        is_u32
            .then(|| self.payload.first_chunk().copied().map(u32::from_le_bytes))
            .flatten()
    }

    fn array(kind: ValueKind, count: u64, payload: Vec<u8>) -> Self {
        Self {
            kind: ValueKind::Array,
            elements: Some((kind, count)),
            payload,
        }
    }
}

/// Appends length and text.
pub(super) fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend((string.len() as u64).to_le_bytes());
    out.extend(string);
}

macro_rules! numbers {
    ($($ty:ident $kind:ident)*) => {$(
        impl From<$ty> for MetaValue {
            fn from(value: $ty) -> Self {
                Self { kind: ValueKind::$kind, elements: None, payload: value.to_le_bytes().to_vec() }
            }
        }

        impl From<&[$ty]> for MetaValue {
            fn from(values: &[$ty]) -> Self {
                let payload = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                Self::array(ValueKind::$kind, values.len() as u64, payload)
            }
        }
    )*};
}

numbers! { u8 U8 i8 I8 u16 U16 i16 I16 u32 U32 i32 I32 f32 F32 u64 U64 i64 I64 f64 F64 }

impl From<bool> for MetaValue {
    fn from(value: bool) -> Self {
        Self {
            kind: ValueKind::Bool,
            elements: None,
            payload: vec![value.into()],
        }
    }
}

impl From<&[bool]> for MetaValue {
    fn from(values: &[bool]) -> Self {
        Self::array(
            ValueKind::Bool,
            values.len() as u64,
            values.iter().map(|&v| v.into()).collect(),
        )
    }
}

impl From<&str> for MetaValue {
    fn from(text: &str) -> Self {
        Self::bytes(text.as_bytes())
    }
}

impl From<String> for MetaValue {
    fn from(text: String) -> Self {
        Self::bytes(text.as_bytes())
    }
}

impl From<&[&str]> for MetaValue {
    fn from(strings: &[&str]) -> Self {
        Self::strings(strings)
    }
}

impl From<Array<'_>> for MetaValue {
    fn from(array: Array<'_>) -> Self {
        Self::array(array.kind(), array.len() as u64, array.packed().to_vec())
    }
}

impl From<Value<'_>> for MetaValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::F32(v) => v.into(),
            Value::Bool(v) => v.into(),
            Value::Str(v) => Self::bytes(v),
            Value::Array(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            Value::F64(v) => v.into(),
        }
    }
}
