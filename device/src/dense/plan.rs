//! The launches of a layer and of a step's end, as data (host).
//!
//! Everything works in place on one residual stream: a launch that writes it has waited for all that read it before, and
//! its own blocks read only the rows that they write. Where a result is left [`Apart`], the launch that adds it writes the
//! sum elsewhere.

use super::apart::Apart;
use super::gated::{GatedShape, gated, gated_apart};
use super::head::head;
use super::matrix::Matrix;
use super::project::project;
use super::qkv::{QkvShape, qkv, qkv_apart};
use super::residual::{Post, residual};
use crate::decode::attention::{AttentionBuffers, AttentionPlan, attention};
use crate::decode::head::{Best, HeadShape};
use crate::decode::plan::{LayerCache, StepBuffers};
use crate::decode::residual::Residual;
use crate::general::gated::Activation;
use crate::shape::ShapeError;
use cuda_std::launch::PreparedLaunch;
use cuda_std::{DevicePtr, F32x2};

/// Weights of an attention part.
#[derive(Clone, Copy, Debug)]
pub struct AttentionWeights {
    /// Query, key and value matrices.
    pub qkv: [Matrix; 3],
    /// Norm weights of a query head, or null.
    pub q_norm: DevicePtr<f32>,
    /// Norm weights of a key head, or null.
    pub k_norm: DevicePtr<f32>,
    /// The rotation table of a head; layers may share it.
    pub frequencies: DevicePtr<F32x2>,
    /// The output projection.
    pub output: Matrix,
}

/// Weights of a gated network.
#[derive(Clone, Copy, Debug)]
pub struct NetworkWeights {
    /// Gate.
    pub gate: Matrix,
    /// Up.
    pub up: Matrix,
    /// Down.
    pub down: Matrix,
    /// What bends the gate.
    pub activation: Activation,
}

/// How an operation finds the stream.
#[derive(Clone, Copy, Debug)]
pub enum Entering {
    /// Complete.
    Whole(Residual),
    /// With the last result apart; the sum is in `to`, and the rest of the stream where it always is.
    Apart(Apart),
}

/// What follows an operation.
#[derive(Clone, Copy, Debug)]
pub struct After {
    /// Gains of a norm behind it, or null.
    pub post: DevicePtr<f32>,
    /// Gains of the norm that comes next.
    pub next: DevicePtr<f32>,
    /// The next operation adds the result: it stays apart.
    pub added: bool,
}

/// What all parts have in common.
#[derive(Clone, Copy, Debug)]
pub struct Common<'a> {
    /// Columns of the residual stream.
    pub columns: u32,
    /// The norms' epsilon.
    pub eps: f32,
    /// The step's buffers.
    pub buffers: &'a StepBuffers,
    /// Where a result lies that a norm stands behind: `columns` floats, a sixteenth of squares.
    pub apart: Residual,
}

/// A launch and its name, the same in every layer.
pub type Named = (&'static str, PreparedLaunch);

impl Common<'_> {
    /// The launch between the embedding and the first layer, or a prompt and the head.
    ///
    /// # Errors
    /// Columns that the kernel does not take.
    pub fn beginning(&self, norm: DevicePtr<f32>) -> Result<PreparedLaunch, ShapeError> {
        residual(self.buffers.stream, norm, Post::NONE, self.columns)
    }

    /// The stream behind the launch that an operation begins with.
    #[must_use]
    pub fn inside(&self, entering: Entering) -> Residual {
        match entering {
            Entering::Whole(stream) => stream,
            Entering::Apart(apart) => Residual {
                x: apart.to,
                ..self.buffers.stream
            },
        }
    }

    /// A result that the projection with a norm of gains `post` behind it left apart.
    #[must_use]
    pub fn post(&self, post: DevicePtr<f32>) -> Post {
        Post {
            y: self.apart,
            gain: post,
            eps: self.eps,
            reserved: 0,
        }
    }

    /// The launches of an attention part.
    ///
    /// # Errors
    /// The first shape that a kernel does not take.
    pub fn attention(
        &self,
        entering: Entering,
        plan: &AttentionPlan,
        w: &AttentionWeights,
        cache: &LayerCache,
        after: After,
    ) -> Result<Vec<Named>, ShapeError> {
        let b = self.buffers;
        let shape = QkvShape {
            matrices: w.qkv,
            columns: self.columns,
            eps: self.eps,
        };
        let heads = AttentionBuffers {
            qkv: b.qkv,
            q_norm: w.q_norm,
            k_norm: w.k_norm,
            frequencies: w.frequencies,
            state: b.state,
            table: b.table,
            keys: cache.keys,
            values: cache.values,
            partial: b.partial,
            counters: b.counters,
            out: b.attention,
        };
        let first = match entering {
            Entering::Whole(stream) => qkv(stream, b.qkv, shape)?,
            Entering::Apart(apart) => qkv_apart(apart, b.qkv, shape)?,
        };
        let mut launches = vec![("norm_qkv", first), ("attention", attention(plan, heads))];
        let (stream, a) = (self.inside(entering), (b.attention, plan.out_floats()));
        self.onto(&mut launches, "o_proj", stream, a, w.output, after)?;
        Ok(launches)
    }

    /// The launches of a gated network of `width` inner values.
    ///
    /// # Errors
    /// The first shape that a kernel does not take.
    pub fn network(
        &self,
        entering: Entering,
        w: &NetworkWeights,
        width: u32,
        after: After,
    ) -> Result<Vec<Named>, ShapeError> {
        let b = self.buffers;
        let shape = GatedShape {
            gate: w.gate,
            up: w.up,
            columns: self.columns,
            eps: self.eps,
            activation: w.activation as u32,
            reserved: 0,
        };
        let first = match entering {
            Entering::Whole(stream) => gated(stream, b.h, shape)?,
            Entering::Apart(apart) => gated_apart(apart, b.h, shape)?,
        };
        let mut launches = vec![("gate_up", first)];
        self.onto(
            &mut launches,
            "down",
            self.inside(entering),
            (b.h, width),
            w.down,
            after,
        )?;
        Ok(launches)
    }

    /// A projection of `a`, which has so many floats, onto the stream, by way of a norm where there is one behind it.
    fn onto(
        &self,
        launches: &mut Vec<Named>,
        name: &'static str,
        stream: Residual,
        (a, columns): (DevicePtr<f32>, u32),
        matrix: Matrix,
        after: After,
    ) -> Result<(), ShapeError> {
        let none = DevicePtr::null();
        if after.post.is_null() {
            let launch = project(a, stream.x, stream, after.next, matrix, columns)?;
            launches.push((name, launch));
            return Ok(());
        }
        launches.push((name, project(a, none, self.apart, none, matrix, columns)?));
        if !after.added {
            let launch = residual(stream, after.next, self.post(after.post), self.columns)?;
            launches.push(("post_norm", launch));
        }
        Ok(())
    }

    /// The launch from the stream, which has met the last norm's gains, to logits and candidates.
    ///
    /// # Errors
    /// A shape that the kernel does not take.
    pub fn head(
        &self,
        matrix: Matrix,
        shape: HeadShape,
        logits: DevicePtr<f32>,
        best: DevicePtr<Best>,
        blocks: u32,
    ) -> Result<PreparedLaunch, ShapeError> {
        head(self.buffers.stream, logits, best, matrix, shape, blocks)
    }
}
