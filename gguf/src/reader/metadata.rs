//! Typed access to metadata.

use std::fmt::Display;

use super::Gguf;
use super::value::{Array, Elements, Value, ValueKind};
use crate::error::{Error, ErrorKind};

/// Longest per-layer list that [`Metadata::per_layer`] makes from a scalar.
const MAX_LAYERS: usize = 1 << 16;

/// A file's metadata: a cheap view, copied freely. Look-ups take constant time.
///
/// Getters return `Ok(None)` for a missing key and an error naming file and key for a value of the wrong kind. Integer
/// getters take every integer kind whose value fits; nothing else is converted.
#[derive(Clone, Copy)]
pub struct Metadata<'a> {
    gguf: &'a Gguf,
}

/// A number or flag that metadata can hold. Implemented for `u32`, `u64`, `usize`, `i32`, `i64`, `f32`, `f64`, `bool`.
pub trait Scalar: Copy {
    /// What is wanted, for messages.
    const WANTED: &'static str;

    /// The value, if it is of the right kind and fits.
    fn from_value(value: Value<'_>) -> Option<Self>;
}

macro_rules! integers {
    ($($ty:ident: $wanted:literal)*) => {$(
        impl Scalar for $ty {
            const WANTED: &'static str = $wanted;

            fn from_value(value: Value<'_>) -> Option<Self> {
                value.integer().and_then(|v| v.try_into().ok())
            }
        }
    )*};
}

integers! {
    u32: "an integer from 0 to 2^32 - 1"
    u64: "an integer from 0 to 2^64 - 1"
    usize: "a size"
    i32: "an integer from -2^31 to 2^31 - 1"
    i64: "an integer from -2^63 to 2^63 - 1"
}

impl Scalar for f32 {
    const WANTED: &'static str = "a floating-point number";

    fn from_value(value: Value<'_>) -> Option<Self> {
        value.float().map(|v| v as f32)
    }
}

impl Scalar for f64 {
    const WANTED: &'static str = "a floating-point number";

    fn from_value(value: Value<'_>) -> Option<Self> {
        value.float()
    }
}

impl Scalar for bool {
    const WANTED: &'static str = "a bool";

    fn from_value(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Bool(v) => Some(v),
            _ => None,
        }
    }
}

/// Declares `name` and `require_name` for scalar types.
macro_rules! scalar_getters {
    ($($ty:ident $require:ident)*) => {$(
        #[doc = concat!("The key's value as `", stringify!($ty), "`.")]
        ///
        /// # Errors
        /// The value is of another kind or does not fit.
        pub fn $ty(self, key: &str) -> Result<Option<$ty>, Error> {
            self.scalar(key)
        }

        #[doc = concat!("The key's value as `", stringify!($ty), "`, which must be there.")]
        ///
        /// # Errors
        /// The key is missing, its value is of another kind or does not fit.
        pub fn $require(self, key: &str) -> Result<$ty, Error> {
            self.required(key, self.scalar(key)?)
        }
    )*};
}

impl<'a> Metadata<'a> {
    pub(super) fn new(gguf: &'a Gguf) -> Self {
        Self { gguf }
    }

    scalar_getters! {
        u32 require_u32
        u64 require_u64
        i32 require_i32
        i64 require_i64
        f32 require_f32
        bool require_bool
    }

    /// The key's value, whatever its kind.
    pub fn get(self, key: &str) -> Option<Value<'a>> {
        let stored = self.gguf.entries.get(key)?;
        Some(stored.read(&self.gguf.shards[0].storage))
    }

    /// Whether the key is there.
    pub fn contains(self, key: &str) -> bool {
        self.gguf.entries.get(key).is_some()
    }

    /// Number of keys.
    pub fn len(self) -> usize {
        self.gguf.entries.list().len()
    }

    /// Whether there are no keys.
    pub fn is_empty(self) -> bool {
        self.gguf.entries.list().is_empty()
    }

    /// All keys and values in file order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        let file: &'a [u8] = &self.gguf.shards[0].storage;
        let entries = self.gguf.entries.list();
        entries
            .iter()
            .map(move |(key, stored)| (key.as_str(), stored.read(file)))
    }

    /// The key's value as a number or flag.
    ///
    /// # Errors
    /// The value is of another kind or does not fit.
    pub fn scalar<T: Scalar>(self, key: &str) -> Result<Option<T>, Error> {
        self.typed(key, T::WANTED, T::from_value)
    }

    /// The key's value as bytes of a string.
    ///
    /// # Errors
    /// The value is no string.
    pub fn bytes(self, key: &str) -> Result<Option<&'a [u8]>, Error> {
        self.typed(key, "a string", |value| match value {
            Value::Str(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// The key's value as text.
    ///
    /// # Errors
    /// The value is no string or not valid UTF-8.
    pub fn str(self, key: &str) -> Result<Option<&'a str>, Error> {
        let Some(bytes) = self.bytes(key)? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(bytes);
        text.map(Some)
            .map_err(|e| self.error(key, format!("is not valid UTF-8 from byte {} on", e.valid_up_to())))
    }

    /// The key's value as text, which must be there.
    ///
    /// # Errors
    /// The key is missing, its value is no string or not valid UTF-8.
    pub fn require_str(self, key: &str) -> Result<&'a str, Error> {
        self.required(key, self.str(key)?)
    }

    /// The key's value as an array.
    ///
    /// # Errors
    /// The value is no array.
    pub fn array(self, key: &str) -> Result<Option<Array<'a>>, Error> {
        self.typed(key, "an array", |value| match value {
            Value::Array(array) => Some(array),
            _ => None,
        })
    }

    /// The key's value as an array of numbers or flags, each converted as [`Metadata::scalar`] does.
    ///
    /// # Errors
    /// The value is no array, or an element is of another kind or does not fit.
    pub fn list<T: Scalar>(self, key: &str) -> Result<Option<Vec<T>>, Error> {
        self.array(key)?.map(|array| self.elements(key, array)).transpose()
    }

    /// The key's value as an array of strings, each as its bytes.
    ///
    /// # Errors
    /// The value is no array of strings.
    pub fn strings(self, key: &str) -> Result<Option<Strings<'a>>, Error> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(array) if array.kind() == ValueKind::Str => Some(Strings { elements: array.iter() }),
            _ => None,
        })
    }

    /// The key's value as an array of strings, which must be there.
    ///
    /// # Errors
    /// The key is missing, or its value is no array of strings.
    pub fn require_strings(self, key: &str) -> Result<Strings<'a>, Error> {
        self.required(key, self.strings(key)?)
    }

    /// One value per layer: a scalar counts for all layers, an array must have exactly `layers` elements.
    ///
    /// # Errors
    /// Another kind of value, another number of elements, an element that does not fit, more than 65,536 layers.
    pub fn per_layer<T: Scalar>(self, key: &str, layers: usize) -> Result<Option<Vec<T>>, Error> {
        match self.get(key) {
            None => Ok(None),
            _ if layers > MAX_LAYERS => Err(self.error(key, format!("{layers} layers are too many"))),
            Some(Value::Array(array)) if array.len() != layers => {
                Err(self.error(key, format!("has {} elements for {layers} layers", array.len())))
            }
            Some(Value::Array(array)) => self.elements(key, array).map(Some),
            Some(_) => Ok(self.scalar(key)?.map(|value| vec![value; layers])),
        }
    }

    /// An error about this key, in this file.
    pub fn error(self, key: &str, problem: impl Display) -> Error {
        self.gguf.error(ErrorKind::key(key, problem.to_string()))
    }

    /// Turns a missing value into an error.
    ///
    /// # Errors
    /// `value` is `None`.
    pub fn required<T>(self, key: &str, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| self.error(key, "is missing"))
    }

    fn typed<T>(self, key: &str, wanted: &str, read: impl Fn(Value<'a>) -> Option<T>) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let wrong = || self.error(key, format!("must be {wanted}, but is {}", value.describe()));
        read(value).map(Some).ok_or_else(wrong)
    }

    fn elements<T: Scalar>(self, key: &str, array: Array<'a>) -> Result<Vec<T>, Error> {
        let read = |(i, value): (usize, Value<'a>)| {
            let wrong = || {
                self.error(
                    key,
                    format!("element {i} must be {}, but is {}", T::WANTED, value.describe()),
                )
            };
            T::from_value(value).ok_or_else(wrong)
        };
        array.iter().enumerate().map(read).collect()
    }
}

/// Iterator over an array's strings, as bytes.
#[derive(Clone, Debug)]
pub struct Strings<'a> {
    elements: Elements<'a>,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self.elements.next()? {
            Value::Str(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.elements.size_hint()
    }
}

impl ExactSizeIterator for Strings<'_> {}
