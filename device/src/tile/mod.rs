//! Matrix × vector on integer tensor cores: what every kernel of that form shares.
//!
//! A warp multiplies one tile of 16 rows × 256 columns by 256 activations of 16 bits. The weights are the A operand of
//! `mma.m16n8k32.s8`, as they lie in the tile; the activation is B, its high and low bytes in neighbouring columns, and
//! several sub-blocks of weights share one accumulator by using different column pairs (the other columns are zero). So
//! lane `(g, t)` = `(lane / 4, lane % 4)` ends with exact integer sums of some sub-blocks of rows g and g + 8, applies
//! their integer scales, and one float operation a row applies the block's scale.
//!
//! ```text
//! Activation::load or ::split     256 activations → the lane's B words          ┐
//! Tile::load                      the lane's share of a tile, 16-byte loads     ├ Tile::multiply → 2 partial sums
//! Tile::scales                    the block scales, where lanes must exchange   ┘
//! quad_sum                        4 lanes → the tile's sum of rows g and g + 8
//! RowSums                         the warps' tiles → 16 rows, through shared memory, in a fixed order
//! ```
//!
//! Load the tile before `pdl::wait()`, the activation after it: into registers, or to shared memory ([`Stage`]) where
//! registers would keep blocks of the next launch out.

mod activation;
pub(crate) mod codes;
mod nibbles;
pub(crate) mod nvfp4;
mod q4k;
mod q6k;
mod reduce;
mod sixteen;
mod small;
mod source;
mod stage;
mod two_bit;

pub use activation::{Activation, Split};
pub use codes::{Iq4NlTile, Iq4XsTile, Mxfp4Tile};
pub use nvfp4::Nvfp4Tile;
pub use q4k::{KScales, KTile, Q4KTile, Q5KTile};
pub use q6k::Q6KTile;
pub use reduce::{RowSums, quad_sum};
pub use small::{Q4_0Tile, Q4_1Tile, Q5_0Tile, Q5_1Tile, Q8_0Tile, SmallTile};
pub use source::Source;
pub use stage::{Stage, Stages};
pub use two_bit::{Q2KTile, Q3KTile};

/// A lane's share of 16 rows × 256 columns of weights.
pub trait Tile: Copy {
    /// Bytes of a tile in memory.
    const BYTES: usize;
    /// The block scales of the lane's two rows.
    type Scales: Copy;

    /// A tile of zero weights.
    fn zero() -> Self;

    /// Loads the lane's share.
    ///
    /// # Safety
    /// `tile` is a whole tile, aligned to 16 bytes.
    unsafe fn load(tile: impl Source, lane: u32) -> Self;

    /// The same of a tile of which the first `columns` columns are there, a multiple of 32 or more than a tile has: what the
    /// others hold is read or not, and meets activations of zero.
    ///
    /// # Safety
    /// As [`load`](Self::load).
    #[inline(always)]
    unsafe fn load_first(tile: impl Source, lane: u32, _columns: u32) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::load(tile, lane) }
    }

    /// The block scales. All lanes of the warp call this together.
    fn scales(&self, lane: u32) -> Self::Scales;

    /// The activations with what only this type asks of them, for as many tiles as they meet. All lanes of the warp call
    /// this together.
    #[inline(always)]
    fn prepare(x: Activation, _lane: u32) -> Activation {
        x
    }

    /// The lane's part of rows `g` and `g + 8`; [`quad_sum`] adds the four lanes that share them. All lanes of the warp
    /// call this together.
    fn multiply(&self, scales: Self::Scales, x: &Activation, lane: u32) -> [f32; 2];
}

/// The lane's words if its column pair is `pair`, else zero.
#[inline(always)]
fn only(lane: u32, pair: u32, words: [u32; 2]) -> [u32; 2] {
    if lane >> 3 == pair { words } else { [0, 0] }
}

/// `256·hi + lo` of rows g and g + 8, from an accumulator's (hi, lo) columns.
#[inline(always)]
fn wide(c: [i32; 4]) -> [i32; 2] {
    [c[0] * 256 + c[1], c[2] * 256 + c[3]]
}

/// [`wide`] of the first accumulator less that of the second.
#[inline(always)]
fn difference(c: [[i32; 4]; 2]) -> [i32; 2] {
    let ([a, b], [m, n]) = (wide(c[0]), wide(c[1]));
    [a - m, b - n]
}
