//! Limits for a report.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{AccuracyError, AtDepth, Comparison, Found, Result};

/// What a report must keep, read from JSON. Every limit may be left out; one that is there and cannot be judged, because
/// what it limits was not measured, is not kept.
///
/// Unless they say otherwise, limits are for the engine that is measured, from the first reference.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gate {
    /// What the limits are for, and why they are what they are.
    pub about: String,
    /// Positions that must have been scored at least.
    pub least_positions: Option<usize>,
    /// Largest mean KL divergence.
    pub kl_mean: Option<f64>,
    /// Largest 99th percentile of the KL divergence.
    pub kl_p99: Option<f64>,
    /// Largest KL divergence at any position.
    pub kl_max: Option<f64>,
    /// Smallest part of positions with the same best token.
    pub top1: Option<f64>,
    /// Smallest part of the five best tokens that is shared.
    pub top5: Option<f64>,
    /// Largest root mean square of the difference of the true token's probability.
    pub rms_delta_p: Option<f64>,
    /// Largest distance of the perplexities: that of their logarithms.
    pub log_perplexity_ratio: Option<f64>,
    /// Largest mean KL divergence as a multiple of llama.cpp's.
    pub kl_by_peer: Option<f64>,
    /// By how many standard errors of the difference the mean KL divergence may exceed llama.cpp's.
    pub kl_errors_above_peer: Option<f64>,
    /// By how many of its standard errors the part of positions with the same best token may be below llama.cpp's.
    pub top1_errors_below_peer: Option<f64>,
    /// Largest mean KL divergence between the engine's two ways of taking tokens, at any depth.
    pub ways_kl: Option<f64>,
    /// Largest mean KL divergence at any depth, with any type of cache that was measured.
    pub depth_kl: Option<f64>,
    /// Smallest part of what the engine writes by itself that comes before the first difference.
    pub written: Option<f64>,
}

/// How one limit was kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rule {
    /// The limit's name in the file.
    pub name: &'static str,
    /// The limit.
    pub limit: f64,
    /// What was measured; none where nothing was.
    pub measured: Option<f64>,
    /// Whether the limit is kept.
    pub kept: bool,
}

/// How all limits were kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Every limit of the gate.
    pub rules: Vec<Rule>,
    /// Whether all are kept.
    pub passed: bool,
}

impl Gate {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, has keys that are no limits, or no limit at all.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |problem: String| AccuracyError::File {
            path: path.display().to_string(),
            problem,
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let gate: Self = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        if gate
            == (Self {
                about: gate.about.clone(),
                ..Self::default()
            })
        {
            return Err(failed("a gate without a limit lets everything pass".to_owned()));
        }
        Ok(gate)
    }

    /// Judges.
    pub fn judge(&self, found: &Found) -> Verdict {
        let rules = [
            self.distance_rules(found),
            self.peer_rules(found),
            self.other_rules(found),
        ]
        .concat();
        Verdict {
            passed: !rules.is_empty() && rules.iter().all(|rule| rule.kept),
            rules,
        }
    }

    fn distance_rules(&self, found: &Found) -> Vec<Rule> {
        let ours = found.ours.first();
        let of = |value: fn(&Comparison) -> f64| ours.map(value);
        let rules = [
            at_least(
                "least_positions",
                self.least_positions.map(|count| count as f64),
                of(|ours| ours.positions as f64),
            ),
            at_most("kl_mean", self.kl_mean, of(|ours| ours.kl.mean.value)),
            at_most("kl_p99", self.kl_p99, of(|ours| ours.kl.p99)),
            at_most("kl_max", self.kl_max, of(|ours| ours.kl.max)),
            at_least("top1", self.top1, of(|ours| ours.top1.value)),
            at_least("top5", self.top5, of(|ours| ours.top5.value)),
            at_most("rms_delta_p", self.rms_delta_p, of(|ours| ours.rms_delta_p)),
            at_most(
                "log_perplexity_ratio",
                self.log_perplexity_ratio,
                of(|ours| ours.log_perplexity_ratio.value.abs()),
            ),
        ];
        rules.into_iter().flatten().collect()
    }

    fn peer_rules(&self, found: &Found) -> Vec<Rule> {
        let both = found.ours.first().zip(found.peer.as_ref());
        let multiple = both.map(|(ours, peer)| ours.kl.mean.value / peer.kl.mean.value);
        let above = found.over_peer.map(|excess| errors(excess.value, excess.error));
        let below = both.map(|(ours, peer)| errors(peer.top1.value - ours.top1.value, peer.top1.error));
        let rules = [
            at_most("kl_by_peer", self.kl_by_peer, multiple),
            at_most("kl_errors_above_peer", self.kl_errors_above_peer, above),
            at_most("top1_errors_below_peer", self.top1_errors_below_peer, below),
        ];
        rules.into_iter().flatten().collect()
    }

    fn other_rules(&self, found: &Found) -> Vec<Rule> {
        let writing = found.writing.as_ref();
        let written = writing.map(|writing| writing.before_difference as f64 / writing.tokens.max(1) as f64);
        let rules = [
            at_most("ways_kl", self.ways_kl, largest(&found.ways)),
            at_most("depth_kl", self.depth_kl, largest(&found.depths)),
            at_least("written", self.written, written),
        ];
        rules.into_iter().flatten().collect()
    }
}

/// How many standard errors a difference to our disadvantage is; 0 for one to our advantage.
fn errors(difference: f64, error: f64) -> f64 {
    if difference <= 0.0 { 0.0 } else { difference / error }
}

/// The largest mean divergence of all depths.
fn largest(rows: &[AtDepth]) -> Option<f64> {
    rows.iter()
        .map(|row| row.comparison.kl.mean.value)
        .max_by(f64::total_cmp)
}

fn at_most(name: &'static str, limit: Option<f64>, measured: Option<f64>) -> Option<Rule> {
    let limit = limit?;
    let kept = measured.is_some_and(|measured| measured <= limit);
    Some(Rule {
        name,
        limit,
        measured,
        kept,
    })
}

fn at_least(name: &'static str, limit: Option<f64>, measured: Option<f64>) -> Option<Rule> {
    let limit = limit?;
    let kept = measured.is_some_and(|measured| measured >= limit);
    Some(Rule {
        name,
        limit,
        measured,
        kept,
    })
}

impl Verdict {
    /// The names of the limits that are not kept.
    pub fn broken(&self) -> Vec<&'static str> {
        self.rules
            .iter()
            .filter(|rule| !rule.kept)
            .map(|rule| rule.name)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::{Estimate, Point};

    /// 100 positions of divergence `kl`; `same` of them with the same best token.
    fn comparison(kl: f64, same: usize) -> Comparison {
        let point = |i: usize| Point {
            kl,
            same_best: i < same,
            common_best: 5,
            nll: [1.0, 1.0 + kl],
        };
        let windows = [(0..50).map(point).collect(), (50..100).map(point).collect()];
        Comparison::of("a", "b", &windows, 0, 100).unwrap()
    }

    fn found(ours: Comparison, peer: Option<Comparison>) -> Found {
        Found {
            parties: Vec::new(),
            vocab_size: 100,
            ours: vec![ours.clone()],
            references: Vec::new(),
            over_peer: peer.as_ref().map(|peer| Estimate {
                value: ours.kl.mean.value - peer.kl.mean.value,
                error: 1e-3,
                interval: None,
            }),
            peer,
            from_peer: None,
            peer_floor: None,
            ways: vec![AtDepth {
                depth: 0,
                comparison: comparison(1e-5, 100),
            }],
            depths: Vec::new(),
            writing: None,
        }
    }

    #[test]
    fn each_limit_is_judged_by_its_own_figure() {
        let all = found(comparison(0.01, 90), Some(comparison(0.01, 95)));
        let broken = |gate: Gate| gate.judge(&all).broken();
        let gate = Gate {
            least_positions: Some(100),
            kl_mean: Some(0.0101),
            top1: Some(0.9),
            top5: Some(1.0),
            log_perplexity_ratio: Some(0.0101),
            kl_by_peer: Some(1.0001),
            top1_errors_below_peer: Some(3.0),
            ways_kl: Some(1e-4),
            ..Gate::default()
        };
        assert_eq!(broken(gate.clone()), [""; 0]);
        assert_eq!(gate.judge(&all).rules.len(), 8);
        assert!(gate.judge(&all).passed);
        let changed = |change: fn(&mut Gate)| {
            let mut gate = gate.clone();
            change(&mut gate);
            broken(gate)
        };
        assert_eq!(changed(|gate| gate.least_positions = Some(101)), ["least_positions"]);
        assert_eq!(changed(|gate| gate.kl_mean = Some(0.0099)), ["kl_mean"]);
        assert_eq!(changed(|gate| gate.kl_p99 = Some(0.0099)), ["kl_p99"]);
        assert_eq!(changed(|gate| gate.kl_max = Some(0.0099)), ["kl_max"]);
        assert_eq!(changed(|gate| gate.top1 = Some(0.91)), ["top1"]);
        assert_eq!(changed(|gate| gate.rms_delta_p = Some(1e-4)), ["rms_delta_p"]);
        assert_eq!(
            changed(|gate| gate.log_perplexity_ratio = Some(0.009)),
            ["log_perplexity_ratio"]
        );
        assert_eq!(changed(|gate| gate.kl_by_peer = Some(0.99)), ["kl_by_peer"]);
        assert_eq!(
            changed(|gate| gate.top1_errors_below_peer = Some(0.5)),
            ["top1_errors_below_peer"]
        );
        assert_eq!(changed(|gate| gate.ways_kl = Some(9e-6)), ["ways_kl"]);
    }

    #[test]
    fn a_difference_counts_in_standard_errors() {
        let gate = Gate {
            kl_errors_above_peer: Some(1.0),
            ..Gate::default()
        };
        let broken = |ours| {
            gate.judge(&found(comparison(ours, 90), Some(comparison(0.01, 90))))
                .broken()
        };
        assert_eq!(broken(0.0109), [""; 0]);
        assert_eq!(broken(0.005), [""; 0]);
        assert_eq!(broken(0.0111), ["kl_errors_above_peer"]);
    }

    #[test]
    fn what_was_not_measured_is_not_kept() {
        let alone = found(comparison(0.0, 100), None);
        let gate = Gate {
            kl_by_peer: Some(1.0),
            depth_kl: Some(1.0),
            written: Some(0.0),
            kl_max: Some(f64::NAN),
            ..Gate::default()
        };
        let verdict = gate.judge(&alone);
        assert_eq!(verdict.broken(), ["kl_max", "kl_by_peer", "depth_kl", "written"]);
        assert!(
            !Gate::default().judge(&alone).passed,
            "a gate without limits passes nothing"
        );
    }

    #[test]
    fn files_are_read_strictly() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gate.json");
        let open = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Gate::open(&path)
        };
        assert_eq!(open(r#"{"about": "a", "kl_mean": 0.1}"#).unwrap().kl_mean, Some(0.1));
        for (text, part) in [
            (r#"{"kl_meen": 0.1}"#, "kl_meen"),
            (r#"{"about": "nothing"}"#, "without a limit"),
            ("{", "EOF"),
        ] {
            let error = open(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("gate.json"), "{error}");
        }
        assert!(Gate::open(Path::new("no/such.json")).is_err());
    }
}
