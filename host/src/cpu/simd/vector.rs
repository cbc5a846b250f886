//! Everything that is not a product with a weight: norms, gates, softmax, attention.

use super::dispatch;
use super::float::dots;
use super::isa::Isa;
use crate::exp::exp;
use crate::model::Activation;

dispatch! {
    /// `x[i] = x[i] / sqrt(mean(x²) + eps) · w[i]` for every row of `w.len()` values of `x`.
    pub(in crate::cpu) fn rms_norm / rms_norm_avx2(x: &mut [f32], w: &[f32], eps: f32) = rms_norm_body
}

#[inline(always)]
fn rms_norm_body<I: Isa>(x: &mut [f32], w: &[f32], eps: f32) {
    for row in x.chunks_exact_mut(w.len()) {
        let [square] = dots(row, [&*row]);
        let scale = 1.0 / (square / w.len() as f32 + eps).sqrt();
        for (x, w) in row.iter_mut().zip(w) {
            *x = *x * scale * w;
        }
    }
}

dispatch! {
    /// `gate[i] = activation(gate[i]) · up[i]`.
    pub(in crate::cpu) fn gate / gate_avx2(activation: Activation, gate: &mut [f32], up: &[f32]) = gate_body
}

#[inline(always)]
fn gate_body<I: Isa>(activation: Activation, gate: &mut [f32], up: &[f32]) {
    match activation {
        Activation::Silu => gate
            .iter_mut()
            .zip(up)
            .for_each(|(g, u)| *g = *g / (1.0 + exp(-*g)) * u),
        Activation::GeluTanh => gate.iter_mut().zip(up).for_each(|(g, u)| *g = gelu_tanh(*g) * u),
    }
}

/// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, as `x / (1 + e^(−2·argument))`.
#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    const TWO_SQRT_2_OVER_PI: f32 = 1.595_769;
    x / (1.0 + exp(-TWO_SQRT_2_OVER_PI * x * (0.044_715 * x).mul_add(x, 1.0)))
}

dispatch! {
    /// `x = e^(x − max x) / Σ`.
    pub(in crate::cpu) fn softmax / softmax_avx2(x: &mut [f32]) = softmax_body
}

#[inline(always)]
fn softmax_body<I: Isa>(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter_mut().for_each(|x| *x = exp(*x - max));
    let sum: f64 = x.iter().map(|&x| f64::from(x)).sum();
    let inverse = (1.0 / sum) as f32;
    x.iter_mut().for_each(|x| *x *= inverse);
}

dispatch! {
    /// The values of halves; `to` is as long as `from`.
    pub(in crate::cpu) fn widen / widen_avx2(from: &[half::f16], to: &mut [f32]) = widen_body
}

#[inline(always)]
fn widen_body<I: Isa>(from: &[half::f16], to: &mut [f32]) {
    let (wide, tail) = bytemuck::cast_slice::<_, u16>(from).as_chunks::<8>();
    let (to_wide, to_tail) = to.as_chunks_mut::<8>();
    for (from, to) in wide.iter().zip(to_wide) {
        *to = I::halves(from);
    }
    for (from, to) in tail.iter().zip(to_tail) {
        *to = half::f16::from_bits(*from).to_f32_const();
    }
}

/// The running softmax of one query over blocks of positions (Milakov & Gimelshein 2018).
pub(in crate::cpu) struct Attend<'a> {
    /// The query, `[head_dim]`.
    pub(in crate::cpu) query: &'a [f32],
    /// Multiplies the scores.
    pub(in crate::cpu) scale: f32,
    /// Bounds the scores.
    pub(in crate::cpu) softcap: Option<f32>,
    /// The largest score so far.
    pub(in crate::cpu) max: f32,
    /// Sum of the weights so far, relative to `max`.
    pub(in crate::cpu) sum: f64,
    /// Weighted sum of the values so far, `[head_dim]`.
    pub(in crate::cpu) out: &'a mut [f32],
}

dispatch! {
    /// Adds a block of keys and values, `[positions][head_dim]` each. `scores` is scratch of as many positions.
    pub(in crate::cpu) fn attend / attend_avx2(
        state: &mut Attend, keys: &[f32], values: &[f32], scores: &mut [f32],
    ) = attend_body
}

#[inline(always)]
fn attend_body<I: Isa>(state: &mut Attend, keys: &[f32], values: &[f32], scores: &mut [f32]) {
    raw_scores(state.query, keys, scores);
    for score in scores.iter_mut() {
        *score *= state.scale;
    }
    if let Some(cap) = state.softcap {
        scores.iter_mut().for_each(|score| *score = cap * tanh(*score / cap));
    }
    let max = scores.iter().copied().fold(state.max, f32::max);
    let keep = if state.max == max { 1.0 } else { exp(state.max - max) };
    for score in scores.iter_mut() {
        *score = exp(*score - max);
    }
    state.max = max;
    state.sum = state.sum * f64::from(keep) + scores.iter().map(|&weight| f64::from(weight)).sum::<f64>();
    state.out.iter_mut().for_each(|out| *out *= keep);
    add_weighted(state.out, values, scores);
}

/// Adds each row of `values` times its weight to `out`, in order; four rows at a time, so that `out` is read and written
/// once for them.
#[inline(always)]
fn add_weighted(out: &mut [f32], values: &[f32], weights: &[f32]) {
    let width = out.len();
    let (fours, rest) = weights.as_chunks::<4>();
    for (rows, [a, b, c, d]) in values.chunks_exact(4 * width).zip(fours) {
        let [first, second, third, fourth] = std::array::from_fn(|i| &rows[i * width..][..width]);
        for (i, out) in out.iter_mut().enumerate() {
            let two = b.mul_add(second[i], a.mul_add(first[i], *out));
            *out = d.mul_add(fourth[i], c.mul_add(third[i], two));
        }
    }
    let rows = values.chunks_exact(width).skip(4 * fours.len());
    for (row, weight) in rows.zip(rest) {
        for (out, value) in out.iter_mut().zip(row) {
            *out = weight.mul_add(*value, *out);
        }
    }
}

/// `q · k` for every key.
#[inline(always)]
fn raw_scores(query: &[f32], keys: &[f32], scores: &mut [f32]) {
    let width = query.len();
    let (fours, rest) = scores.as_chunks_mut::<4>();
    for (keys, scores) in keys.chunks_exact(4 * width).zip(fours.iter_mut()) {
        *scores = dots(query, std::array::from_fn(|i| &keys[i * width..][..width]));
    }
    let keys = keys.chunks_exact(width).skip(4 * fours.len());
    for (key, score) in keys.zip(rest) {
        [*score] = dots(query, [key]);
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

    fn values(n: usize, seed: u64) -> Vec<f32> {
        (0..n as u64)
            .map(|i| (crate::sample::uniform(seed, i) - 0.5) * 8.0)
            .collect()
    }

    /// Runs `f` on both levels and expects equal bits.
    fn both<T: PartialEq + std::fmt::Debug>(f: impl Fn(Level) -> T) -> T {
        let best = f(Level::best());
        assert_eq!(best, f(Level::portable()));
        best
    }

    #[test]
    fn norm() {
        let w = values(96, 1);
        let x = both(|level| {
            let mut x = values(192, 2);
            rms_norm(level, &mut x, &w, 1e-5);
            x
        });
        let before = &values(192, 2)[96..];
        let mean = before.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 96.0;
        for i in 0..96 {
            let exact = f64::from(before[i]) / (mean + 1e-5).sqrt() * f64::from(w[i]);
            assert!((f64::from(x[96 + i]) - exact).abs() < 1e-5);
        }
    }

    #[test]
    fn gates() {
        let up = values(1000, 4);
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let out = both(|level| {
                let mut x = values(1000, 3);
                gate(level, activation, &mut x, &up);
                x
            });
            for ((x, up), out) in values(1000, 3).iter().zip(&up).zip(out) {
                let x = f64::from(*x);
                let exact = match activation {
                    Activation::Silu => x / (1.0 + (-x).exp()),
                    Activation::GeluTanh => 0.5 * x * (1.0 + (0.797_884_560_8 * x * (1.0 + 0.044715 * x * x)).tanh()),
                };
                assert!((f64::from(out) - exact * f64::from(*up)).abs() < 4e-6);
            }
        }
    }

    #[test]
    fn every_half_is_widened() {
        let halves: Vec<half::f16> = (0..=u16::MAX).chain([1, 2, 3]).map(half::f16::from_bits).collect();
        let widened = both(|level| {
            let mut to = vec![0.0; halves.len()];
            widen(level, &halves, &mut to);
            to.iter()
                .map(|x| if x.is_nan() { 0 } else { x.to_bits() })
                .collect::<Vec<u32>>()
        });
        for (half, widened) in halves.iter().zip(widened) {
            assert!(half.is_nan() || half.to_f32().to_bits() == widened, "{half}");
        }
    }

    #[test]
    fn gates_at_the_ends() {
        let mut x = [-1e30, -200.0, 0.0, 200.0, 1e30];
        gate(Level::best(), Activation::GeluTanh, &mut x, &[1.0; 5]);
        assert_eq!(x, [-0.0, -0.0, 0.0, 200.0, 1e30]);
    }

    #[test]
    fn probabilities() {
        let p = both(|level| {
            let mut x = values(37, 5);
            softmax(level, &mut x);
            x
        });
        let exact: Vec<f64> = values(37, 5).iter().map(|&x| f64::from(x).exp()).collect();
        let total: f64 = exact.iter().sum();
        assert!(
            p.iter()
                .zip(&exact)
                .all(|(p, e)| (f64::from(*p) - e / total).abs() < 1e-7)
        );
    }

    #[test]
    fn attention_over_blocks_is_attention() {
        let (width, n) = (24, 21);
        let (query, keys, mut v) = (values(width, 6), values(width * n, 7), values(width * n, 8));
        v[0] = 3.0;
        for softcap in [None, Some(5.0)] {
            let out = both(|level| {
                let mut out = vec![0.0; width];
                let mut state = Attend {
                    query: &query,
                    scale: 0.1,
                    softcap,
                    max: f32::NEG_INFINITY,
                    sum: 0.0,
                    out: &mut out,
                };
                for block in [0..8, 8..9, 9..21] {
                    let (k, v) = (&keys[block.start * width..block.end * width], &v[block.start * width..]);
                    attend(
                        level,
                        &mut state,
                        k,
                        &v[..block.len() * width],
                        &mut vec![0.0; block.len()],
                    );
                }
                let sum = state.sum as f32;
                out.iter().map(|out| out / sum).collect::<Vec<f32>>()
            });
            let weights = exact_weights(&query, &keys, 0.1, softcap);
            for d in 0..width {
                let exact: f64 = weights
                    .iter()
                    .enumerate()
                    .map(|(j, w)| w * f64::from(v[j * width + d]))
                    .sum();
                assert!((f64::from(out[d]) - exact).abs() < 1e-5, "{} {exact}", out[d]);
            }
        }
    }

    fn exact_weights(query: &[f32], keys: &[f32], scale: f64, softcap: Option<f32>) -> Vec<f64> {
        let score = |key: &[f32]| {
            let s: f64 = query
                .iter()
                .zip(key)
                .map(|(&q, &k)| f64::from(q) * f64::from(k))
                .sum::<f64>()
                * scale;
            softcap
                .map_or(s, |cap| f64::from(cap) * (s / f64::from(cap)).tanh())
                .exp()
        };
        let weights: Vec<f64> = keys.chunks(query.len()).map(score).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|w| w / total).collect()
    }
}
