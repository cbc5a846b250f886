//! Attention of one new token in f64: what every attention kernel must give.

use super::AttentionShape;
use crate::decode::kv::{self, Cell, Pool};
use crate::decode::rope;
use cuda_std::F32x2;

/// The inputs of a step of attention, as the kernels read them.
pub struct AttentionInputs<'a> {
    /// The shape.
    pub shape: AttentionShape,
    /// Dims of a head.
    pub head_dim: usize,
    /// Position of the new token.
    pub position: u32,
    /// `q | k | v` of the new token.
    pub qkv: &'a [f32],
    /// RMSNorm weights of a query head and of a key head, if the model has them.
    pub norms: Option<(&'a [f32], &'a [f32])>,
    /// Turns a position of each rotating pair, (high, low).
    pub frequencies: &'a [F32x2],
    /// Page of every 64 tokens.
    pub table: &'a [u32],
    /// The layer's pool of keys.
    pub keys: &'a Pool,
    /// The layer's pool of values.
    pub values: &'a Pool,
}

/// What a step of attention gives.
pub struct AttentionOutputs {
    /// The attention output, `[head][dim]`.
    pub out: Vec<f64>,
    /// The new key as stored, `[kv head][dim]`.
    pub key: Vec<f32>,
    /// The new value as stored, `[kv head][dim]`.
    pub value: Vec<f32>,
}

impl AttentionInputs<'_> {
    /// Runs the step in f64; the new key and value are rounded as the cache keeps them before they are used.
    #[must_use]
    pub fn run(&self) -> AttentionOutputs {
        let (heads, kv_heads) = (self.shape.heads as usize, self.shape.kv_heads as usize);
        let new = |first: usize, head: usize| &self.qkv[(first + head) * self.head_dim..][..self.head_dim];
        let format = self.keys.format;
        let key: Vec<f32> = (0..kv_heads)
            .flat_map(|h| format.round(&narrow(&self.turned(new(heads, h), self.norms.map(|n| n.1)))))
            .collect();
        let value: Vec<f32> = (0..kv_heads)
            .flat_map(|h| format.round(new(heads + kv_heads, h)))
            .collect();
        let out = (0..heads).flat_map(|h| self.head(h, &key, &value)).collect();
        AttentionOutputs { out, key, value }
    }

    /// A head normalised and rotated to the new token's position.
    fn turned(&self, x: &[f32], norm: Option<&[f32]>) -> Vec<f64> {
        let mut x: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        if let Some(weight) = norm {
            let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (mean + f64::from(self.shape.eps)).sqrt();
            x.iter_mut().zip(weight).for_each(|(v, w)| *v *= scale * f64::from(*w));
        }
        for pair in 0..self.shape.rotated / 2 {
            let (a, b) = rope::dims_of_pair(pair, self.shape.rotated, self.shape.pairing);
            let [high, low] = self.frequencies[pair as usize].0;
            let turns = (f64::from(high) + f64::from(low)) * f64::from(self.position);
            let (sin, cos) = (turns * core::f64::consts::TAU).sin_cos();
            let (u, v, m) = (x[a as usize], x[b as usize], f64::from(self.shape.mscale));
            x[a as usize] = m * (u * cos - v * sin);
            x[b as usize] = m * (u * sin + v * cos);
        }
        x
    }

    /// Key or value `dim` of old token `token`.
    fn old(&self, token: u32, kv_head: u32, dim: u32, keys: bool) -> f64 {
        let cell = Cell {
            page: self.table[(token / kv::PAGE_TOKENS) as usize],
            slot: token % kv::PAGE_TOKENS,
            kv_head,
        };
        f64::from(if keys { self.keys } else { self.values }.get(cell, dim))
    }

    fn head(&self, head: usize, key: &[f32], value: &[f32]) -> Vec<f64> {
        let (d, kv_head) = (self.head_dim, head / (self.shape.heads / self.shape.kv_heads) as usize);
        let q = self.turned(&self.qkv[head * d..][..d], self.norms.map(|n| n.0));
        let first = match self.shape.window {
            0 => 0,
            window => (self.position + 1).saturating_sub(window),
        };
        let element = |token: u32, dim: usize, keys: bool| match token == self.position {
            true => f64::from(if keys { key } else { value }[kv_head * d + dim]),
            false => self.old(token, kv_head as u32, dim as u32, keys),
        };
        let score = |token| (0..d).map(|i| q[i] * element(token, i, true)).sum::<f64>() * f64::from(self.shape.scale);
        let scores: Vec<f64> = (first..=self.position).map(|token| self.capped(score(token))).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mixed = |i| {
            weights
                .iter()
                .zip(first..)
                .map(|(w, token)| w * element(token, i, false))
                .sum::<f64>()
                / sum
        };
        (0..d).map(mixed).collect()
    }

    fn capped(&self, score: f64) -> f64 {
        match self.shape.softcap {
            0.0 => score,
            cap => f64::from(cap) * (score / f64::from(cap)).tanh(),
        }
    }
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|v| *v as f32).collect()
}
