//! What the positions of many windows amount to.

use serde::Serialize;

use super::distribution::Point;
use crate::sample::philox4x32;

/// Resamplings of the windows behind each interval.
const RESAMPLES: u64 = 1000;
/// Seed of the resamplings, so that a report can be made again.
const SEED: [u32; 2] = [0x5EED, 0];
/// Pieces into which the scored positions are cut for a curve.
const PIECES: usize = 32;

/// How far a candidate is from its base over a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What is measured by.
    pub base: String,
    /// What is measured.
    pub candidate: String,
    /// Windows.
    pub windows: usize,
    /// Scored positions.
    pub positions: usize,
    /// KL divergence of the candidate from the base, in nats.
    pub kl: Divergence,
    /// Part of the positions at which both expect the same token most.
    pub top1: Estimate,
    /// Part of the five best tokens that both share.
    pub top5: Estimate,
    /// Root mean square of the difference of the true token's probability.
    pub rms_delta_p: f64,
    /// Perplexities: the base's, the candidate's.
    pub perplexity: [f64; 2],
    /// `ln` of the candidate's perplexity over the base's; the error is that of the paired differences.
    pub log_perplexity_ratio: Estimate,
    /// Mean divergence over the text's windows by position: first position of a piece, and its mean.
    pub kl_by_position: Vec<(usize, f64)>,
}

/// A distribution of KL divergences.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Divergence {
    /// The mean.
    pub mean: Estimate,
    /// The median.
    pub median: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// A mean over a text, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// Its standard error: the spread of means over resampled windows; with a single window, over its positions as if
    /// they were independent.
    pub error: f64,
    /// Between which values 95 % of the resampled means lie; none with a single window.
    pub interval: Option<[f64; 2]>,
}

impl Comparison {
    /// Of points by window, the first of a window at position `first`; none without any.
    pub fn of(base: &str, candidate: &str, windows: &[Vec<Point>], first: usize, vocab_size: usize) -> Option<Self> {
        let points: Vec<&Point> = windows.iter().flatten().collect();
        if points.is_empty() {
            return None;
        }
        let count = points.len() as f64;
        let estimate = |value: &dyn Fn(&Point) -> f64| Estimate::of(windows, value);
        let perplexity = |side: usize| (points.iter().map(|point| point.nll[side]).sum::<f64>() / count).exp();
        let mut sorted: Vec<f64> = points.iter().map(|point| point.kl).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            base: base.to_owned(),
            candidate: candidate.to_owned(),
            windows: windows.len(),
            positions: points.len(),
            kl: Divergence {
                mean: estimate(&|point| point.kl),
                median: quantile(&sorted, 0.5),
                p99: quantile(&sorted, 0.99),
                max: sorted[sorted.len() - 1],
            },
            top1: estimate(&|point| f64::from(u8::from(point.same_best))),
            top5: estimate(&|point| point.overlap(vocab_size)),
            rms_delta_p: (points.iter().map(|point| point.delta_p().powi(2)).sum::<f64>() / count).sqrt(),
            perplexity: [perplexity(0), perplexity(1)],
            log_perplexity_ratio: estimate(&|point| point.nll[1] - point.nll[0]),
            kl_by_position: by_position(windows, first),
        })
    }
}

/// The smallest of sorted values that a part `q` of them does not exceed.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

fn by_position(windows: &[Vec<Point>], first: usize) -> Vec<(usize, f64)> {
    let length = windows.iter().map(Vec::len).max().unwrap_or(0);
    let piece = length.div_ceil(PIECES).max(1);
    let mean = |from: usize| {
        let inside = |window: &Vec<Point>| window.iter().skip(from).take(piece).map(|p| p.kl).collect::<Vec<_>>();
        let kls: Vec<f64> = windows.iter().flat_map(inside).collect();
        (first + from, kls.iter().sum::<f64>() / kls.len() as f64)
    };
    (0..length).step_by(piece).map(mean).collect()
}

impl Estimate {
    /// By how much the divergences of `candidate` exceed those of `other`, both from the same base over the same text.
    pub fn excess(candidate: &[Vec<Point>], other: &[Vec<Point>]) -> Self {
        let difference = |(&a, &b): (&Point, &Point)| Point { kl: a.kl - b.kl, ..a };
        let windows = candidate.iter().zip(other);
        let windows: Vec<Vec<Point>> = windows
            .map(|(a, b)| a.iter().zip(b).map(difference).collect())
            .collect();
        Self::of(&windows, &|point| point.kl)
    }

    /// The mean of `value` over all points.
    fn of(windows: &[Vec<Point>], value: &dyn Fn(&Point) -> f64) -> Self {
        // A window as its sum and its count: resampling needs no more.
        let sums: Vec<[f64; 2]> = windows
            .iter()
            .map(|window| [window.iter().map(value).sum(), window.len() as f64])
            .collect();
        let mean = mean_of(sums.iter());
        if let [_] = windows {
            let squares: f64 = windows[0].iter().map(|point| (value(point) - mean).powi(2)).sum();
            let error = squares.sqrt() / sums[0][1];
            return Self {
                value: mean,
                error,
                interval: None,
            };
        }
        let mut means: Vec<f64> = (0..RESAMPLES).map(|number| resampled(&sums, number)).collect();
        means.sort_by(f64::total_cmp);
        let centre = means.iter().sum::<f64>() / means.len() as f64;
        let variance = means.iter().map(|mean| (mean - centre).powi(2)).sum::<f64>() / means.len() as f64;
        Self {
            value: mean,
            error: variance.sqrt(),
            interval: Some([quantile(&means, 0.025), quantile(&means, 0.975)]),
        }
    }
}

fn mean_of<'a>(sums: impl Iterator<Item = &'a [f64; 2]>) -> f64 {
    let [sum, count] = sums.fold([0.0, 0.0], |all, one| [all[0] + one[0], all[1] + one[1]]);
    sum / count
}

/// The mean over as many windows as there are, drawn with replacement.
fn resampled(sums: &[[f64; 2]], number: u64) -> f64 {
    let draw = |i: u32| {
        let word = philox4x32([number as u32, i, 0, 0], SEED)[0];
        &sums[((u64::from(word) * sums.len() as u64) >> 32) as usize]
    };
    mean_of((0..sums.len() as u32).map(draw))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(kl: f64) -> Point {
        Point {
            kl,
            same_best: kl < 2.0,
            common_best: 5,
            nll: [1.0, 1.0 + kl],
        }
    }

    fn of(windows: &[Vec<f64>]) -> Comparison {
        let windows: Vec<Vec<Point>> = windows
            .iter()
            .map(|window| window.iter().map(|&kl| point(kl)).collect())
            .collect();
        Comparison::of("base", "candidate", &windows, 8, 100).unwrap()
    }

    #[test]
    fn means_and_quantiles() {
        let all = of(&[vec![0.0, 1.0], vec![2.0, 3.0]]);
        assert_eq!((all.windows, all.positions), (2, 4));
        assert_eq!(
            (all.kl.mean.value, all.kl.median, all.kl.p99, all.kl.max),
            (1.5, 1.0, 3.0, 3.0)
        );
        assert_eq!((all.top1.value, all.top5.value), (0.5, 1.0));
        assert!((all.perplexity[0] - 1f64.exp()).abs() < 1e-12);
        assert!((all.log_perplexity_ratio.value - 1.5).abs() < 1e-12);
        assert_eq!(all.kl_by_position, [(8, 1.0), (9, 2.0)]);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.25), 1.0);
    }

    /// Of two windows of means 0.5 and 2.5, a resample has the mean 0.5, 1.5 or 2.5 with weights 1 : 2 : 1.
    #[test]
    fn errors_are_those_of_whole_windows() {
        let mean = of(&[vec![0.0, 1.0], vec![2.0, 3.0]]).kl.mean;
        assert!((mean.error - 0.5f64.sqrt()).abs() < 0.04, "{mean:?}");
        assert_eq!(mean.interval, Some([0.5, 2.5]));
        let alone = of(&[vec![0.0, 1.0, 2.0, 3.0]]).kl.mean;
        assert_eq!(alone.interval, None);
        assert!((alone.error - 5f64.sqrt() / 4.0).abs() < 1e-12, "{alone:?}");
    }

    #[test]
    fn an_excess_is_that_of_pairs() {
        let points = |kls: [f64; 2]| kls.map(point).to_vec();
        let a = [points([0.5, 1.0]), points([5.0, 7.0])];
        let b = [points([0.25, 0.75]), points([4.75, 6.75])];
        let excess = Estimate::excess(&a, &b);
        assert_eq!(
            (excess.value, excess.error, excess.interval),
            (0.25, 0.0, Some([0.25; 2]))
        );
    }

    #[test]
    fn the_same_points_give_the_same_report() {
        let windows = [vec![0.1, 0.7], vec![0.2, 0.3], vec![1.5, 0.9]];
        assert_eq!(of(&windows), of(&windows));
        assert!(Comparison::of("a", "b", &[vec![]], 0, 1).is_none());
    }
}
