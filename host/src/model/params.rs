//! Typed, checked access to an architecture's hyper-parameters and tensors.

use std::fmt::Display;
use std::ops::RangeInclusive;

use sparkinfer_gguf::{Error, Gguf, Metadata, TensorView, Value};

use super::error::{Result, Shape};
use super::tensors::{Linear, Matrix, Vector};

/// Most layers that a file may claim.
const MAX_LAYERS: usize = 512;
/// Most experts that a file may claim.
pub(super) const MAX_EXPERTS: usize = 1024;
/// Bound of widths and counts that tensors then confirm; keeps products far from overflow.
pub(super) const MAX_WIDTH: usize = 1 << 24;

/// A file, seen as a model of one architecture. Keys are given without the `arch.` prefix.
pub(super) struct Params<'g> {
    gguf: &'g Gguf,
    architecture: &'g str,
}

impl<'g> Params<'g> {
    pub(super) fn new(gguf: &'g Gguf, architecture: &'g str) -> Self {
        Params { gguf, architecture }
    }

    pub(super) fn architecture(&self) -> &'g str {
        self.architecture
    }

    pub(super) fn metadata(&self) -> Metadata<'g> {
        self.gguf.metadata()
    }

    /// The full key.
    fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.architecture)
    }

    /// An error about the value of a key.
    pub(super) fn bad(&self, suffix: &str, value: impl Display, limits: impl Display) -> Error {
        self.metadata()
            .error(&self.key(suffix), format!("is {value}, but must be {limits}"))
    }

    /// `value`, or an error that says that the key is missing.
    pub(super) fn required<T>(&self, suffix: &str, value: Option<T>) -> Result<T> {
        self.metadata().required(&self.key(suffix), value)
    }

    /// An error about a tensor.
    pub(super) fn bad_tensor(&self, name: &str, problem: impl Display) -> Error {
        self.gguf.tensor_error(name, problem)
    }

    fn missing_tensor(&self, name: &str, expected: &Shape) -> Error {
        self.bad_tensor(name, format!("is missing (the model needs it with shape {expected})"))
    }

    /// An integer in `limits`, or `None` if the key is absent.
    pub(super) fn optional_count(&self, suffix: &str, limits: RangeInclusive<usize>) -> Result<Option<usize>> {
        let Some(value) = self.metadata().u32(&self.key(suffix))? else {
            return Ok(None);
        };
        self.in_limits(suffix, value as usize, &limits).map(Some)
    }

    fn in_limits(&self, suffix: &str, value: usize, limits: &RangeInclusive<usize>) -> Result<usize> {
        if limits.contains(&value) {
            return Ok(value);
        }
        Err(self.bad(suffix, value, format!("{} to {}", limits.start(), limits.end())))
    }

    /// An integer in `limits` that must be there.
    pub(super) fn count(&self, suffix: &str, limits: RangeInclusive<usize>) -> Result<usize> {
        self.required(suffix, self.optional_count(suffix, limits)?)
    }

    /// The entry of `layer` in a key that holds one integer or one per layer.
    pub(super) fn layer_count(
        &self,
        suffix: &str,
        layer: usize,
        limits: RangeInclusive<usize>,
    ) -> Result<Option<usize>> {
        let per_layer = self
            .metadata()
            .per_layer::<u32>(&self.key(suffix), self.block_count()?)?;
        let value = per_layer.and_then(|values| values.get(layer).copied());
        value
            .map(|value| self.in_limits(suffix, value as usize, &limits))
            .transpose()
    }

    /// A finite number above 0, or `None` if the key is absent.
    pub(super) fn positive(&self, suffix: &str) -> Result<Option<f32>> {
        let Some(value) = self.metadata().f32(&self.key(suffix))? else {
            return Ok(None);
        };
        if value.is_finite() && value > 0.0 {
            return Ok(Some(value));
        }
        Err(self.bad(suffix, value, "a finite number above 0"))
    }

    /// As [`Params::positive`], with 0 meaning absent.
    pub(super) fn positive_or_unset(&self, suffix: &str) -> Result<Option<f32>> {
        match self.metadata().f32(&self.key(suffix))? {
            Some(0.0) => Ok(None),
            _ => self.positive(suffix),
        }
    }

    pub(super) fn text(&self, suffix: &str) -> Result<Option<&'g str>> {
        self.metadata().str(&self.key(suffix))
    }

    /// One flag per layer, or `None` if the key is absent or holds a single integer.
    pub(super) fn layer_flags(&self, suffix: &str) -> Result<Option<Vec<bool>>> {
        match self.metadata().get(&self.key(suffix)) {
            Some(Value::Array(_)) => self.metadata().per_layer(&self.key(suffix), self.block_count()?),
            _ => Ok(None),
        }
    }

    pub(super) fn block_count(&self) -> Result<usize> {
        self.count("block_count", 1..=MAX_LAYERS)
    }

    pub(super) fn embedding_length(&self) -> Result<usize> {
        self.count("embedding_length", 1..=MAX_WIDTH)
    }

    pub(super) fn tensor(&self, name: &str) -> Option<TensorView<'g>> {
        self.gguf.tensor(name)
    }

    /// `name`, if it is there, with shape `expected` and a type that can be computed with.
    fn checked(&self, name: &str, expected: &[usize]) -> Result<Option<TensorView<'g>>> {
        let Some(tensor) = self.tensor(name) else {
            return Ok(None);
        };
        let (found, expected) = (Shape::new(&tensor.dims), Shape::of(expected));
        if found != expected {
            let problem = format!("has shape {found}, but the hyper-parameters ask for {expected}");
            return Err(self.bad_tensor(name, problem));
        }
        if !tensor.ty.is_supported() {
            return Err(self.bad_tensor(name, format!("has the unsupported type {}", tensor.ty)));
        }
        Ok(Some(tensor))
    }

    /// A one-dimensional tensor of `len` values, or `None` if it is absent.
    pub(super) fn optional_vector(&self, name: &str, len: usize) -> Result<Option<Vector>> {
        let tensor = self.checked(name, &[len])?;
        Ok(tensor.map(|tensor| Vector {
            tensor: name.into(),
            ty: tensor.ty,
            first: 0,
            len,
        }))
    }

    /// A one-dimensional tensor of `len` values that must be there.
    pub(super) fn vector(&self, name: &str, len: usize) -> Result<Vector> {
        self.optional_vector(name, len)?
            .ok_or_else(|| self.missing_tensor(name, &Shape::of(&[len])))
    }

    /// The values of a small tensor, each finite and above 0, or `None` if it is absent.
    pub(super) fn positive_values(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>> {
        let Some(vector) = self.optional_vector(name, len)? else {
            return Ok(None);
        };
        let values = vector.values(self.gguf)?;
        match values.iter().position(|value| !(value.is_finite() && *value > 0.0)) {
            Some(i) => Err(self.bad_tensor(name, format!("value {i} is {}, but must be above 0", values[i]))),
            None => Ok(Some(values)),
        }
    }

    /// `stem.weight` as `experts` matrices of `cols` by `rows`, with `stem.scale` and `stem.bias` where
    /// the file has them, or `None` if the weight is absent.
    pub(super) fn optional_stack(
        &self,
        stem: &str,
        cols: usize,
        rows: usize,
        experts: usize,
    ) -> Result<Option<Linear>> {
        let name = format!("{stem}.weight");
        let Some(tensor) = self.checked(&name, &[cols, rows, experts])? else {
            return Ok(None);
        };
        let matrix = Matrix {
            tensor: name,
            ty: tensor.ty,
            cols,
            rows,
            first_row: 0,
            expert_rows: rows,
            experts,
        };
        let bias = if experts == 1 {
            self.optional_vector(&format!("{stem}.bias"), rows)?
        } else {
            None
        };
        Ok(Some(Linear {
            matrix,
            scale: self.scale(stem, experts)?,
            bias,
        }))
    }

    /// The second scale of a weight: one value, or one per expert.
    fn scale(&self, stem: &str, experts: usize) -> Result<Option<Vector>> {
        let name = format!("{stem}.scale");
        match self.tensor(&name) {
            Some(tensor) if Shape::new(&tensor.dims) == Shape::of(&[1]) => self.optional_vector(&name, 1),
            _ => self.optional_vector(&name, experts),
        }
    }

    /// As [`Params::optional_stack`], but the weight must be there.
    pub(super) fn stack(&self, stem: &str, cols: usize, rows: usize, experts: usize) -> Result<Linear> {
        let missing = || self.missing_tensor(&format!("{stem}.weight"), &Shape::of(&[cols, rows, experts]));
        self.optional_stack(stem, cols, rows, experts)?.ok_or_else(missing)
    }

    /// A single matrix that must be there.
    pub(super) fn linear(&self, stem: &str, cols: usize, rows: usize) -> Result<Linear> {
        self.stack(stem, cols, rows, 1)
    }
}
