//! The kernels of a decode step of several sequences, fused for mixture-of-experts layers.
//!
//! The launches are those of a [step of one](super), with the same rules; what differs is how sequences share them:
//!
//! | launch | module | sequences |
//! |---|---|---|
//! | norm, Q, K and V | [`qkv`] | all of them for a tile of weights that was loaded once |
//! | attention | [`many`](super::attention::many) | blocks of their own |
//! | output projection, residual | [`project`] | all for a tile |
//! | norm, router | [`router`] | all for a row |
//! | choice of experts, gate and up | [`gateup`] | blocks of their own |
//! | down, residual | [`down`] | blocks of their own |
//! | head | [`head`] | all for a tile |
//! | next tokens | [`advance`] | a block each |
//!
//! Experts are not gathered: of 128, eight sequences share a fifth of their choices, and blocks that want the same weights
//! are neighbours in the grid, so that the second one finds them in L2.
//!
//! **What does not change**: every sum of a sequence is made of the same numbers in the same order whatever the other
//! sequences are and however many there are, so its logits are the same bits.
//!
//! Everything of sequence s lies behind that of sequence s − 1, without a gap. [`plan`] puts the launches together.

pub mod advance;
pub mod down;
pub mod enter;
mod four;
pub mod gateup;
pub mod head;
#[cfg(not(target_arch = "nvptx64"))]
pub mod plan;
pub mod project;
pub mod qkv;
pub mod router;
mod rows;

use super::residual::Residual;
use cuda_std::prelude::*;

/// Sequences of a step at most.
pub const MOST: u32 = 8;

/// The residual streams of several sequences, and what the next product wants to know of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Streams {
    /// The first one; of each of its parts those of the others follow.
    pub first: Residual,
    /// The largest `|x ∘ g|` of every 16 columns, f32: a product's activations have a scale for each 256.
    pub peaks: DevicePtr<f32>,
}

impl Streams {
    /// The stream of sequence `sequence`, `columns` long.
    #[inline(always)]
    fn of(&self, columns: u32, sequence: u32) -> Residual {
        let at = sequence as usize * columns as usize;
        Residual {
            x: self.first.x.add(at),
            gained: self.first.gained.add(at),
            squares: self.first.squares.add(at / 16),
        }
    }

    /// Writes 16 columns of a stream from `16 · group`, as [`Residual::store`], and their peak.
    ///
    /// # Safety
    /// The stream has the columns. All lanes of the warp call this together.
    #[inline(always)]
    unsafe fn store(&self, (columns, sequence): (u32, u32), group: u32, lane: u32, x: f32, gain: f32) {
        // The bits of non-negative floats order as integers.
        let peak = warp::redux_max(warp::FULL, float::abs(x * gain).to_bits());
        // SAFETY: the caller's.
        unsafe {
            self.of(columns, sequence).store(group, lane, x, gain);
            if lane == 0 {
                let at = (sequence * columns / 16 + group) as usize;
                global::store(self.peaks.as_mut_ptr().add(at), f32::from_bits(peak));
            }
        }
    }
}

/// `sequences`, when a launch takes as many.
///
/// # Errors
/// None, or more than [`MOST`].
#[cfg(not(target_arch = "nvptx64"))]
fn check(kernel: &'static str, sequences: u32) -> Result<u32, crate::shape::ShapeError> {
    if sequences == 0 || sequences > MOST {
        let rule = format!("{sequences} sequences; it takes 1 to {MOST}");
        return Err(crate::shape::ShapeError::new(kernel, rule));
    }
    Ok(sequences)
}
