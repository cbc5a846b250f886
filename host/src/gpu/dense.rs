//! A model as the dense kernels take it: attention and gated networks in any order, every matrix in tiles of a
//! [`Kind`].
//!
//! Biases, norms behind operations, windows and activations are data. [`DenseModel::describe`] checks that the kernels take
//! a model and places its weights; what does not fit is refused with the reason.

mod plan;
mod prompt;
#[cfg(test)]
mod tests;

use sparkinfer_device::dense::Kind;
use sparkinfer_device::general::gated;

use super::layers::{NotFused, place_frequencies, refuse};
use super::matrix::Form;
use super::weights::WeightMap;
use crate::model::{Activation, Attention, Dense, Linear, ModelSpec, Operation, Part};

pub use plan::{DenseParts, buffer_sizes};

type Result<T> = std::result::Result<T, NotFused>;

/// A tiled matrix: where it lies among the weights, and its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    /// Offset of the first tile.
    pub offset: u64,
    /// Offset of the bias.
    pub bias: Option<u64>,
    /// Type of the tiles.
    pub kind: Kind,
    /// Rows.
    pub rows: u32,
    /// Bytes that a step reads of it.
    pub bytes: u64,
}

/// The attention of a part.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacedAttention {
    /// As described.
    pub spec: Attention,
    /// Query, key and value matrices.
    pub qkv: [Placed; 3],
    /// Offsets of the head norms.
    pub head_norms: [Option<u64>; 2],
    /// Offset of the rotation table.
    pub frequencies: u64,
    /// The output projection.
    pub output: Placed,
    /// Which of the model's caches is its own.
    pub cache: usize,
}

/// The gated network of a part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlacedNetwork {
    /// Inner values.
    pub width: u32,
    /// What bends the gate.
    pub activation: gated::Activation,
    /// Gate, up and down.
    pub gate: Placed,
    /// Up.
    pub up: Placed,
    /// Down.
    pub down: Placed,
}

/// What a part does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Work {
    /// Attention.
    Attention(Box<PlacedAttention>),
    /// A gated network.
    Network(PlacedNetwork),
}

/// A part of a layer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacedPart {
    /// The layer it belongs to.
    pub layer: usize,
    /// Offset of the norm before it.
    pub norm: u64,
    /// The operation.
    pub work: Work,
    /// Offset of the norm behind it.
    pub post_norm: Option<u64>,
}

/// A model whose weights have their places.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseModel {
    embedding: u64,
    parts: Vec<PlacedPart>,
    output_norm: u64,
    output: Placed,
}

impl DenseModel {
    /// Places the weights of `spec` in `map`. A table that is the output matrix too lies there twice: rows are looked up as
    /// in the file.
    ///
    /// # Errors
    /// The first thing that the dense kernels do not take. What was placed before stays in the map: drop it.
    pub fn describe(spec: &ModelSpec, map: &mut WeightMap) -> Result<Self> {
        if spec.embedding.table.scale.is_some() || spec.embedding.table.bias.is_some() {
            return refuse("the embedding has a second scale or a bias");
        }
        let (mut caches, mut parts) = (0, Vec::new());
        for (layer, described) in spec.layers.iter().enumerate() {
            for part in &described.parts {
                parts.push(place_part(layer, part, &mut caches, map)?);
            }
        }
        Ok(Self {
            embedding: map.matrix(&spec.embedding.table.matrix, Form::File),
            parts,
            output_norm: map.vector(&spec.output_norm),
            output: place(&spec.output, map)?,
        })
    }

    /// Whether a norm stands behind some operation.
    fn has_post_norms(&self) -> bool {
        self.parts.iter().any(|part| part.post_norm.is_some())
    }

    fn attentions(&self) -> impl Iterator<Item = &PlacedAttention> {
        self.parts.iter().filter_map(|part| match &part.work {
            Work::Attention(attention) => Some(attention.as_ref()),
            Work::Network(_) => None,
        })
    }

    fn networks(&self) -> impl Iterator<Item = &PlacedNetwork> {
        self.parts.iter().filter_map(|part| match &part.work {
            Work::Network(network) => Some(network),
            Work::Attention(_) => None,
        })
    }
}

fn place_part(layer: usize, part: &Part, caches: &mut usize, map: &mut WeightMap) -> Result<PlacedPart> {
    let norm = map.vector(&part.norm);
    let work = match &part.operation {
        Operation::Attention(attention) => {
            *caches += 1;
            Work::Attention(Box::new(place_attention(attention, *caches - 1, map)?))
        }
        Operation::Dense(dense) => Work::Network(place_network(dense, map)?),
        Operation::Moe(_) => return refuse("a layer has a mixture of experts"),
    };
    Ok(PlacedPart {
        layer,
        norm,
        work,
        post_norm: part.post_norm.as_ref().map(|norm| map.vector(norm)),
    })
}

fn place_attention(spec: &Attention, cache: usize, map: &mut WeightMap) -> Result<PlacedAttention> {
    let [q, k, v] = [&spec.q, &spec.k, &spec.v].map(|linear| place_rows(linear, map));
    Ok(PlacedAttention {
        qkv: [q?, k?, v?],
        head_norms: [&spec.q_norm, &spec.k_norm].map(|norm| norm.as_ref().map(|norm| map.vector(norm))),
        frequencies: place_frequencies(spec, map),
        output: place_rows(&spec.output, map)?,
        cache,
        spec: spec.clone(),
    })
}

fn place_network(dense: &Dense, map: &mut WeightMap) -> Result<PlacedNetwork> {
    Ok(PlacedNetwork {
        width: dense.width as u32,
        activation: match dense.activation {
            Activation::Silu => gated::Activation::Silu,
            Activation::GeluTanh => gated::Activation::GeluTanh,
        },
        gate: place_rows(&dense.gate, map)?,
        up: place_rows(&dense.up, map)?,
        down: place_rows(&dense.down, map)?,
    })
}

/// A matrix of whole row groups.
fn place_rows(linear: &Linear, map: &mut WeightMap) -> Result<Placed> {
    let matrix = &linear.matrix;
    if matrix.rows.is_multiple_of(16) {
        place(linear, map)
    } else {
        refuse(format!("{} has {} rows, no multiple of 16", matrix.tensor, matrix.rows))
    }
}

fn place(linear: &Linear, map: &mut WeightMap) -> Result<Placed> {
    let matrix = &linear.matrix;
    if linear.scale.is_some() {
        return refuse(format!("{} has a second scale", matrix.tensor));
    }
    let Some(kind) = Kind::of(matrix.ty) else {
        return refuse(format!(
            "{} is {}, of which there are no dense kernels",
            matrix.tensor, matrix.ty
        ));
    };
    if linear.bias.is_some() && !matrix.rows.is_multiple_of(16) {
        return refuse(format!("{} has a bias and {} rows", matrix.tensor, matrix.rows));
    }
    Ok(Placed {
        offset: map.matrix(matrix, Form::Tiles),
        bias: linear.bias.as_ref().map(|bias| map.vector(bias)),
        kind,
        rows: matrix.rows as u32,
        bytes: linear.bytes(),
    })
}
