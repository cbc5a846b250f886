//! Where the keys and values of past tokens lie: the paged KV cache of one layer.
//!
//! A page holds [`PAGE_TOKENS`] tokens of one layer. The page of position `p` is entry `p / 64` of the sequence's page
//! table; page `i` starts `i · page_stride` elements into the layer's K pool and into its V pool. Within a page
//!
//! - K lies as `[kv head][token][dim]`: a lane of the attention kernel reads 8 dims of one token in 16 bytes;
//! - V lies transposed, `[kv head][dim][token]`: a lane reads 8 tokens of one dim in 16 bytes,
//!
//! which is how the two matrix products of attention want their operands in registers, with no shuffle between.

/// Tokens of a page.
pub const PAGE_TOKENS: u32 = 64;

/// The place of one key or value head in a page: which elements of the pool belong to `kv_head` in page `page`.
///
/// Returns the index of the first of `64 · head_dim` elements.
#[inline(always)]
#[must_use]
pub const fn head_base(page: u32, page_stride: u32, kv_head: u32, head_dim: u32) -> usize {
    page as usize * page_stride as usize + (kv_head * PAGE_TOKENS * head_dim) as usize
}

/// Index of dim `dim` of token `slot` (position mod 64) within a key head of a page.
#[inline(always)]
#[must_use]
pub const fn key_at(slot: u32, dim: u32, head_dim: u32) -> usize {
    (slot * head_dim + dim) as usize
}

/// Index of dim `dim` of token `slot` (position mod 64) within a value head of a page.
#[inline(always)]
#[must_use]
pub const fn value_at(slot: u32, dim: u32) -> usize {
    (dim * PAGE_TOKENS + slot) as usize
}

/// Elements of one page of K, and of V: the smallest page stride.
#[must_use]
pub const fn page_elements(kv_heads: u32, head_dim: u32) -> u32 {
    kv_heads * PAGE_TOKENS * head_dim
}

/// Pages that a sequence of `tokens` tokens needs.
#[must_use]
pub const fn pages_of(tokens: u32) -> u32 {
    tokens.div_ceil(PAGE_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_a_page_has_one_place() {
        let (heads, dim) = (2, 64);
        let mut keys = vec![false; page_elements(heads, dim) as usize];
        let mut values = keys.clone();
        for head in 0..heads {
            let base = head_base(0, page_elements(heads, dim), head, dim);
            for i in 0..PAGE_TOKENS * dim {
                let (slot, d) = (i / dim, i % dim);
                assert!(!std::mem::replace(&mut keys[base + key_at(slot, d, dim)], true));
                assert!(!std::mem::replace(&mut values[base + value_at(slot, d)], true));
            }
        }
    }
}
