//! The whole measurement, small, on the CPU.

use super::*;
use crate::device::DeviceChoice;
use crate::load::EngineOptions;
use crate::tuning::TuningSource;

/// Always gives the same rates, and counts its runs.
struct Steady(usize);

impl Peer for Steady {
    fn decode(&mut self, depth: usize, _: usize) -> Result<f64> {
        self.0 += 1;
        Ok(if depth == 0 { 2.0 } else { 1.0 })
    }
    fn prompt(&mut self, _: usize) -> Result<f64> {
        self.0 += 1;
        Ok(4.0)
    }
    fn together(&mut self, sequences: usize, _: usize, _: usize) -> Result<f64> {
        self.0 += 1;
        Ok(sequences as f64)
    }
    fn facts(&self) -> Option<PeerFacts> {
        let text = |text: &str| text.to_owned();
        Some(PeerFacts {
            name: text("steady & slow"),
            build: text("1"),
            device: text("none"),
            arguments: text("-x"),
        })
    }
}

fn options() -> BenchOptions {
    BenchOptions {
        depths: vec![20, 0, 20],
        tokens: 3,
        prompt_sizes: vec![16],
        sequences: vec![2],
        repetitions: 2,
        profile: true,
    }
}

fn measured(options: &BenchOptions, peer: &mut Steady) -> Result<Report> {
    let model = Model::open(None).unwrap();
    let context = options.context();
    let engine = EngineOptions {
        device: DeviceChoice::Cpu,
        context,
        threads: Some(1),
        sequences: options.most_sequences(),
        exact: false,
        kv: None,
        tuning: TuningSource::Known,
    };
    let mut engine = model.engine(&engine, &mut |_, _| {}).unwrap();
    let prompt = PromptTokens::spread(model.spec.vocab_size, context);
    run(engine.as_mut(), &model, &prompt, options, Some(peer), &mut |_| {})
}

#[test]
fn everything_asked_for_is_measured() {
    let mut peer = Steady(0);
    let report = measured(&options(), &mut peer).unwrap();
    assert_eq!(report.decode.iter().map(|row| row.depth).collect::<Vec<_>>(), [0, 20]);
    assert_eq!(peer.0, 8, "two runs a setting");
    for row in &report.decode {
        assert_eq!(row.ours.samples.len(), 2);
        let milliseconds = 1e3 / row.ours.median;
        let limit = row.limit.unwrap();
        assert!((limit.streaming_ms + row.other_ms().unwrap() - milliseconds).abs() < 1e-9);
        assert_eq!(limit.weight_bytes, report.decode[0].limit.unwrap().weight_bytes);
    }
    assert_eq!(report.decode[0].peer.as_ref().unwrap().median, 2.0);
    assert!(report.prompt[0].ours.median > 0.0 && report.profiles.is_empty());
    let together = &report.together[0];
    assert_eq!((together.sequences, together.peer.as_ref().unwrap().median), (2, 2.0));
    assert!(together.ours.samples.len() == 2 && together.ours.least > 0.0);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["decode"][1]["ours"]["samples"].as_array().map(Vec::len), Some(2));
    let text = report.to_string();
    for part in [
        "steady & slow 1, none, -x",
        "\ndepth ",
        "of limit",
        "\nprompt, tokens a second:",
        "\nsequences ",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    let svg = svg(&report);
    assert_eq!(svg.matches("<polyline").count(), 3);
    assert!(svg.contains("steady &amp; slow") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn nothing_to_measure_is_an_error() {
    for options in [
        BenchOptions { tokens: 0, ..options() },
        BenchOptions {
            sequences: vec![2, 0],
            ..options()
        },
        BenchOptions {
            repetitions: 0,
            ..options()
        },
    ] {
        assert!(matches!(
            measured(&options, &mut Steady(0)),
            Err(BenchError::Nothing(_))
        ));
    }
    assert!(PromptTokens::text(&[], "a file", 3).is_err());
}

#[test]
fn prompts_are_long_enough_and_inside_the_vocabulary() {
    let spread = PromptTokens::spread(50, 1000);
    assert!(spread.ids.len() == 1000 && spread.ids.iter().all(|&id| id < 50));
    let different: std::collections::HashSet<_> = spread.ids.iter().collect();
    assert!(different.len() > 40);
    assert_eq!(PromptTokens::text(&[1, 2], "a file", 5).unwrap().ids, [1, 2, 1, 2, 1]);
}

#[test]
fn the_context_holds_what_is_asked_for() {
    assert_eq!(options().context(), 25);
    let long = BenchOptions {
        prompt_sizes: vec![100],
        ..options()
    };
    assert_eq!(long.context(), 100);
}
