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

/// Sequences of a step at most.
pub const MOST: u32 = 8;

/// The stream of sequence `sequence`, of streams of `columns` columns of which `first` is the first one's.
#[inline(always)]
fn stream_of(first: Residual, columns: u32, sequence: u32) -> Residual {
    let at = sequence as usize * columns as usize;
    Residual {
        x: first.x.add(at),
        gained: first.gained.add(at),
        squares: first.squares.add(at / 16),
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
