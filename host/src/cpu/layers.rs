//! The residual stream: parts applied to a batch of tokens.

use sparkinfer_gguf::{Error, Gguf};

use super::attention::AttentionPart;
use super::cache::Cache;
use super::engine::Numerics;
use super::feed_forward::{Mixture, Network};
use super::pool::Pool;
use super::rotation::Rotation;
use super::simd::rms_norm;
use super::weights::optional_values;
use crate::model::{ModelSpec, Operation, Part, Rope};

/// Consecutive tokens that are computed together.
pub(super) struct Batch<'a> {
    pub(super) pool: &'a Pool,
    /// Position of the first.
    pub(super) first: usize,
    /// 0, 1, 2 … for each token.
    pub(super) all: Vec<u32>,
    /// Prepared for these positions.
    pub(super) rotations: &'a [Rotation],
    /// Of every norm.
    pub(super) eps: f32,
    /// Whether anything is wanted behind the last layer, or the caches alone.
    pub(super) wanted: bool,
}

impl Batch<'_> {
    /// Number of tokens.
    pub(super) fn tokens(&self) -> usize {
        self.all.len()
    }
}

/// A part with its weights.
pub(super) struct LoadedPart<'m> {
    norm: Vec<f32>,
    operation: LoadedOperation<'m>,
    /// Empty without.
    post_norm: Vec<f32>,
}

enum LoadedOperation<'m> {
    /// With the index of its cache.
    Attention(Box<AttentionPart<'m>>, usize),
    Dense(Box<Network<'m>>),
    Mixture(Box<Mixture<'m>>),
}

/// All parts of all layers, and their distinct rotations.
pub(super) struct Stack<'m> {
    parts: Vec<LoadedPart<'m>>,
    pub(super) rotations: Vec<Rotation>,
}

impl<'m> Stack<'m> {
    pub(super) fn load(gguf: &'m Gguf, spec: &ModelSpec, numerics: Numerics) -> Result<Self, Error> {
        let mut ropes: Vec<Rope> = Vec::new();
        for attention in spec.attentions() {
            if !ropes.contains(&attention.rope) {
                ropes.push(attention.rope.clone());
            }
        }
        let mut caches = 0;
        let parts = spec.layers.iter().flat_map(|layer| &layer.parts);
        let parts = parts.map(|part| LoadedPart::load(gguf, part, &ropes, &mut caches, numerics));
        Ok(Stack {
            parts: parts.collect::<Result<_, _>>()?,
            rotations: ropes.iter().map(Rotation::new).collect(),
        })
    }

    /// Applies all parts to `x`, `[tokens][embedding_length]`; adds what it is after each of them to `trace`. Where the
    /// result is not wanted, ends with the last part that has a cache, of which only the cache is computed.
    pub(super) fn run(
        &self,
        batch: &Batch,
        caches: &mut [Cache],
        x: &mut [f32],
        mut trace: Option<&mut Vec<Vec<f32>>>,
    ) {
        let last = caches.len().checked_sub(1).filter(|_| !batch.wanted);
        for part in &self.parts {
            if last.is_some() && part.cache() == last {
                part.extend(batch, caches, x);
                break;
            }
            part.run(batch, caches, x);
            if let Some(trace) = &mut trace {
                trace.push(x.to_vec());
            }
        }
    }
}

impl<'m> LoadedPart<'m> {
    fn load(
        gguf: &'m Gguf,
        part: &Part,
        ropes: &[Rope],
        caches: &mut usize,
        numerics: Numerics,
    ) -> Result<Self, Error> {
        let operation = match &part.operation {
            Operation::Attention(spec) => {
                let rotation = ropes.iter().position(|rope| *rope == spec.rope).unwrap_or(0);
                let cache = *caches;
                *caches += 1;
                let attention = AttentionPart::load(gguf, spec, rotation, numerics)?;
                LoadedOperation::Attention(Box::new(attention), cache)
            }
            Operation::Dense(spec) => LoadedOperation::Dense(Box::new(Network::dense(gguf, spec, numerics)?)),
            Operation::Moe(spec) => LoadedOperation::Mixture(Box::new(Mixture::load(gguf, spec, numerics)?)),
        };
        let post_norm = optional_values(gguf, part.post_norm.as_ref())?;
        Ok(LoadedPart {
            norm: part.norm.values(gguf)?,
            operation,
            post_norm,
        })
    }

    /// The index of its cache.
    fn cache(&self) -> Option<usize> {
        match self.operation {
            LoadedOperation::Attention(_, cache) => Some(cache),
            _ => None,
        }
    }

    /// Extends its cache, if it has one, and leaves `x` as it is.
    fn extend(&self, batch: &Batch, caches: &mut [Cache], x: &[f32]) {
        if let LoadedOperation::Attention(attention, cache) = &self.operation {
            attention.extend(batch, &mut caches[*cache], &self.normed(batch, x));
        }
    }

    fn normed(&self, batch: &Batch, x: &[f32]) -> Vec<f32> {
        let mut normed = x.to_vec();
        rms_norm(batch.pool.level, &mut normed, &self.norm, batch.eps);
        normed
    }

    fn run(&self, batch: &Batch, caches: &mut [Cache], x: &mut [f32]) {
        let normed = self.normed(batch, x);
        let mut out = match &self.operation {
            LoadedOperation::Attention(attention, cache) => attention.run(batch, &mut caches[*cache], &normed),
            LoadedOperation::Dense(network) => network.run(batch, &normed),
            LoadedOperation::Mixture(mixture) => mixture.run(batch, &normed),
        };
        if !self.post_norm.is_empty() {
            rms_norm(batch.pool.level, &mut out, &self.post_norm, batch.eps);
        }
        x.iter_mut().zip(&out).for_each(|(x, out)| *x += out);
    }
}
