//! The sampler: options, recent tokens and a step counter.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::{SampleOptions, uniform};
use crate::exp::exp;

/// Chooses tokens. Its steps, in the order that llama.cpp's users know:
///
/// 1. suppressed tokens and NaN logits become −∞;
/// 2. repeat penalty over the recent tokens (each distinct one once);
/// 3. greedy ends here: the highest logit, the lowest id among equals;
/// 4. top-k, candidates from here on by descending logit, ascending id among equals;
/// 5. top-p, over probabilities at temperature 1;
/// 6. min-p, likewise;
/// 7. temperature, softmax, and one number of [`uniform`]`(seed, step)` looked up in the running sum.
///
/// Sums run over the candidates in order, in f32, with [`exp`] as the exponential: a device that does
/// the same gets the same bits. The n-th call of [`Sampler::sample`] draws the n-th number, so equal seeds give equal text.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SampleOptions,
    recent: VecDeque<u32>,
    step: u64,
    work: Vec<f32>,
}

/// A token and its logit, later its weight.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: u32,
    logit: f32,
}

impl Sampler {
    /// A sampler that has seen no token.
    pub fn new(options: SampleOptions) -> Self {
        Sampler {
            options,
            recent: VecDeque::new(),
            step: 0,
            work: Vec::new(),
        }
    }

    /// The settings.
    pub fn options(&self) -> &SampleOptions {
        &self.options
    }

    /// How many random numbers have been drawn (greedy steps count).
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The tokens that the repeat penalty looks at, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = u32> {
        self.recent.iter().copied()
    }

    /// Counts `token` (of the prompt, or just generated) among the recent ones.
    pub fn accept(&mut self, token: u32) {
        if self.options.repeat_last_n == 0 {
            return;
        }
        if self.recent.len() == self.options.repeat_last_n {
            self.recent.pop_front();
        }
        self.recent.push_back(token);
    }

    /// Counts `token` as this sampler's next choice, which a device made: as [`Sampler::sample`] and
    /// [`Sampler::accept`] of it do.
    pub fn chosen(&mut self, token: u32) {
        self.step += 1;
        self.accept(token);
    }

    /// Chooses one of the ids `0..logits.len()`; id 0 if there is nothing to choose from.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        let step = self.step;
        self.step += 1;
        if self.options.is_argmax() {
            return argmax(logits);
        }
        self.work.clear();
        self.work.extend_from_slice(logits);
        self.suppress();
        self.penalise();
        if self.options.greedy() {
            return argmax(&self.work);
        }
        let mut candidates = self.top_k();
        self.top_p(&mut candidates);
        self.min_p(&mut candidates);
        draw(&candidates, self.options.temperature, uniform(self.options.seed, step))
    }

    fn suppress(&mut self) {
        for &id in &self.options.suppress {
            if let Some(logit) = self.work.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    fn penalise(&mut self) {
        if !self.options.penalises() {
            return;
        }
        let mut ids: Vec<u32> = self.recent.iter().copied().collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            if let Some(logit) = self.work.get_mut(id as usize) {
                let penalty = self.options.repeat_penalty;
                *logit = if *logit > 0.0 {
                    *logit / penalty
                } else {
                    *logit * penalty
                };
            }
        }
    }

    /// The k best candidates, best first.
    fn top_k(&self) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = self
            .work
            .iter()
            .zip(0..)
            .filter(|(logit, _)| **logit > f32::NEG_INFINITY)
            .map(|(&logit, id)| Candidate { id, logit })
            .collect();
        let k = self.options.top_k;
        if k > 0 && k < candidates.len() {
            candidates.select_nth_unstable_by(k - 1, best_first);
            candidates.truncate(k);
        }
        candidates.sort_unstable_by(best_first);
        candidates
    }

    fn top_p(&self, candidates: &mut Vec<Candidate>) {
        if self.options.top_p >= 1.0 {
            return;
        }
        let weights = weights(candidates, 1.0);
        let limit = self.options.top_p * weights.iter().sum::<f32>();
        let mut sum = 0.0;
        let keep = weights.iter().take_while(|&&weight| {
            let open = sum < limit;
            sum += weight;
            open
        });
        let keep = keep.count().max(1);
        candidates.truncate(keep);
    }

    fn min_p(&self, candidates: &mut Vec<Candidate>) {
        if self.options.min_p > 0.0
            && let Some(best) = candidates.first()
        {
            let limit = best.logit + self.options.min_p.ln();
            let keep = candidates.partition_point(|candidate| candidate.logit >= limit);
            candidates.truncate(keep.max(1));
        }
    }
}

/// The id of the highest logit, the lowest such id among equals; NaN never wins. 0 if all are NaN
/// or there are none.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = (f32::NEG_INFINITY, 0);
    for (&logit, id) in logits.iter().zip(0..) {
        if logit > best.0 {
            best = (logit, id);
        }
    }
    best.1
}

fn best_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Unnormalised probabilities, 1 for the best (which comes first). An infinite best leaves only its equals.
fn weights(candidates: &[Candidate], temperature: f32) -> Vec<f32> {
    let best = candidates.first().map_or(0.0, |candidate| candidate.logit);
    candidates
        .iter()
        .map(|c| {
            if c.logit == best {
                1.0
            } else {
                exp((c.logit - best) / temperature)
            }
        })
        .collect()
}

/// The first candidate at which the running sum of weights passes `u` times their total.
fn draw(candidates: &[Candidate], temperature: f32, u: f32) -> u32 {
    let weights = weights(candidates, temperature);
    let target = u * weights.iter().sum::<f32>();
    let mut sum = 0.0;
    for (candidate, weight) in candidates.iter().zip(&weights) {
        sum += weight;
        if sum > target {
            return candidate.id;
        }
    }
    candidates.last().map_or(0, |candidate| candidate.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> SampleOptions {
        SampleOptions {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            ..Default::default()
        }
    }

    /// How often each of `logits.len()` ids is drawn in 4,000 steps.
    fn histogram(options: SampleOptions, logits: &[f32]) -> Vec<usize> {
        let mut sampler = Sampler::new(options);
        let mut counts = vec![0; logits.len()];
        for _ in 0..4000 {
            counts[sampler.sample(logits) as usize] += 1;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_lowest_id_among_equals_and_never_nan() {
        assert_eq!(argmax(&[1.0, f32::NAN, 3.0, 3.0]), 2);
        assert_eq!(argmax(&[f32::NAN, f32::NAN]), 0);
        assert_eq!(argmax(&[]), 0);
        assert_eq!(Sampler::new(SampleOptions::default()).sample(&[0.0, 2.0, 2.0]), 1);
    }

    #[test]
    fn plain_sampling_follows_the_softmax() {
        let counts = histogram(options(), &[2f32.ln(), 0.0, f32::NAN, 1f32.ln()]);
        assert_eq!(counts[2], 0);
        assert!((counts[0] as f32 - 2000.0).abs() < 120.0, "{counts:?}");
        assert!((counts[1] as f32 - 1000.0).abs() < 100.0, "{counts:?}");
    }

    #[test]
    fn temperature_sharpens() {
        let cold = histogram(
            SampleOptions {
                temperature: 0.1,
                ..options()
            },
            &[1.0, 0.0],
        );
        assert!(cold[1] < 10, "{cold:?}");
    }

    #[test]
    fn filters_keep_what_they_say() {
        let logits: Vec<f32> = [0.5f32, 0.3, 0.15, 0.05].iter().map(|p| p.ln()).collect();
        let drawn = |o: SampleOptions| histogram(o, &logits).iter().map(|&n| n > 0).collect::<Vec<bool>>();
        assert_eq!(drawn(options()), [true, true, true, true]);
        assert_eq!(
            drawn(SampleOptions { top_k: 2, ..options() }),
            [true, true, false, false]
        );
        assert_eq!(
            drawn(SampleOptions {
                top_p: 0.6,
                ..options()
            }),
            [true, true, false, false]
        );
        assert_eq!(
            drawn(SampleOptions {
                top_p: 0.0,
                ..options()
            }),
            [true, false, false, false]
        );
        assert_eq!(
            drawn(SampleOptions {
                min_p: 0.2,
                ..options()
            }),
            [true, true, true, false]
        );
    }

    #[test]
    fn top_k_breaks_ties_by_id() {
        let counts = histogram(SampleOptions { top_k: 2, ..options() }, &[1.0; 5]);
        assert_eq!(
            counts.iter().map(|&n| n > 0).collect::<Vec<_>>(),
            [true, true, false, false, false]
        );
    }

    #[test]
    fn penalty_counts_recent_tokens_once() {
        let mut sampler = Sampler::new(SampleOptions {
            repeat_penalty: 2.0,
            repeat_last_n: 3,
            ..Default::default()
        });
        [0, 0, 1].into_iter().for_each(|token| sampler.accept(token));
        assert_eq!(sampler.sample(&[3.0, 2.9, 1.6]), 2);
        assert_eq!(sampler.sample(&[4.0, -1.0, 1.6]), 0);
        [2, 2, 2].into_iter().for_each(|token| sampler.accept(token));
        assert_eq!(sampler.sample(&[3.0, 2.9, 4.0]), 0);
        assert_eq!(sampler.recent().collect::<Vec<_>>(), [2, 2, 2]);
    }

    #[test]
    fn suppressed_tokens_never_come() {
        let greedy = SampleOptions {
            suppress: vec![1, 99],
            ..Default::default()
        };
        assert_eq!(Sampler::new(greedy).sample(&[0.0, 5.0, 1.0]), 2);
        let counts = histogram(
            SampleOptions {
                suppress: vec![0],
                ..options()
            },
            &[9.0, 0.0],
        );
        assert_eq!(counts, [0, 4000]);
    }

    #[test]
    fn infinite_logits_do_not_break_the_draw() {
        let counts = histogram(options(), &[f32::INFINITY, 0.0, f32::INFINITY]);
        assert_eq!(counts[1], 0);
        assert_eq!(Sampler::new(options()).sample(&[f32::NEG_INFINITY; 3]), 0);
        assert_eq!(Sampler::new(options()).sample(&[f32::NAN; 3]), 0);
    }

    #[test]
    fn equal_seeds_give_equal_text() {
        let run = |seed| {
            let mut sampler = Sampler::new(SampleOptions { seed, ..options() });
            (0..20).map(|_| sampler.sample(&[0.0; 1000])).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}
