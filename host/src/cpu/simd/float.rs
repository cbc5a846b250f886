//! Dot products of floats, for the reference arithmetic and for weights that are not quantised.
//!
//! Products go into 16 lanes of f32; every [`CHUNK`] columns the lanes are summed, in a fixed order, into
//! an f64. A sum of thousands of products so stays within a few ulp, and the result does not depend on
//! how many tokens are computed together.

use super::dispatch;
use super::isa::{Isa, array};

/// Columns between two foldings of the lanes.
const CHUNK: usize = 512;
const LANES: usize = 16;

dispatch! {
    /// `out[i] = w · x_i` for the rows `x_i` of `x` (each as long as `w`) that `rows` names.
    pub(in crate::cpu) fn dot_rows / dot_rows_avx2(w: &[f32], x: &[f32], rows: &[u32], out: &mut [f32]) = dot_rows_body
}

#[inline(always)]
fn dot_rows_body<I: Isa>(w: &[f32], x: &[f32], rows: &[u32], out: &mut [f32]) {
    let row = |i: u32| &x[i as usize * w.len()..][..w.len()];
    let (fours, rest) = rows.as_chunks::<4>();
    let (out_fours, out_rest) = out.as_chunks_mut::<4>();
    for (rows, out) in fours.iter().zip(out_fours) {
        *out = dots(w, rows.map(row));
    }
    for (&i, out) in rest.iter().zip(out_rest) {
        [*out] = dots(w, [row(i)]);
    }
}

/// `w · x_t` for T vectors as long as `w`.
#[inline(always)]
pub(super) fn dots<const T: usize>(w: &[f32], x: [&[f32]; T]) -> [f32; T] {
    let mut sums = [0f64; T];
    let mut start = 0;
    while start < w.len() {
        let end = (start + CHUNK).min(w.len());
        let part = chunk_dots(&w[start..end], x.map(|x| &x[start..end]));
        for t in 0..T {
            sums[t] += part[t];
        }
        start = end;
    }
    array(|t| sums[t] as f32)
}

#[inline(always)]
fn chunk_dots<const T: usize>(w: &[f32], x: [&[f32]; T]) -> [f64; T] {
    let mut lanes = [[0f32; LANES]; T];
    let (wide, tail) = w.as_chunks::<LANES>();
    let parts = x.map(|x| x.as_chunks::<LANES>());
    for (i, w) in wide.iter().enumerate() {
        for t in 0..T {
            let x = &parts[t].0[i];
            for l in 0..LANES {
                lanes[t][l] = w[l].mul_add(x[l], lanes[t][l]);
            }
        }
    }
    for t in 0..T {
        for (l, (w, x)) in tail.iter().zip(parts[t].1).enumerate() {
            lanes[t][l] = w.mul_add(*x, lanes[t][l]);
        }
    }
    array(|t| fold(&lanes[t]))
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
            let (w, x) = (values(cols, 1), values(cols * 7, 2));
            let rows = [6, 0, 1, 2, 3, 4, 5];
            let run = |level| {
                let mut out = [f32::NAN; 7];
                dot_rows(level, &w, &x, &rows, &mut out);
                out
            };
            let out = run(Level::best());
            assert_eq!(out, run(Level::portable()));
            for (i, out) in rows.iter().zip(out) {
                let row = &x[*i as usize * cols..][..cols];
                let exact: f64 = w.iter().zip(row).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
                assert!((f64::from(out) - exact).abs() < 2e-6, "{cols}: {out} {exact}");
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
            &x,
            &std::array::from_fn::<u32, 9, _>(|i| i as u32),
            &mut together,
        );
        for (i, expected) in together.iter().enumerate() {
            let mut alone = [0.0];
            dot_rows(Level::best(), &w, &x, &[i as u32], &mut alone);
            assert_eq!(alone[0], *expected);
        }
    }
}
