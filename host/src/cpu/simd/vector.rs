//! Everything that is neither a product with a weight nor attention: norms, gates, softmax.

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
        let [[square]] = dots::<I, 1, 1>([&*row], [&*row]);
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

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn values(n: usize, seed: u64) -> Vec<f32> {
        (0..n as u64)
            .map(|i| (crate::sample::uniform(seed, i) - 0.5) * 8.0)
            .collect()
    }

    /// Runs `f` on all levels and expects equal bits.
    fn everywhere<T: PartialEq + std::fmt::Debug>(f: impl Fn(Level) -> T) -> T {
        let best = f(Level::best());
        Level::all().into_iter().for_each(|level| assert_eq!(best, f(level)));
        best
    }

    #[test]
    fn norm() {
        let w = values(96, 1);
        let x = everywhere(|level| {
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
            let out = everywhere(|level| {
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
        let widened = everywhere(|level| {
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
        let p = everywhere(|level| {
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
}
