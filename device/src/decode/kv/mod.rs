//! Where the keys and values of past tokens lie: the paged KV cache of one layer.
//!
//! A page holds [`PAGE_TOKENS`] tokens of one layer. The page of position `p` is entry `p / 64` of the sequence's page
//! table; page `i` starts `i · page_bytes` bytes into the layer's pool of keys and into its pool of values. A page holds
//! one head after the other; what a head's bytes mean is its [`KvFormat`]:
//!
//! | format | a value | scales | bytes of 128 dims |
//! |---|---|---|---|
//! | f16, bf16 | 2 bytes | none | 256 |
//! | q8_0 | an i8 (of values: plus 128), times its scale | an f16 for 32 dims of a token: their largest magnitude / 127 | 136 |
//!
//! **Layout**: a head is four chunks of [`CHUNK`] tokens, and a chunk lies in the order in which the two matrix products
//! of attention take it: a lane `(g, t)` of a warp reads its operands in 16-byte pieces, a warp reads 512 bytes in a row,
//! and nothing moves between lanes. With token `8j + g` (or `8j + 2t + i`) of a chunk:
//!
//! | | piece | holds |
//! |---|---|---|
//! | keys, 16 bits | dims / 32, j, g, dims % 32 / 8 | 8 dims |
//! | keys, q8_0 | dims / 32, g, dims % 32 / 8 | 2 tokens (j) of 8 dims |
//! | values, 16 bits | dims / 16, dim % 8, t | 2 (j) by 2 (dim / 8) by 2 tokens (i) |
//! | values, q8_0 | dims / 32, dim % 8, t | 2 (dim / 16) by the same |
//!
//! The scales of q8_0 lie behind the chunk's values, `[t][dims / 32][j][i]`. Heads are padded to 16 dims.
//!
//! [`KvType`] is the arithmetic of a format, for kernels that are compiled for each: [`F16`], [`Bf16`], [`Q8_0`].

mod half;
#[cfg(not(target_arch = "nvptx64"))]
mod image;
mod q8_0;

pub use self::half::{Bf16, F16};
#[cfg(not(target_arch = "nvptx64"))]
pub use image::{Cell, Pool};
pub use q8_0::Q8_0;

/// Tokens of a page.
pub const PAGE_TOKENS: u32 = 64;

/// Tokens of a chunk: what a warp of the attention kernels takes at a time.
pub const CHUNK: u32 = 16;

/// Dims of a head that share a scale in q8_0.
pub const BLOCK: u32 = 32;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvFormat {
    /// 11 bits of precision.
    #[default]
    F16,
    /// 8 bits of precision and the range of f32.
    Bf16,
    /// 8 bits a value, with a scale for 32 dims of a token.
    Q8_0,
}

/// Where a value and its scale lie, in bytes from the head's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The value.
    pub value: u32,
    /// The scale, where the format has one.
    pub scale: u32,
    /// What is added to a value of 8 bits: 0 in keys, which are multiplied as they are, and 128 in values.
    pub offset: u8,
}

impl KvFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::F16, Self::Bf16, Self::Q8_0];

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
        }
    }

    /// Whether a scale belongs to every 32 dims.
    #[inline(always)]
    #[must_use]
    pub const fn scaled(self) -> bool {
        matches!(self, Self::Q8_0)
    }

    /// Bytes of a value.
    #[inline(always)]
    const fn value_bytes(self) -> u32 {
        if self.scaled() { 1 } else { 2 }
    }

    /// Bytes of the values of a chunk.
    #[inline(always)]
    const fn values_bytes(self, head_dim: u32) -> u32 {
        CHUNK * padded(head_dim) * self.value_bytes()
    }

    /// Bytes of a chunk of a key or value head.
    #[inline(always)]
    #[must_use]
    pub const fn chunk_bytes(self, head_dim: u32) -> u32 {
        let scales = if self.scaled() {
            CHUNK * (head_dim / BLOCK) * 2
        } else {
            0
        };
        self.values_bytes(head_dim) + scales
    }

    /// Bytes of a key or value head in a page.
    #[inline(always)]
    #[must_use]
    pub const fn head_bytes(self, head_dim: u32) -> u32 {
        PAGE_TOKENS / CHUNK * self.chunk_bytes(head_dim)
    }

    /// Bytes of a page of keys, and of values: the smallest distance of pages.
    #[inline(always)]
    #[must_use]
    pub const fn page_bytes(self, kv_heads: u32, head_dim: u32) -> u32 {
        kv_heads * self.head_bytes(head_dim)
    }

    /// Byte of the pool at which `kv_head` of page `page` begins.
    #[inline(always)]
    #[must_use]
    pub const fn head_at(self, page: u32, page_bytes: u32, kv_head: u32, head_dim: u32) -> usize {
        page as usize * page_bytes as usize + (kv_head * self.head_bytes(head_dim)) as usize
    }

    /// Where dim `dim` of token `slot` (position mod 64) lies within a key head.
    #[inline(always)]
    #[must_use]
    pub const fn key(self, slot: u32, dim: u32, head_dim: u32) -> Place {
        let (j, g) = (slot % CHUNK / 8, slot % 8);
        let (c, t) = (dim / 32, dim % 32 / 8);
        // Lanes of a token that have dims in the last 32: fewer than four where the head ends within them.
        let left = padded(head_dim) / 8 - 4 * c;
        let lanes = if left < 4 { left } else { 4 };
        let eight = if self.scaled() {
            2 * (32 * c + lanes * g + t) + j
        } else {
            64 * c + lanes * (8 * j + g) + t
        };
        Place {
            value: self.chunk_at(slot, head_dim) + (8 * eight + dim % 8) * self.value_bytes(),
            scale: self.scale(slot, dim, head_dim),
            offset: 0,
        }
    }

    /// Where dim `dim` of token `slot` lies within a value head.
    #[inline(always)]
    #[must_use]
    pub const fn value(self, slot: u32, dim: u32, head_dim: u32) -> Place {
        let token = slot % CHUNK;
        let (j, t, i) = (token / 8, token % 8 / 2, token % 2);
        // Rows of 16 dims that a piece of 16 bytes covers.
        let rows = if self.scaled() { 2 } else { 1 };
        let piece = (dim / 16 / rows * 8 + dim % 8) * 4 + t;
        let within = dim / 16 % rows * 8 + j * 4 + dim % 16 / 8 * 2 + i;
        Place {
            value: self.chunk_at(slot, head_dim) + (piece * 8 * rows + within) * self.value_bytes(),
            scale: self.scale(slot, dim, head_dim),
            offset: 0x80,
        }
    }

    /// Where the chunk of token `slot` begins in a head.
    #[inline(always)]
    const fn chunk_at(self, slot: u32, head_dim: u32) -> u32 {
        slot / CHUNK * self.chunk_bytes(head_dim)
    }

    #[inline(always)]
    const fn scale(self, slot: u32, dim: u32, head_dim: u32) -> u32 {
        let token = slot % CHUNK;
        let block = token % 8 / 2 * (head_dim / BLOCK) + dim / BLOCK;
        self.chunk_at(slot, head_dim) + self.values_bytes(head_dim) + (block * 4 + token / 8 * 2 + token % 2) * 2
    }
}

/// `head_dim`, or more: a multiple of 16.
#[inline(always)]
const fn padded(head_dim: u32) -> u32 {
    head_dim.div_ceil(16) * 16
}

/// Pages that a sequence of `tokens` tokens needs.
#[must_use]
pub const fn pages_of(tokens: u32) -> u32 {
    tokens.div_ceil(PAGE_TOKENS)
}

/// Which part of a chunk a lane takes.
#[derive(Clone, Copy)]
pub struct Corner {
    /// Row of the fragments: lane / 4.
    pub g: u32,
    /// Column pair of the fragments: lane % 4.
    pub t: u32,
}

impl Corner {
    /// The corner of a lane.
    #[inline(always)]
    #[must_use]
    pub const fn of(lane: u32) -> Self {
        Self {
            g: lane >> 2,
            t: lane & 3,
        }
    }

    #[inline(always)]
    const fn lane(self) -> u32 {
        4 * self.g + self.t
    }
}

/// A value as it is stored, and what it then stands for.
#[derive(Clone, Copy)]
pub struct Encoded {
    /// The value's bits.
    pub bits: u16,
    /// The bits of its scale.
    pub scale: u16,
    /// What both stand for.
    pub value: f32,
}

/// The arithmetic of a [`KvFormat`].
///
/// A *batch* is what a warp loads at once: a chunk's keys, or its values, of 128 dims (the last one of fewer). Batch `b`
/// holds dims `128b …`. Either way a lane takes every 32nd piece.
pub trait KvType: Copy {
    /// The format.
    const FORMAT: KvFormat;
    /// How many 16-bit numbers stand for a weight of the softmax: 2 where one is too coarse.
    const WEIGHT_PARTS: usize;
    /// A lane's part of a batch.
    type Batch: Copy;
    /// An empty one.
    const EMPTY: Self::Batch;

    /// Loads a batch of the keys, or of the values, of chunk `chunk` of a page.
    ///
    /// # Safety
    /// `head` points to a key or value head of a page, of a multiple of 32 dims, 16-byte aligned.
    unsafe fn load<const HD: u32>(head: *const u8, chunk: u32, at: Corner, b: u32) -> Self::Batch;

    /// The lane's piece `i` of a batch, as memory has it.
    fn piece(batch: &Self::Batch, i: usize) -> [u32; 4];

    /// The lane's dims `32c + 8t …` of token `8j + g` of a batch of keys, in pairs.
    fn keys(batch: &Self::Batch, c: usize, j: usize) -> [u32; 4];

    /// The scales of dims `32c …` of tokens `8j + 2t` and `8j + 2t + 1` of a batch of keys.
    fn key_scales(_batch: &Self::Batch, _c: usize, _j: usize) -> [f32; 2] {
        [1.0; 2]
    }

    /// The lane's part of dims `16m …` of a batch of values: an A fragment of 16 dims by 16 tokens.
    fn values(batch: &Self::Batch, m: usize) -> [u32; 4];

    /// The weights of the lane's tokens, times the scales of dims `32c …` of a batch of values.
    fn weighted(_batch: &Self::Batch, _c: usize, weights: [u32; 2]) -> [u32; 2] {
        weights
    }

    /// Makes sure that of the lane's tokens `2t`, `2t + 1`, `8 + 2t`, `8 + 2t + 1` those from `valid` on add nothing:
    /// what memory holds there may be anything, also a NaN, which no zero weight takes out of a sum.
    fn clip(batch: &mut Self::Batch, at: Corner, valid: i32);

    /// `mma.m16n8k16` of the 16-bit type that scores and weights are multiplied in.
    fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4];

    /// The bits of `x` in that type, and of what rounding lost.
    fn split(x: f32) -> [u16; 2];

    /// Two weights as pairs of that type, in [`WEIGHT_PARTS`](Self::WEIGHT_PARTS) parts, and the sum of what they then
    /// stand for.
    fn pack(a: f32, b: f32) -> ([u32; 2], f32);

    /// A value as it is stored. Where the format is scaled, all lanes of the warp call this together, each with its dim
    /// of a block of 32.
    fn encode(x: f32) -> Encoded;

    /// Stores dim `dim` of a token at its place.
    ///
    /// # Safety
    /// `head` points to a head of a page, and the place is that of the dim in it.
    unsafe fn write(head: *mut u8, place: Place, dim: u32, x: Encoded);

    /// The value at a place.
    ///
    /// # Safety
    /// `head` points to a head of a page with the place.
    unsafe fn read(head: *const u8, place: Place) -> f32;
}

/// The 16-bit pair at `word` masked to those of the two tokens from `first` on that are below `valid`.
#[inline(always)]
const fn keep(first: i32, valid: i32) -> u32 {
    match valid - first {
        ..=0 => 0,
        1 => 0xffff,
        _ => u32::MAX,
    }
}

/// The masks of the lane's token pairs: `2t` and `8 + 2t`.
#[inline(always)]
const fn masks(at: Corner, valid: i32) -> [u32; 2] {
    let first = 2 * at.t as i32;
    [keep(first, valid), keep(8 + first, valid)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values take their own bytes and scales theirs, shared by the 32 dims of a token only.
    #[test]
    fn everything_in_a_head_has_a_place_of_its_own() {
        for format in KvFormat::ALL {
            for dim in [64, 96, 128, 256] {
                places(format, dim, KvFormat::key);
                places(format, dim, KvFormat::value);
            }
        }
        places(KvFormat::F16, 80, KvFormat::key);
        places(KvFormat::Bf16, 72, KvFormat::value);
    }

    fn places(format: KvFormat, head_dim: u32, place: fn(KvFormat, u32, u32, u32) -> Place) {
        let mut owner = vec![None; format.head_bytes(head_dim) as usize];
        let mut take = |from: u32, bytes: u32, who: (u32, u32, bool)| {
            for byte in &mut owner[from as usize..(from + bytes) as usize] {
                assert!(byte.is_none_or(|other| other == who), "{who:?} meets {byte:?}");
                *byte = Some(who);
            }
        };
        for slot in 0..PAGE_TOKENS {
            for dim in 0..head_dim {
                let place = place(format, slot, dim, head_dim);
                take(place.value, format.value_bytes(), (slot, dim, false));
                if format.scaled() {
                    take(place.scale, 2, (slot, dim / BLOCK, true));
                }
            }
        }
        let free = owner.iter().filter(|byte| byte.is_none()).count() as u32;
        assert_eq!(free, PAGE_TOKENS * (padded(head_dim) - head_dim) * format.value_bytes());
    }

    #[test]
    fn sizes() {
        assert_eq!(KvFormat::F16.page_bytes(4, 128), 4 * 64 * 256);
        assert_eq!(KvFormat::Q8_0.page_bytes(4, 128), 4 * 64 * 136);
        assert_eq!(KvFormat::Bf16.head_bytes(72), 64 * 160);
    }
}
