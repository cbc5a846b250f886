//! The sampler against a plain one on sorted lists, token for token.

use crate::decode::sample::random::{exp, uniform};
use crate::decode::sample::{SampleBuffers, SampleShape, sample};
use crate::decode::state::{NO_TOKEN, StepState, ring_token};
use crate::testing::{Case, Machine, Random, floats};

/// Logits and settings of a step.
struct Step {
    logits: Vec<f32>,
    recent: Vec<u32>,
    suppressed: Vec<u32>,
    shape: SampleShape,
    state: StepState,
}

impl Step {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let vocabulary = 1 + random.below(9000);
        // Coarse values, so that there are equals; some that no sampler may choose.
        let mut logits: Vec<f32> = floats(seed, vocabulary, 3.0)
            .iter()
            .map(|v| (v * 8.0).round() / 8.0)
            .collect();
        for bad in [f32::NAN, f32::NEG_INFINITY, -0.0, 0.0] {
            logits[random.below(vocabulary)] = bad;
        }
        let mut tokens = |most: usize| {
            (0..random.below(most))
                .map(|_| random.below(vocabulary) as u32)
                .collect::<Vec<_>>()
        };
        let (mut recent, suppressed) = (tokens(70), tokens(20));
        recent.push(u32::MAX);
        let shape = SampleShape {
            vocabulary: vocabulary as u32,
            top_k: [1, 7, 40, 256][random.below(4)],
            temperature: [0.0, 0.3, 0.8, 2.0][random.below(4)],
            top_p: [1.0, 0.95, 0.5, 0.0][random.below(4)],
            ln_min_p: [f32::NEG_INFINITY, 0.05f32.ln()][random.below(2)],
            repeat_penalty: [1.0, 1.3, 0.7][random.below(3)],
            recent: recent.len() as u32,
            suppressed: suppressed.len() as u32,
            seed: [seed as u32, 77],
        };
        let state = StepState {
            token: 1,
            position: random.below(500) as u32,
            step: random.below(99) as u32,
            draws: [0, 7, u32::MAX][random.below(3)],
        };
        Self {
            logits,
            recent,
            suppressed,
            shape,
            state,
        }
    }

    /// A step in which every candidate of three tiles is about as likely: one that is missing changes the draws.
    fn flat(seed: u64) -> Self {
        let mut step = Self::new(seed);
        step.logits = floats(seed + 1, 3 * 4096, 1.0);
        step.shape = SampleShape {
            vocabulary: step.logits.len() as u32,
            top_k: 40,
            temperature: 2.0,
            top_p: 1.0,
            ln_min_p: f32::NEG_INFINITY,
            ..step.shape
        };
        step
    }

    /// The candidates behind top-k, best first.
    fn candidates(&self) -> Vec<(f32, u32)> {
        let mut all: Vec<(f32, u32)> = self.logits.iter().copied().zip(0..).collect();
        for (logit, token) in &mut all {
            if self.suppressed.contains(token) {
                *logit = f32::NEG_INFINITY;
            }
            if self.recent.contains(token) {
                let penalty = self.shape.repeat_penalty;
                *logit = if *logit > 0.0 {
                    *logit / penalty
                } else {
                    *logit * penalty
                };
            }
        }
        all.retain(|(logit, _)| *logit > f32::NEG_INFINITY);
        match self.shape.temperature <= 0.0 {
            true => all.sort_by(|a, b| {
                b.0.partial_cmp(&a.0)
                    .unwrap_or(std::cmp::Ordering::Equal)
                    .then(a.1.cmp(&b.1))
            }),
            false => all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))),
        }
        all.truncate(self.shape.top_k as usize);
        all
    }

    fn expected(&self) -> u32 {
        let mut all = self.candidates();
        let Some(&(best, first)) = all.first() else {
            return NO_TOKEN;
        };
        if self.shape.temperature <= 0.0 {
            return first;
        }
        let weights = |all: &[(f32, u32)], t: f32| -> Vec<f32> {
            all.iter()
                .map(|(l, _)| if *l == best { 1.0 } else { exp((l - best) / t) })
                .collect()
        };
        if self.shape.top_p < 1.0 {
            let w = weights(&all, 1.0);
            let (limit, mut sum) = (self.shape.top_p * w.iter().sum::<f32>(), 0.0);
            let open = |w: &&f32| {
                let open = sum < limit;
                sum += **w;
                open
            };
            all.truncate(w.iter().take_while(open).count().max(1));
        }
        let limit = best + self.shape.ln_min_p;
        all.truncate(all.iter().take_while(|(logit, _)| *logit >= limit).count().max(1));
        let w = weights(&all, self.shape.temperature);
        let number = self.state.step.wrapping_add(self.state.draws);
        let target = uniform(self.shape.seed, u64::from(number)) * w.iter().sum::<f32>();
        let mut sum = 0.0;
        let drawn = w.iter().position(|w| {
            sum += w;
            sum > target
        });
        all[drawn.unwrap_or(all.len() - 1)].1
    }
}

/// Draws from the tiles' lists several times: each draw counts the step up, so the same candidates meet other numbers.
fn draws(machine: &mut dyn Machine, mut step: Step, draws: u32) -> Result<f64, String> {
    let b = SampleBuffers {
        logits: machine.upload(&step.logits)?,
        recent: machine.upload(&step.recent)?,
        suppressed: machine.upload(&step.suppressed)?,
        lists: machine.output(step.shape.list_entries())?,
        state: machine.upload(&[step.state])?,
        ring: machine.upload(&[0u64; 8])?,
        ring_length: 8,
    };
    let [tiles, draw] = sample(step.shape, b).map_err(|e| e.to_string())?;
    machine.run(&tiles)?;
    let mut remembered = step.recent.clone();
    for _ in 0..draws {
        machine.run(&draw)?;
        let (token, number) = (step.expected(), step.state.step);
        step.state = StepState {
            token: if token == NO_TOKEN { 0 } else { token },
            position: step.state.position + 1,
            step: number + 1,
            draws: step.state.draws,
        };
        let (state, ring) = (machine.download(b.state, 1)?[0], machine.download(b.ring, 8)?);
        if state != step.state || ring_token(ring[number as usize % 8], number) != Some(token) {
            return Err(format!(
                "the step ended in {state:?} and {ring:x?}, not in {:?}",
                step.state
            ));
        }
        remembered[step.state.position as usize % step.recent.len()] = token;
        let recent = machine.download(b.recent, step.recent.len())?;
        if recent != remembered {
            return Err(format!("the recent tokens are {recent:?}, not {remembered:?}"));
        }
    }
    Ok(0.0)
}

fn any(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    draws(machine, Step::new(seed), 1)
}

fn flat(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    draws(machine, Step::flat(seed), 16)
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "sample/any",
        run: any,
    },
    Case {
        name: "sample/flat",
        run: flat,
    },
];
