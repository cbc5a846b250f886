//! The launches of a layer and of a step's end, as data (host).
//!
//! Everything works in place on one residual stream: a launch that writes it has waited for all that read it before, and
//! its own blocks read only the rows that they write.

use super::gated::{GatedShape, gated};
use super::head::head;
use super::matrix::Matrix;
use super::project::project;
use super::qkv::{QkvShape, qkv};
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

/// What follows an operation.
#[derive(Clone, Copy, Debug)]
pub struct After {
    /// Gains of a norm behind it, or null.
    pub post: DevicePtr<f32>,
    /// Gains of the norm that comes next.
    pub next: DevicePtr<f32>,
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

    /// The launches of an attention part.
    ///
    /// # Errors
    /// The first shape that a kernel does not take.
    pub fn attention(
        &self,
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
        let mut launches = vec![
            ("norm_qkv", qkv(b.stream, b.qkv, shape)?),
            ("attention", attention(plan, heads)),
        ];
        self.onto_stream(
            &mut launches,
            "o_proj",
            b.attention,
            (w.output, plan.out_floats()),
            after,
        )?;
        Ok(launches)
    }

    /// The launches of a gated network of `width` inner values.
    ///
    /// # Errors
    /// The first shape that a kernel does not take.
    pub fn network(&self, w: &NetworkWeights, width: u32, after: After) -> Result<Vec<Named>, ShapeError> {
        let b = self.buffers;
        let shape = GatedShape {
            gate: w.gate,
            up: w.up,
            columns: self.columns,
            eps: self.eps,
            activation: w.activation as u32,
            reserved: 0,
        };
        let mut launches = vec![("gate_up", gated(b.stream, b.h, shape)?)];
        self.onto_stream(&mut launches, "down", b.h, (w.down, width), after)?;
        Ok(launches)
    }

    /// A projection onto the stream, by way of a norm where there is one behind it.
    fn onto_stream(
        &self,
        launches: &mut Vec<Named>,
        name: &'static str,
        a: DevicePtr<f32>,
        (matrix, columns): (Matrix, u32),
        after: After,
    ) -> Result<(), ShapeError> {
        let (stream, none) = (self.buffers.stream, DevicePtr::null());
        if after.post.is_null() {
            let launch = project(a, stream.x, stream, after.next, matrix, columns)?;
            launches.push((name, launch));
            return Ok(());
        }
        let post = Post {
            y: self.apart,
            gain: after.post,
            eps: self.eps,
            reserved: 0,
        };
        launches.push((name, project(a, none, self.apart, none, matrix, columns)?));
        launches.push(("post_norm", residual(stream, after.next, post, self.columns)?));
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
