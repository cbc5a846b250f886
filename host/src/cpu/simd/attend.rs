//! Attention: the running softmax of queries over blocks of positions (Milakov & Gimelshein 2018).
//!
//! Several queries share the keys and values of a block, which is the cheaper the more there are: a register of keys or
//! values serves them all. No query's result depends on which others there are. Positions that a query does not see weigh
//! nothing, and adding nothing changes no bit.

use std::ops::Range;

use super::dispatch;
use super::float::dots_of_all;
use super::isa::{Isa, LANES};
use crate::exp::exp;

/// Positions of a block, at most.
pub(in crate::cpu) const BLOCK: usize = 64;
/// Queries whose sums of values are kept in registers together.
const ROWS: usize = 4;

/// The running softmax of one query.
pub(in crate::cpu) struct Attend<'a> {
    /// The query, `[head_dim]`.
    pub(in crate::cpu) query: &'a [f32],
    /// Multiplies the scores.
    pub(in crate::cpu) scale: f32,
    /// Bounds the scores.
    pub(in crate::cpu) softcap: Option<f32>,
    /// The positions of the next block that it sees.
    pub(in crate::cpu) seen: Range<usize>,
    /// The largest score so far.
    pub(in crate::cpu) max: f32,
    /// Sum of the weights so far, relative to `max`.
    pub(in crate::cpu) sum: f64,
    /// Weighted sum of the values so far, `[head_dim]`.
    pub(in crate::cpu) out: &'a mut [f32],
}

dispatch! {
    /// Adds a block of keys and values, `[positions][head_dim]` each, to all rows. `scores` is scratch, one for each row.
    pub(in crate::cpu) fn attend / attend_avx2(
        rows: &mut [Attend], keys: &[f32], values: &[f32], scores: &mut [[f32; BLOCK]],
    ) = attend_body
}

#[inline(always)]
fn attend_body<I: Isa>(rows: &mut [Attend], keys: &[f32], values: &[f32], scores: &mut [[f32; BLOCK]]) {
    let Some(width) = rows.first().map(|row| row.query.len()) else {
        return;
    };
    let queries: &[Attend] = rows;
    dots_of_all::<I>(
        |position| &keys[position * width..][..width],
        keys.len() / width,
        |row| queries[row].query,
        queries.len(),
        |position, row, dot| scores[row][position] = dot,
    );
    for (row, scores) in rows.iter_mut().zip(scores.iter_mut()) {
        row.weigh(scores);
    }
    let (groups, rest) = rows.as_chunks_mut::<ROWS>();
    let (weights, weights_of_rest) = scores.as_chunks::<ROWS>();
    for (rows, weights) in groups.iter_mut().zip(weights) {
        add_weighted::<I, ROWS>(rows, weights, values);
    }
    for (row, weights) in rest.iter_mut().zip(weights_of_rest) {
        add_weighted::<I, 1>(std::array::from_mut(row), std::array::from_ref(weights), values);
    }
}

impl Attend<'_> {
    /// Makes scores weights, relative to the largest score so far, to which it turns what was summed before.
    #[inline(always)]
    fn weigh(&mut self, scores: &mut [f32; BLOCK]) {
        if self.seen.is_empty() {
            return scores.fill(0.0);
        }
        scores.iter_mut().for_each(|score| *score *= self.scale);
        if let Some(cap) = self.softcap {
            scores.iter_mut().for_each(|score| *score = cap * tanh(*score / cap));
        }
        scores[..self.seen.start].fill(f32::NEG_INFINITY);
        scores[self.seen.end..].fill(f32::NEG_INFINITY);
        let max = largest(scores, self.max);
        scores.iter_mut().for_each(|score| *score = exp(*score - max));
        if self.max != max {
            let keep = exp(self.max - max);
            self.sum *= f64::from(keep);
            self.out.iter_mut().for_each(|out| *out *= keep);
            self.max = max;
        }
        self.sum += total(scores);
    }
}

#[inline(always)]
fn largest(scores: &[f32; BLOCK], least: f32) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [least; LANES];
    for scores in scores.as_chunks::<LANES>().0 {
        for (lane, score) in lanes.iter_mut().zip(scores) {
            *lane = larger(*lane, *score);
        }
    }
    lanes.into_iter().fold(least, larger)
}

#[inline(always)]
fn total(weights: &[f32; BLOCK]) -> f64 {
    let mut lanes = [0f64; LANES];
    for weights in weights.as_chunks::<LANES>().0 {
        for (lane, weight) in lanes.iter_mut().zip(weights) {
            *lane += f64::from(*weight);
        }
    }
    lanes.into_iter().sum()
}

/// Adds each position's values times its weight to the rows' sums, in order.
#[inline(always)]
fn add_weighted<I: Isa, const Q: usize>(rows: &mut [Attend; Q], weights: &[[f32; BLOCK]; Q], values: &[f32]) {
    let width = rows[0].out.len();
    let mut column = 0;
    // One row alone has registers for more columns, and needs them: its sums are chains.
    while Q == 1 && I::ROWS == 4 && column + 8 * LANES <= width {
        add_columns::<I, Q, 8>(rows, weights, values, column);
        column += 8 * LANES;
    }
    while Q == 1 && I::ROWS >= 2 && column + 4 * LANES <= width {
        add_columns::<I, Q, 4>(rows, weights, values, column);
        column += 4 * LANES;
    }
    while I::ROWS == 4 && column + 2 * LANES <= width {
        add_columns::<I, Q, 2>(rows, weights, values, column);
        column += 2 * LANES;
    }
    while column + LANES <= width {
        add_columns::<I, Q, 1>(rows, weights, values, column);
        column += LANES;
    }
    for (row, weights) in rows.iter_mut().zip(weights) {
        for (values, weight) in values.chunks_exact(width).zip(weights) {
            for (out, value) in row.out[column..].iter_mut().zip(&values[column..]) {
                *out = weight.mul_add(*value, *out);
            }
        }
    }
}

/// The same for `C · LANES` columns.
#[inline(always)]
fn add_columns<I: Isa, const Q: usize, const C: usize>(
    rows: &mut [Attend; Q],
    weights: &[[f32; BLOCK]; Q],
    values: &[f32],
    column: usize,
) {
    let width = rows[0].out.len();
    let mut sums = [[I::splat(0.0); C]; Q];
    for q in 0..Q {
        for (c, out) in rows[q].out[column..].as_chunks().0[..C].iter().enumerate() {
            sums[q][c] = I::load(out);
        }
    }
    for (position, values) in values.chunks_exact(width).enumerate().take(BLOCK) {
        let values = &values[column..].as_chunks().0[..C];
        for q in 0..Q {
            let weight = I::splat(weights[q][position]);
            for c in 0..C {
                sums[q][c] = I::mul_add(weight, I::load(&values[c]), sums[q][c]);
            }
        }
    }
    for q in 0..Q {
        for (c, out) in rows[q].out[column..].as_chunks_mut().0[..C].iter_mut().enumerate() {
            *out = I::lanes(sums[q][c]);
        }
    }
}

#[inline(always)]
fn tanh(x: f32) -> f32 {
    2.0 / (1.0 + exp(-2.0 * x)) - 1.0
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    /// Dims, queries and positions: some of every number of columns that are summed together.
    const WIDTH: usize = 15 * LANES + 5;
    const QUERIES: usize = 7;
    const POSITIONS: usize = 21;
    const SCALE: f32 = 0.03;

    fn values(n: usize, seed: u64) -> Vec<f32> {
        (0..n as u64)
            .map(|i| (crate::sample::uniform(seed, i) - 0.5) * 8.0)
            .collect()
    }

    /// Queries, keys and values.
    fn inputs() -> [Vec<f32>; 3] {
        [(QUERIES, 6), (POSITIONS, 7), (POSITIONS, 8)].map(|(rows, seed)| values(rows * WIDTH, seed))
    }

    /// The positions that a query sees.
    fn visible(query: usize) -> Range<usize> {
        query..POSITIONS - query
    }

    /// Queries `which`, over positions in blocks.
    fn run(level: Level, softcap: Option<f32>, which: Range<usize>) -> Vec<f32> {
        let [queries, keys, values] = inputs();
        let mut out = vec![0.0; which.len() * WIDTH];
        let queries = queries[which.start * WIDTH..].chunks_exact(WIDTH);
        let mut rows: Vec<Attend> = queries
            .zip(out.chunks_exact_mut(WIDTH))
            .map(|(query, out)| Attend {
                query,
                scale: SCALE,
                softcap,
                seen: 0..0,
                max: f32::NEG_INFINITY,
                sum: 0.0,
                out,
            })
            .collect();
        let mut scores = vec![[f32::NAN; BLOCK]; rows.len()];
        for block in [0..8, 8..9, 9..POSITIONS] {
            for (row, query) in rows.iter_mut().zip(which.clone()) {
                let (seen, at) = (visible(query), |x: usize| x.clamp(block.start, block.end) - block.start);
                row.seen = at(seen.start)..at(seen.end);
            }
            let range = block.start * WIDTH..block.end * WIDTH;
            attend(level, &mut rows, &keys[range.clone()], &values[range], &mut scores);
        }
        for row in rows {
            let sum = row.sum as f32;
            row.out.iter_mut().for_each(|out| *out /= sum);
        }
        out
    }

    fn exact_weights(query: &[f32], keys: &[f32], softcap: Option<f32>) -> Vec<f64> {
        let score = |key: &[f32]| {
            let products = query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k));
            let score = products.sum::<f64>() * f64::from(SCALE);
            softcap
                .map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                .exp()
        };
        let weights: Vec<f64> = keys.chunks(WIDTH).map(score).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    #[test]
    fn attention_over_blocks_is_attention() {
        let [queries, keys, values] = inputs();
        for softcap in [None, Some(5.0)] {
            let out = run(Level::best(), softcap, 0..QUERIES);
            for (query, out) in out.chunks(WIDTH).enumerate() {
                let seen = visible(query);
                let range = seen.start * WIDTH..seen.end * WIDTH;
                let weights = exact_weights(&queries[query * WIDTH..][..WIDTH], &keys[range.clone()], softcap);
                for (d, out) in out.iter().enumerate() {
                    let values = values[range.clone()].chunks(WIDTH).zip(&weights);
                    let exact: f64 = values.map(|(values, weight)| weight * f64::from(values[d])).sum();
                    assert!((f64::from(*out) - exact).abs() < 1e-5, "{query}, {d}: {out} {exact}");
                }
            }
        }
    }

    #[test]
    fn neither_machine_nor_company_changes_a_bit() {
        let all = run(Level::best(), None, 0..QUERIES);
        for level in Level::all() {
            assert_eq!(all, run(level, None, 0..QUERIES));
            for query in 0..QUERIES {
                let alone = run(level, None, query..query + 1);
                assert_eq!(alone, all[query * WIDTH..][..WIDTH]);
            }
        }
    }
}
