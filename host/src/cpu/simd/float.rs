//! Dot products of floats, for the reference arithmetic and for weights that are not quantised.
//!
//! Products go into 16 lanes of f32; every [`CHUNK`] columns the lanes are summed, in a fixed order, into
//! an f64. A sum of thousands of products so stays within a few ulp, and the result does not depend on
//! how many tokens are computed together.

use super::dispatch;
use super::isa::{Isa, LANES, array};

/// Columns between two foldings of the lanes.
const CHUNK: usize = 512;

dispatch! {
    /// `out[r][i] = w_r · x_i` for the rows `w_r` of `w`, `[rows][cols]`, and the rows `x_i` of `x`, `[…][cols]`, that
    /// `tokens` names.
    pub(in crate::cpu) fn dot_rows / dot_rows_avx2(
        w: &[f32], cols: usize, x: &[f32], tokens: &[u32], out: &mut [f32],
    ) = dot_rows_body
}

#[inline(always)]
fn dot_rows_body<I: Isa>(w: &[f32], cols: usize, x: &[f32], tokens: &[u32], out: &mut [f32]) {
    let x = |i: usize| &x[tokens[i] as usize * cols..][..cols];
    dots_of_all::<I>(
        |r| &w[r * cols..][..cols],
        w.len() / cols,
        x,
        tokens.len(),
        |r, i, dot| out[r * tokens.len() + i] = dot,
    );
}

/// Tells `put` of all `w(r) · x(i)`, tile by tile: a few of `x`, which stay nearest, meet all of `w`.
#[inline(always)]
pub(super) fn dots_of_all<'a, I: Isa>(
    w: impl Fn(usize) -> &'a [f32],
    rows: usize,
    x: impl Fn(usize) -> &'a [f32],
    count: usize,
    mut put: impl FnMut(usize, usize, f32),
) {
    let mut first = 0;
    while I::ROWS == 4 && first + 4 <= count {
        dots_with::<I, 4, 4>(&w, rows, &x, first, &mut put);
        first += 4;
    }
    while I::ROWS == 2 && first + 2 <= count {
        dots_with::<I, 2, 2>(&w, rows, &x, first, &mut put);
        first += 2;
    }
    while first < count {
        dots_with::<I, 4, 1>(&w, rows, &x, first, &mut put);
        first += 1;
    }
}

/// All rows of `w`, Q at a time, with the T of `x` from `first` on.
#[inline(always)]
fn dots_with<'a, I: Isa, const Q: usize, const T: usize>(
    w: &impl Fn(usize) -> &'a [f32],
    rows: usize,
    x: &impl Fn(usize) -> &'a [f32],
    first: usize,
    put: &mut impl FnMut(usize, usize, f32),
) {
    let x: [&[f32]; T] = array(|t| x(first + t));
    let mut row = 0;
    while row + Q <= rows {
        let sums = dots::<I, Q, T>(array(|q| w(row + q)), x);
        for (q, sums) in sums.iter().enumerate() {
            for (t, sum) in sums.iter().enumerate() {
                put(row + q, first + t, *sum);
            }
        }
        row += Q;
    }
    while row < rows {
        let [sums] = dots::<I, 1, T>([w(row)], x);
        for (t, sum) in sums.iter().enumerate() {
            put(row, first + t, *sum);
        }
        row += 1;
    }
}

/// `w_q · x_t` for Q and T vectors of equal length.
#[inline(always)]
pub(super) fn dots<I: Isa, const Q: usize, const T: usize>(w: [&[f32]; Q], x: [&[f32]; T]) -> [[f32; T]; Q] {
    let mut sums = [[0f64; T]; Q];
    let (mut start, len) = (0, w[0].len());
    while start < len {
        let end = (start + CHUNK).min(len);
        let part = chunk_dots::<I, Q, T>(array(|q| &w[q][start..end]), array(|t| &x[t][start..end]));
        for q in 0..Q {
            for t in 0..T {
                sums[q][t] += part[q][t];
            }
        }
        start = end;
    }
    let mut rounded = [[0f32; T]; Q];
    for q in 0..Q {
        rounded[q] = array(|t| sums[q][t] as f32);
    }
    rounded
}

#[inline(always)]
fn chunk_dots<I: Isa, const Q: usize, const T: usize>(w: [&[f32]; Q], x: [&[f32]; T]) -> [[f64; T]; Q] {
    let wide = w[0].len() / LANES;
    let w_wide: [&[[f32; LANES]]; Q] = array(|q| &w[q].as_chunks().0[..wide]);
    let x_wide: [&[[f32; LANES]]; T] = array(|t| &x[t].as_chunks().0[..wide]);
    let mut lanes = [[I::splat(0.0); T]; Q];
    for i in 0..wide {
        for q in 0..Q {
            let w = I::load(&w_wide[q][i]);
            for t in 0..T {
                lanes[q][t] = I::mul_add(w, I::load(&x_wide[t][i]), lanes[q][t]);
            }
        }
    }
    let mut sums = [[0f64; T]; Q];
    for q in 0..Q {
        for t in 0..T {
            sums[q][t] = with_tail(I::lanes(lanes[q][t]), &w[q][wide * LANES..], &x[t][wide * LANES..]);
        }
    }
    sums
}

/// The sum of the lanes and of the products of what is behind the last full lanes.
#[inline(always)]
fn with_tail(mut lanes: [f32; LANES], w: &[f32], x: &[f32]) -> f64 {
    for (lane, (w, x)) in lanes.iter_mut().zip(w.iter().zip(x)) {
        *lane = w.mul_add(*x, *lane);
    }
    fold(&lanes)
}

/// The sum of the lanes by halving.
#[inline(always)]
fn fold(lanes: &[f32; LANES]) -> f64 {
    let eight: [f64; 8] = array(|l| f64::from(lanes[l]) + f64::from(lanes[l + 8]));
    let four: [f64; 4] = array(|l| eight[l] + eight[l + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn values(n: usize, seed: u64) -> Vec<f32> {
        (0..n as u64).map(|i| crate::sample::uniform(seed, i) - 0.5).collect()
    }

    #[test]
    fn close_to_exact_and_equal_on_every_level() {
        for cols in [1, 15, 16, 33, 512, 896, 2048] {
            let (w, x) = (values(cols * 7, 1), values(cols * 7, 2));
            let tokens = [6, 0, 1, 2, 3, 4, 5];
            let run = |level| {
                let mut out = [f32::NAN; 49];
                dot_rows(level, &w, cols, &x, &tokens, &mut out);
                out
            };
            let out = run(Level::best());
            Level::all().into_iter().for_each(|level| assert_eq!(out, run(level)));
            for (r, out) in out.chunks(7).enumerate() {
                for (i, out) in tokens.iter().zip(out) {
                    let (w, x) = (&w[r * cols..][..cols], &x[*i as usize * cols..][..cols]);
                    let exact: f64 = w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
                    assert!((f64::from(*out) - exact).abs() < 2e-6, "{cols}: {out} {exact}");
                }
            }
        }
    }

    #[test]
    fn batches_do_not_change_the_result() {
        let (w, x) = (values(300, 3), values(300 * 9, 4));
        let mut together = [0.0; 9];
        dot_rows(
            Level::best(),
            &w,
            300,
            &x,
            &std::array::from_fn::<u32, 9, _>(|i| i as u32),
            &mut together,
        );
        for (i, expected) in together.iter().enumerate() {
            let mut alone = [0.0];
            dot_rows(Level::best(), &w, 300, &x, &[i as u32], &mut alone);
            assert_eq!(alone[0], *expected);
        }
    }
}
