//! Attention: projections, rotation, cache, weighted sums.

use std::ops::Range;

use sparkinfer_gguf::{Error, Gguf};

use super::cache::Cache;
use super::engine::Numerics;
use super::inputs::Inputs;
use super::layers::Batch;
use super::product::{Product, run, transpose};
use super::simd::{Attend, BLOCK, attend, rms_norm};
use super::weights::{Weight, optional_values};
use crate::model::Attention;

/// Tokens of a task: each block read from the cache serves all of them.
const TILE: usize = 16;

/// An attention part with its weights.
pub(super) struct AttentionPart<'m> {
    spec: Attention,
    q: Weight<'m>,
    k: Weight<'m>,
    v: Weight<'m>,
    output: Weight<'m>,
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
    /// Index of its rotation among the engine's.
    rotation: usize,
}

impl<'m> AttentionPart<'m> {
    pub(super) fn load(gguf: &'m Gguf, spec: &Attention, rotation: usize, numerics: Numerics) -> Result<Self, Error> {
        let weight = |linear| Weight::load(gguf, linear, numerics);
        Ok(AttentionPart {
            q: weight(&spec.q)?,
            k: weight(&spec.k)?,
            v: weight(&spec.v)?,
            output: weight(&spec.output)?,
            q_norm: optional_values(gguf, spec.q_norm.as_ref())?,
            k_norm: optional_values(gguf, spec.k_norm.as_ref())?,
            rotation,
            spec: spec.clone(),
        })
    }

    /// The part's result, `[tokens][embedding_length]`, for normed inputs `x`. Extends the cache.
    pub(super) fn run(&self, batch: &Batch, cache: &mut Cache, x: &[f32]) -> Vec<f32> {
        let [mut q, k, v] = self.project(batch, x, [&self.q, &self.k, &self.v]);
        self.turn(batch, &self.q_norm, self.spec.heads, &mut q);
        self.keep(batch, cache, k, &v);
        let mixed = self.mix(batch, cache, &q);
        let inputs = Inputs::new(batch.pool, &mixed, &[&self.output]);
        let mut out = vec![0.0; batch.tokens() * self.output.rows];
        let product = Product {
            weight: &self.output,
            expert: 0,
            inputs: &inputs,
            tokens: &batch.all,
            out: &mut out,
        };
        run(batch.pool, vec![product]);
        transpose(batch.pool, out, batch.tokens())
    }

    /// Extends the cache, and computes nothing else.
    pub(super) fn extend(&self, batch: &Batch, cache: &mut Cache, x: &[f32]) {
        let [k, v] = self.project(batch, x, [&self.k, &self.v]);
        self.keep(batch, cache, k, &v);
    }

    /// Puts keys and values, `[tokens][kv_heads · head_dim]` each, into the cache.
    fn keep(&self, batch: &Batch, cache: &mut Cache, mut k: Vec<f32>, v: &[f32]) {
        self.turn(batch, &self.k_norm, self.spec.kv_heads, &mut k);
        let width = self.spec.kv_heads * self.spec.head_dim;
        for (i, (k, v)) in k.chunks_exact(width).zip(v.chunks_exact(width)).enumerate() {
            cache.put(batch.first + i, k, v);
        }
    }

    /// The products with some of q, k and v, `[tokens][heads · head_dim]` each.
    fn project<const N: usize>(&self, batch: &Batch, x: &[f32], weights: [&Weight; N]) -> [Vec<f32>; N] {
        let inputs = Inputs::new(batch.pool, x, &weights);
        let mut out = weights.map(|weight| vec![0.0; batch.tokens() * weight.rows]);
        let products = weights.into_iter().zip(&mut out);
        let products = products.map(|(weight, out)| Product {
            weight,
            expert: 0,
            inputs: &inputs,
            tokens: &batch.all,
            out,
        });
        run(batch.pool, products.collect());
        out.map(|out| transpose(batch.pool, out, batch.tokens()))
    }

    /// Norms and rotates heads.
    fn turn(&self, batch: &Batch, norm: &[f32], heads: usize, x: &mut [f32]) {
        let rotation = &batch.rotations[self.rotation];
        if !norm.is_empty() {
            rms_norm(batch.pool.level, x, norm, batch.eps);
        }
        for (i, token) in x.chunks_exact_mut(heads * self.spec.head_dim).enumerate() {
            for head in token.chunks_exact_mut(self.spec.head_dim) {
                rotation.apply(i, head);
            }
        }
    }

    /// The weighted sums of values, `[tokens][heads · head_dim]`.
    fn mix(&self, batch: &Batch, cache: &Cache, q: &[f32]) -> Vec<f32> {
        let (tokens, group) = (batch.tokens(), self.spec.heads / self.spec.kv_heads);
        let width = group * self.spec.head_dim;
        // Task by task, [kv_heads][tokens][group · head_dim], so that each writes its own piece.
        let mut mixed = vec![0.0; q.len()];
        let pieces = mixed.chunks_mut(tokens * width).enumerate();
        let tasks = pieces.flat_map(|(kv_head, out)| {
            let tiles = out.chunks_mut(TILE * width).enumerate();
            tiles.map(move |(i, out)| Tile {
                kv_head,
                first: i * TILE,
                out,
            })
        });
        batch
            .pool
            .each(tasks.collect(), |tile| self.mix_tile(batch, cache, q, tile));
        if self.spec.kv_heads == 1 {
            return mixed;
        }
        let mut by_token = vec![0.0; q.len()];
        for (i, piece) in mixed.chunks_exact(width).enumerate() {
            let (kv_head, token) = (i / tokens, i % tokens);
            by_token[(token * self.spec.kv_heads + kv_head) * width..][..width].copy_from_slice(piece);
        }
        by_token
    }

    fn mix_tile(&self, batch: &Batch, cache: &Cache, q: &[f32], tile: Tile) {
        let head_dim = self.spec.head_dim;
        let group = self.spec.heads / self.spec.kv_heads;
        let tokens = tile.out.len() / (group * head_dim);
        let (first, kv_head) = (batch.first + tile.first, tile.kv_head);
        let mut rows = self.rows(q, tile);
        let mut scores = vec![[0.0; BLOCK]; rows.len()];
        let (mut keys, mut values) = (vec![0.0; BLOCK * head_dim], vec![0.0; BLOCK * head_dim]);
        let all = self.visible(first).start..first + tokens;
        // Blocks are aligned whatever the batch, so that the order of sums is always the same.
        for start in (all.start / BLOCK * BLOCK..all.end).step_by(BLOCK) {
            let len = BLOCK.min(all.end - start);
            let (keys, values) = (&mut keys[..len * head_dim], &mut values[..len * head_dim]);
            cache.get(batch.pool.level, kv_head, start, keys, values);
            for (row, state) in rows.iter_mut().enumerate() {
                let seen = self.visible(first + row / group);
                let within = |position: usize| position.clamp(start, start + len) - start;
                state.seen = within(seen.start)..within(seen.end);
            }
            attend(batch.pool.level, &mut rows, keys, values, &mut scores);
        }
        for row in rows {
            let sum = row.sum as f32;
            row.out.iter_mut().for_each(|out| *out /= sum);
        }
    }

    /// The tile's queries before the first position.
    fn rows<'a>(&self, q: &'a [f32], tile: Tile<'a>) -> Vec<Attend<'a>> {
        let head_dim = self.spec.head_dim;
        let group = self.spec.heads / self.spec.kv_heads;
        let outs = tile.out.chunks_exact_mut(head_dim).enumerate();
        outs.map(|(row, out)| {
            let head = (tile.first + row / group) * self.spec.heads + tile.kv_head * group + row % group;
            Attend {
                query: &q[head * head_dim..][..head_dim],
                scale: self.spec.scale,
                softcap: self.spec.softcap,
                seen: 0..0,
                max: f32::NEG_INFINITY,
                sum: 0.0,
                out,
            }
        })
        .collect()
    }

    /// The positions that a query at `position` sees.
    fn visible(&self, position: usize) -> Range<usize> {
        let end = position + 1;
        self.spec.window.map_or(0, |window| end.saturating_sub(window))..end
    }
}

/// The tokens from `first` on of a batch, and the query heads of one key/value head.
struct Tile<'a> {
    kv_head: usize,
    first: usize,
    /// `[tokens][group · head_dim]`.
    out: &'a mut [f32],
}
