//! Attention: projections, rotation, cache, weighted sums.

use std::ops::Range;

use sparkinfer_gguf::{Error, Gguf};

use super::cache::Cache;
use super::engine::Numerics;
use super::inputs::Inputs;
use super::layers::Batch;
use super::pool::Pool;
use super::product::{Product, run, transpose};
use super::rotation::Rotation;
use super::simd::{Attend, attend, rms_norm};
use super::weights::{Weight, optional_values};
use crate::model::Attention;

/// Positions that are read from the cache together. Blocks are aligned to multiples of it whatever the
/// batch, so that the order of sums is always the same.
const BLOCK: usize = 64;
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
        let [mut q, mut k, v] = self.project(batch, x);
        let rotation = &batch.rotations[self.rotation];
        self.turn(batch, &self.q_norm, rotation, self.spec.heads, &mut q);
        self.turn(batch, &self.k_norm, rotation, self.spec.kv_heads, &mut k);
        let width = self.spec.kv_heads * self.spec.head_dim;
        for (i, (k, v)) in k.chunks_exact(width).zip(v.chunks_exact(width)).enumerate() {
            cache.put(batch.first + i, k, v);
        }
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

    /// q, k and v, `[tokens][heads · head_dim]` each.
    fn project(&self, batch: &Batch, x: &[f32]) -> [Vec<f32>; 3] {
        let weights = [&self.q, &self.k, &self.v];
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
    fn turn(&self, batch: &Batch, norm: &[f32], rotation: &Rotation, heads: usize, x: &mut [f32]) {
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
        let first = batch.first + tile.first;
        let mut rows: Vec<Attend> = tile
            .out
            .chunks_exact_mut(head_dim)
            .enumerate()
            .map(|(row, out)| {
                let head = (tile.first + row / group) * self.spec.heads + tile.kv_head * group + row % group;
                Attend {
                    query: &q[head * head_dim..][..head_dim],
                    scale: self.spec.scale,
                    softcap: self.spec.softcap,
                    max: f32::NEG_INFINITY,
                    sum: 0.0,
                    out,
                }
            })
            .collect();
        let (mut keys, mut values) = (vec![0.0; BLOCK * head_dim], vec![0.0; BLOCK * head_dim]);
        let all = self.visible(first).start..first + tokens;
        for start in (all.start / BLOCK * BLOCK..all.end).step_by(BLOCK) {
            let len = BLOCK.min(all.end - start);
            cache.get(
                batch.pool.level,
                tile.kv_head,
                start,
                &mut keys[..len * head_dim],
                &mut values[..len * head_dim],
            );
            for (row, state) in rows.iter_mut().enumerate() {
                let seen = self.visible(first + row / group);
                let seen = seen.start.max(start) - start..seen.end.min(start + len).max(start) - start;
                add_block(batch.pool, state, &keys, &values, seen);
            }
        }
        for row in rows {
            let sum = row.sum as f32;
            row.out.iter_mut().for_each(|out| *out /= sum);
        }
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

/// Adds the positions `seen` of a block, if any.
fn add_block(pool: &Pool, state: &mut Attend, keys: &[f32], values: &[f32], seen: Range<usize>) {
    if seen.is_empty() {
        return;
    }
    let width = state.query.len();
    let range = seen.start * width..seen.end * width;
    let mut scores = [0.0; BLOCK];
    attend(
        pool.level,
        state,
        &keys[range.clone()],
        &values[range],
        &mut scores[..seen.len()],
    );
}
