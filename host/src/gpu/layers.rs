//! A model as the fused decode kernels take it: every layer attention and experts, every matrix in tiles.
//!
//! [`FusedModel::describe`] checks that the kernels take a model and places its weights; what does not fit is refused
//! with the reason, and the engine then tries other kernels.

use bytemuck::cast_slice;
use sparkinfer_device::rope;
use sparkinfer_gguf::TensorType;

use super::matrix::Form;
use super::weights::WeightMap;
use crate::model::{Activation, Attention, Layer, Linear, ModelSpec, Moe, Operation, Part, Vector};

/// A tiled matrix: where it lies among the weights, and its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiled {
    /// Offset of the first expert.
    pub offset: u64,
    /// Its type.
    pub ty: TensorType,
    /// Rows of one expert.
    pub rows: u32,
    /// Columns.
    pub cols: u32,
    /// Bytes of one expert.
    pub expert_bytes: u64,
}

/// The attention part of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct FusedAttention {
    /// The part as described.
    pub spec: Attention,
    /// Offset of the norm before it.
    pub norm: u64,
    /// Query, key and value matrices.
    pub qkv: [Tiled; 3],
    /// Offsets of the head norms.
    pub head_norms: [Option<u64>; 2],
    /// Offset of the rotation table.
    pub frequencies: u64,
    /// The output projection.
    pub output: Tiled,
}

/// The experts of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct FusedExperts {
    /// The part as described.
    pub spec: Moe,
    /// Offset of the norm before it.
    pub norm: u64,
    /// Offset of the router, f32.
    pub router: u64,
    /// Gate of expert 0.
    pub gate: Tiled,
    /// Up of expert 0.
    pub up: Tiled,
    /// Down of expert 0.
    pub down: Tiled,
}

/// A model whose weights have their places.
#[derive(Debug, Clone, PartialEq)]
pub struct FusedModel {
    /// Offset of the embedding table, as in the file.
    pub embedding: u64,
    /// The layers.
    pub layers: Vec<(FusedAttention, FusedExperts)>,
    /// Offset of the last norm.
    pub output_norm: u64,
    /// The matrix that makes logits.
    pub output: Tiled,
}

/// Why the fused kernels do not take a model: what was found, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotFused(String);

type Result<T> = std::result::Result<T, NotFused>;

pub(super) fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(NotFused(reason.into()))
}

impl FusedModel {
    /// Places the weights of `spec` in `map`.
    ///
    /// # Errors
    /// The first thing that the fused kernels do not take. What was placed before stays in the map: drop it.
    pub fn describe(spec: &ModelSpec, map: &mut WeightMap) -> Result<Self> {
        if spec.embedding.table.scale.is_some() || spec.embedding.table.bias.is_some() {
            return refuse("the embedding has a second scale or a bias");
        }
        let layers = spec
            .layers
            .iter()
            .map(|layer| fused_layer(layer, map))
            .collect::<Result<_>>()?;
        Ok(Self {
            embedding: map.matrix(&spec.embedding.table.matrix, Form::File),
            layers,
            output_norm: map.vector(&spec.output_norm),
            output: tiled(&spec.output, map)?,
        })
    }
}

fn fused_layer(layer: &Layer, map: &mut WeightMap) -> Result<(FusedAttention, FusedExperts)> {
    let [first, second] = layer.parts.as_slice() else {
        return refuse(format!("a layer of {} parts", layer.parts.len()));
    };
    match (&first.operation, &second.operation) {
        (Operation::Attention(attention), Operation::Moe(moe)) => {
            plain_residual(first)?;
            plain_residual(second)?;
            Ok((
                fused_attention(&first.norm, attention, map)?,
                fused_experts(&second.norm, moe, map)?,
            ))
        }
        _ => refuse("a layer other than attention and a mixture of experts"),
    }
}

fn plain_residual(part: &Part) -> Result<()> {
    if part.post_norm.is_some() {
        refuse("a norm behind an operation")
    } else {
        Ok(())
    }
}

fn fused_attention(norm: &Vector, spec: &Attention, map: &mut WeightMap) -> Result<FusedAttention> {
    let [q, k, v] = [&spec.q, &spec.k, &spec.v].map(|linear| tiled_rows(linear, map));
    Ok(FusedAttention {
        norm: map.vector(norm),
        qkv: [q?, k?, v?],
        head_norms: [&spec.q_norm, &spec.k_norm].map(|norm| norm.as_ref().map(|norm| map.vector(norm))),
        frequencies: place_frequencies(spec, map),
        output: tiled_rows(&spec.output, map)?,
        spec: spec.clone(),
    })
}

/// The rotation table of a head; layers with the same rotation share it.
pub(super) fn place_frequencies(spec: &Attention, map: &mut WeightMap) -> u64 {
    let table = rope::table(&spec.rope.frequencies());
    map.values(format!("{:?}", spec.rope), cast_slice(&table).to_vec())
}

fn fused_experts(norm: &Vector, spec: &Moe, map: &mut WeightMap) -> Result<FusedExperts> {
    if spec.activation != Activation::Silu || !spec.renormalise || spec.weight_scale != 1.0 || spec.shared.is_some() {
        return refuse("experts with another activation, weighting or a shared expert");
    }
    if spec.router.bias.is_some() || spec.router.scale.is_some() {
        return refuse(format!("{} has a bias or a second scale", spec.router.matrix.tensor));
    }
    if spec.router.matrix.ty != TensorType::F32 {
        return refuse(format!(
            "{} is {}, not F32",
            spec.router.matrix.tensor, spec.router.matrix.ty
        ));
    }
    Ok(FusedExperts {
        norm: map.vector(norm),
        router: map.matrix(&spec.router.matrix, Form::File),
        gate: tiled_rows(&spec.gate, map)?,
        up: tiled_rows(&spec.up, map)?,
        down: tiled_rows(&spec.down, map)?,
        spec: spec.clone(),
    })
}

/// A matrix of whole row groups.
fn tiled_rows(linear: &Linear, map: &mut WeightMap) -> Result<Tiled> {
    if linear.matrix.rows.is_multiple_of(16) {
        tiled(linear, map)
    } else {
        refuse(format!(
            "{} has {} rows, no multiple of 16",
            linear.matrix.tensor, linear.matrix.rows
        ))
    }
}

fn tiled(linear: &Linear, map: &mut WeightMap) -> Result<Tiled> {
    let matrix = &linear.matrix;
    if linear.scale.is_some() || linear.bias.is_some() {
        return refuse(format!("{} has a second scale or a bias", matrix.tensor));
    }
    let Some(form) = Form::fused(matrix) else {
        return refuse(format!(
            "{} is {}: the fused kernels read Q4_K and Q6_K",
            matrix.tensor, matrix.ty
        ));
    };
    Ok(Tiled {
        offset: map.matrix(matrix, form),
        ty: matrix.ty,
        rows: matrix.rows as u32,
        cols: matrix.cols as u32,
        expert_bytes: form.expert_bytes(matrix) as u64,
    })
}
