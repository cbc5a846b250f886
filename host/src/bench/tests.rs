//! The whole measurement, small, on the CPU.

use super::*;
use crate::device::DeviceChoice;
use crate::load::EngineOptions;
use crate::tuning::TuningSource;

/// A text that is longer than the prompts that are asked for.
const TEXT: &str =
    "The river went on and on, past the mill and the bridge, and nobody knew where it would end, or when.";

/// Always gives the same rates, and counts its runs.
struct Steady(usize);

impl Peer for Steady {
    fn decode(&mut self, depth: usize, _: usize) -> Result<f64> {
        self.0 += 1;
        Ok(if depth == 0 { 2.0 } else { 1.0 })
    }
    fn decode_behind(&mut self, text: &str, depth: usize, tokens: usize) -> Result<f64> {
        assert!(TEXT.starts_with(text) && !text.is_empty());
        Ok(10.0 * self.decode(depth, tokens)?)
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
            behind_text: Some("as a text"),
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
        peer_repetitions: 1,
        profile: true,
    }
}

/// An engine on the CPU with that room.
fn engine(model: &Model, context: usize, sequences: usize) -> Box<dyn Engine + '_> {
    let options = EngineOptions {
        device: DeviceChoice::Cpu,
        context,
        threads: Some(1),
        sequences,
        exact: false,
        kv: None,
        tuning: TuningSource::Known,
    };
    model.engine(&options, &mut |_, _| {}).unwrap()
}

fn measured(options: &BenchOptions, peer: &mut Steady) -> Result<Report> {
    let model = Model::open(None).unwrap();
    let context = options.context();
    let mut engine = engine(&model, context, options.most_sequences());
    let prompts = [
        PromptTokens::spread(model.spec.vocab_size, context),
        PromptTokens::text(&model.tokenizer, TEXT, "a file", context).unwrap(),
    ];
    run(engine.as_mut(), &model, &prompts, options, Some(peer), &mut |_| {})
}

#[test]
fn everything_asked_for_is_measured() {
    let mut peer = Steady(0);
    let report = measured(&options(), &mut peer).unwrap();
    let rows = report.decode.iter().map(|row| (row.prompt, row.depth));
    let (synthetic, real) = (PromptKind::Synthetic, PromptKind::Real);
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [(synthetic, 0), (synthetic, 20), (real, 0), (real, 20)]
    );
    assert_eq!(peer.0, 6, "a run a setting");
    for row in &report.decode {
        assert_eq!(row.ours.samples.len(), 2);
        let milliseconds = 1e3 / row.ours.median;
        let limit = row.limit.unwrap();
        assert!((limit.streaming_ms + row.other_ms().unwrap() - milliseconds).abs() < 1e-9);
        assert_eq!(limit.weight_bytes, report.decode[0].limit.unwrap().weight_bytes);
    }
    let peers = report.decode.iter().map(|row| row.peer.as_ref().unwrap().median);
    assert_eq!(peers.collect::<Vec<_>>(), [2.0, 1.0, 20.0, 10.0]);
    assert!(report.prompt[0].ours.median > 0.0 && report.profiles.is_empty());
    let together = &report.together[0];
    assert_eq!((together.sequences, together.peer.as_ref().unwrap().median), (2, 2.0));
    assert!(together.ours.samples.len() == 2 && together.ours.least > 0.0);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["decode"][1]["ours"]["samples"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&json["decode"][3]["prompt"], &json["prompts"][1]["kind"]),
        (&"real".into(), &"real".into())
    );
    let text = report.to_string();
    for part in [
        "steady & slow 1, none, -x",
        "\ndepth ",
        "of limit",
        "behind the text of a file, tokens a second:\n(steady & slow: as a text)\n",
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
        BenchOptions {
            peer_repetitions: 0,
            ..options()
        },
    ] {
        assert!(matches!(
            measured(&options, &mut Steady(0)),
            Err(BenchError::Nothing(_))
        ));
    }
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

#[test]
fn runs_from_the_same_state_are_the_same() {
    let model = Model::open(None).unwrap();
    let options = RepeatOptions {
        depths: vec![15, 0, 15],
        tokens: 12,
        runs: 3,
        refill: false,
    };
    let mut engine = engine(&model, options.context(), 1);
    let prompt = PromptTokens::text(&model.tokenizer, TEXT, "a file", options.context()).unwrap();
    let mut repeated = |options: &RepeatOptions| repeat(engine.as_mut(), &model, &prompt, options, &mut |_| {});
    let report = repeated(&options).unwrap();
    assert!(report.identical, "{report}");
    assert_eq!(report.depths.iter().map(|row| row.depth).collect::<Vec<_>>(), [0, 15]);
    assert!(
        report
            .depths
            .iter()
            .all(|row| row.output_ids.len() == 12 && row.distinct > 1)
    );
    assert_ne!(report.depths[0].sha256, report.depths[1].sha256);
    assert!(
        report
            .to_string()
            .contains("\n3 greedy runs of 12 tokens behind the text of a file:\ndepth 0: identical, ")
    );
    let refill = true;
    let again = repeated(&RepeatOptions {
        refill,
        ..options.clone()
    })
    .unwrap();
    assert_eq!(again.depths, report.depths);
    assert!(repeated(&RepeatOptions { runs: 0, ..options }).is_err());
}
