//! The search: one choice after the other, each value timed in turns with the others.
//!
//! A value takes the place of the one before only if it wins by more than both spread, and by [`LEAST_GAIN`], and does so
//! again when the two are timed anew: of several values that are equally fast one always looks best at first. So a search
//! on a noisy machine changes nothing rather than something. It is short and not thorough: a choice is made with the
//! others as they are.

use serde::Serialize;

use super::{Choice, Tuning, Workload};
use crate::engine::Result;

/// What a change must gain, as a part of the time: less is not worth another tuning.
const LEAST_GAIN: f64 = 0.005;
/// Rounds behind which only the best values stay in the race.
const SCREENING: usize = 2;
/// How many of them.
const FINALISTS: usize = 2;

/// What a search asks.
pub trait Trials {
    /// Milliseconds that `workload` takes with launches cut as `tuning` says: infinitely many where they are refused,
    /// none where the model has no such work.
    ///
    /// # Errors
    /// The device's.
    fn time(&mut self, workload: Workload, tuning: Tuning) -> Result<Option<f64>>;

    /// Whether two tunings make different steps or cut prompts otherwise.
    ///
    /// # Errors
    /// The device's.
    fn differ(&mut self, one: Tuning, other: Tuning) -> Result<bool>;

    /// Whether the results are those that the search began with, but for rounding.
    ///
    /// # Errors
    /// The device's.
    fn is_right(&mut self, tuning: Tuning) -> Result<bool>;

    /// Whether there is time left.
    fn has_time(&self) -> bool;
}

/// What became of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Another value is faster.
    Better,
    /// None is.
    Kept,
    /// A faster one gave other results.
    Wrong,
    /// All values make the same launches of this model, or there is nothing to time.
    NoMatter,
    /// There was no time for it.
    NoTime,
}

/// A value, and the median of its times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tried {
    /// The value.
    pub value: u32,
    /// Milliseconds.
    pub milliseconds: f64,
}

/// What was found of a choice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Its name.
    pub choice: &'static str,
    /// The value before.
    pub before: u32,
    /// The value found.
    pub after: u32,
    /// What became of it.
    pub verdict: Verdict,
    /// Everything that was timed, the value before first.
    pub tried: Vec<Tried>,
}

/// A value in the race.
#[derive(Debug, Clone)]
struct Runner {
    value: u32,
    times: Vec<f64>,
}

impl Runner {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.times.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn median(&self) -> f64 {
        self.sorted()
            .get(self.times.len() / 2)
            .copied()
            .unwrap_or(f64::INFINITY)
    }

    /// The ends of the middle half of the times.
    fn middle(&self) -> (f64, f64) {
        let (sorted, outside) = (self.sorted(), self.times.len() / 4);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::INFINITY);
        (at(outside), at((self.times.len().max(1) - 1).saturating_sub(outside)))
    }

    fn beats(&self, other: &Self) -> bool {
        self.middle().1 < other.middle().0 && self.median() < (1.0 - LEAST_GAIN) * other.median()
    }
}

/// Searches `choices` one after the other, from `start` on, each value timed `rounds` times. Returns the tuning found, and
/// what was found of each choice.
///
/// # Errors
/// The device's.
pub fn search(
    start: Tuning,
    choices: &[&Choice],
    rounds: usize,
    trials: &mut dyn Trials,
) -> Result<(Tuning, Vec<Finding>)> {
    let (mut tuning, mut findings) = (start, Vec::new());
    for choice in choices {
        let finding = of_one(choice, tuning, rounds, trials)?;
        tuning = choice.set(tuning, finding.after);
        findings.push(finding);
    }
    Ok((tuning, findings))
}

fn of_one(choice: &Choice, now: Tuning, rounds: usize, trials: &mut dyn Trials) -> Result<Finding> {
    let before = choice.of(now);
    let finding = |after, verdict, runners: &[Runner]| Finding {
        choice: choice.name,
        before,
        after,
        verdict,
        tried: runners.iter().map(Tried::from).collect(),
    };
    let mut out = Vec::new();
    let mut runners = entrants(choice, now, trials)?;
    if runners.len() == 1 {
        return Ok(finding(before, Verdict::NoMatter, &[]));
    }
    for round in 0..rounds {
        if !trials.has_time() {
            return Ok(finding(before, Verdict::NoTime, &[]));
        }
        if round == SCREENING {
            out = screen(&mut runners);
        }
        if !run(choice, now, round, &mut runners, trials)? {
            return Ok(finding(before, Verdict::NoMatter, &[]));
        }
    }
    let (after, verdict) = judge(choice, now, (&runners, rounds), trials)?;
    runners.extend(out);
    Ok(finding(after, verdict, &runners))
}

/// The value as it is, then those that make a difference.
fn entrants(choice: &Choice, now: Tuning, trials: &mut dyn Trials) -> Result<Vec<Runner>> {
    let before = choice.of(now);
    let mut runners = vec![Runner {
        value: before,
        times: Vec::new(),
    }];
    for &value in choice.candidates.iter().filter(|&&value| value != before) {
        if trials.differ(now, choice.set(now, value))? {
            let times = Vec::new();
            runners.push(Runner { value, times });
        }
    }
    Ok(runners)
}

/// Times every value once, in an order that turns round each time, so that a drift of the clock favours none. False
/// where there is nothing to time.
fn run(choice: &Choice, now: Tuning, round: usize, runners: &mut [Runner], trials: &mut dyn Trials) -> Result<bool> {
    let count = runners.len();
    for i in 0..count {
        let runner = &mut runners[if round.is_multiple_of(2) { i } else { count - 1 - i }];
        match trials.time(choice.workload, choice.set(now, runner.value))? {
            Some(time) => runner.times.push(time),
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Leaves the first and the best of the others in the race; returns the rest.
fn screen(runners: &mut Vec<Runner>) -> Vec<Runner> {
    let mut others = runners.split_off(1);
    others.sort_by(|a, b| a.median().total_cmp(&b.median()));
    let out = others.split_off(FINALISTS.min(others.len()));
    runners.append(&mut others);
    out
}

/// The fastest value that beats the first one, also when timed anew, and is right; else the first one.
fn judge(
    choice: &Choice,
    now: Tuning,
    (runners, rounds): (&[Runner], usize),
    trials: &mut dyn Trials,
) -> Result<(u32, Verdict)> {
    let mut winners: Vec<&Runner> = runners[1..].iter().filter(|runner| runner.beats(&runners[0])).collect();
    winners.sort_by(|a, b| a.median().total_cmp(&b.median()));
    let mut verdict = Verdict::Kept;
    for winner in winners {
        if !beats_again(choice, now, (winner.value, rounds), trials)? {
            continue;
        }
        if trials.is_right(choice.set(now, winner.value))? {
            return Ok((winner.value, Verdict::Better));
        }
        verdict = Verdict::Wrong;
    }
    Ok((runners[0].value, verdict))
}

/// Whether `value` beats the one before in `rounds` other rounds of the two.
fn beats_again(choice: &Choice, now: Tuning, (value, rounds): (u32, usize), trials: &mut dyn Trials) -> Result<bool> {
    let mut pair = [choice.of(now), value].map(|value| Runner {
        value,
        times: Vec::new(),
    });
    for round in 0..rounds {
        run(choice, now, round, &mut pair, trials)?;
    }
    Ok(pair[1].beats(&pair[0]))
}

impl From<&Runner> for Tried {
    fn from(runner: &Runner) -> Self {
        Self {
            value: runner.value,
            milliseconds: runner.median(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::cache::fnv1a;
    use crate::tuning::CHOICES;

    /// A machine whose times follow a formula.
    struct Synthetic {
        cost: fn(&Tuning) -> f64,
        /// Part of the time by which it is off, now this way, now that.
        noise: f64,
        wrong: Option<u32>,
        left: usize,
        timed: usize,
    }

    impl Synthetic {
        fn new(cost: fn(&Tuning) -> f64) -> Self {
            Self {
                cost,
                noise: 0.0,
                wrong: None,
                left: usize::MAX,
                timed: 0,
            }
        }

        fn search(&mut self, start: Tuning) -> (Tuning, Vec<Finding>) {
            let choices: Vec<&Choice> = CHOICES.iter().collect();
            search(start, &choices, 5, self).unwrap()
        }
    }

    impl Trials for Synthetic {
        fn time(&mut self, workload: Workload, tuning: Tuning) -> Result<Option<f64>> {
            self.timed += 1;
            self.left = self.left.saturating_sub(1);
            let random = fnv1a(&self.timed.to_le_bytes()) >> 11;
            let off = self.noise * random as f64 / (1u64 << 53) as f64;
            Ok((workload != Workload::Prompt).then(|| (self.cost)(&tuning) * (1.0 + off)))
        }
        fn differ(&mut self, one: Tuning, other: Tuning) -> Result<bool> {
            Ok(one.row_blocks == other.row_blocks)
        }
        fn is_right(&mut self, tuning: Tuning) -> Result<bool> {
            Ok(self.wrong != Some(tuning.head_blocks))
        }
        fn has_time(&self) -> bool {
            self.left > 0
        }
    }

    fn cost(t: &Tuning) -> f64 {
        let apart = |value: u32, best: u32| (f64::from(value) - f64::from(best)).abs();
        10.0 + apart(t.attention_splits, 24) + apart(t.head_blocks, 3) + apart(t.graph_steps, 4)
    }

    fn verdict(findings: &[Finding], name: &str) -> Verdict {
        findings.iter().find(|finding| finding.choice == name).unwrap().verdict
    }

    #[test]
    fn the_best_of_each_choice_is_found() {
        for noise in [0.0, 0.01] {
            let mut machine = Synthetic::new(cost);
            machine.noise = noise;
            let (found, findings) = machine.search(Tuning::default());
            let expected = Tuning {
                attention_splits: 24,
                head_blocks: 3,
                graph_steps: 4,
                ..Tuning::default()
            };
            assert_eq!(found, expected);
            assert_eq!(verdict(&findings, "attention_splits"), Verdict::Better);
            assert_eq!(verdict(&findings, "attention_warps"), Verdict::Kept);
            assert_eq!(verdict(&findings, "row_blocks"), Verdict::NoMatter);
            assert_eq!(verdict(&findings, "prompt_chunk"), Verdict::NoMatter);
            let splits = &findings[0];
            assert_eq!((splits.before, splits.after, splits.tried.len()), (0, 24, 7));
        }
    }

    #[test]
    fn noise_changes_nothing() {
        let mut machine = Synthetic::new(|_| 1.0);
        machine.noise = 0.2;
        assert_eq!(machine.search(Tuning::default()).0, Tuning::default());
    }

    #[test]
    fn a_gain_too_small_is_none() {
        let mut machine = Synthetic::new(|t| 1.0 + 1e-4 * f64::from(t.head_blocks));
        assert_eq!(machine.search(Tuning::default()).0, Tuning::default());
    }

    #[test]
    fn what_is_wrong_does_not_win_and_the_second_best_may() {
        let mut machine = Synthetic::new(cost);
        machine.wrong = Some(3);
        let (found, findings) = machine.search(Tuning {
            head_blocks: 8,
            ..Tuning::default()
        });
        assert!([2, 4].contains(&found.head_blocks), "{found:?}");
        assert_eq!(verdict(&findings, "head_blocks"), Verdict::Better);
        let mut machine = Synthetic::new(cost);
        machine.wrong = Some(3);
        let (found, findings) = machine.search(Tuning::default());
        assert_eq!(
            (found.head_blocks, verdict(&findings, "head_blocks")),
            (4, Verdict::Wrong)
        );
    }

    #[test]
    fn refused_launches_lose() {
        let mut machine = Synthetic::new(|t| if t.attention_warps < 8 { f64::INFINITY } else { 1.0 });
        assert_eq!(machine.search(Tuning::default()).0, Tuning::default());
        let start = Tuning {
            attention_warps: 4,
            ..Tuning::default()
        };
        assert_eq!(machine.search(start).0.attention_warps, 8);
    }

    #[test]
    fn the_time_is_kept() {
        let mut machine = Synthetic::new(cost);
        machine.left = 40;
        let (found, findings) = machine.search(Tuning::default());
        assert_eq!(found.attention_splits, 24);
        assert_eq!(verdict(&findings, "graph_steps"), Verdict::NoTime);
        // A round that is begun is ended, and what won in the last one is timed anew.
        assert!(machine.timed < 40 + 7 + 10, "{}", machine.timed);
        let mut spent = Synthetic::new(cost);
        spent.left = 0;
        assert_eq!(spent.search(Tuning::default()).0, Tuning::default());
        assert_eq!(spent.timed, 0);
    }
}
