//! The bundled model measured by its own reference.

use super::base_file::write;
use super::*;
use crate::cpu::{CpuEngine, CpuOptions};
use crate::load::Model;
use crate::model::KvType;
use sparkinfer_gguf::Gguf;

const WINDOW: usize = 48;

fn model() -> Model {
    Model::open(None).unwrap()
}

fn text(model: &Model, windows: usize) -> Text {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/heldout.txt")).unwrap();
    let tokens = model.text_ids(&text[..4000]).unwrap();
    Text {
        name: "a text".to_owned(),
        windows: Window::cut(&tokens, WINDOW, Some(windows), None).unwrap(),
        tokens,
        bos: None,
    }
}

fn options() -> Options {
    Options {
        way_depths: vec![0, 30],
        depths: vec![0, 70],
        tokens_at_depth: 8,
        prompts: 2,
        written: 6,
    }
}

fn predictor<'m>(gguf: &'m Gguf, model: &Model, name: &str, options: &CpuOptions) -> Predictor<'m> {
    Predictor {
        name: name.to_owned(),
        engine: Box::new(CpuEngine::new(gguf, &model.spec, options).unwrap()),
        way: Way::Decode,
    }
}

fn exact<'m>(model: &'m Model, name: &str) -> Predictor<'m> {
    predictor(&model.gguf, model, name, &CpuOptions::reference(128))
}

fn practical(model: &Model) -> Predictor<'_> {
    predictor(&model.gguf, model, "ours", &CpuOptions::practical(128))
}

fn measured(model: &Model, ours: Predictor<'_>, peer: Option<Recorded>) -> Found {
    let precise = CpuOptions {
        kv: KvType::F32,
        ..CpuOptions::practical(128)
    };
    let mut parties = Parties {
        references: vec![Box::new(exact(model, "exact")), Box::new(exact(model, "again"))],
        ours,
        variants: vec![predictor(&model.gguf, model, "f32 cache", &precise)],
        peer,
    };
    measure(&mut parties, &text(model, 2), &options(), &mut |_| {}).unwrap()
}

#[test]
fn the_reference_is_at_no_distance_from_itself() {
    let model = model();
    let found = measured(&model, exact(&model, "ours"), None);
    let rows = found.ways.iter().chain(&found.depths).map(|row| &row.comparison);
    let rows = rows.filter(|comparison| comparison.candidate != "f32 cache");
    let all: Vec<&Comparison> = found.ours.iter().chain(&found.references).chain(rows).collect();
    assert_eq!(all.len(), 2 + 1 + 2 + 2);
    for comparison in all {
        assert!(comparison.kl.max < 1e-12, "{comparison:?}");
        assert_eq!((comparison.top1.value, comparison.top5.value), (1.0, 1.0));
        assert_eq!(comparison.perplexity[0], comparison.perplexity[1]);
    }
    assert_eq!(found.ours[0].positions, 2 * (WINDOW / 2 - 1));
    let writing = found.writing.unwrap();
    assert_eq!(
        (
            writing.prompts,
            writing.tokens,
            writing.before_difference,
            writing.identical
        ),
        (2, 12, 12, 2)
    );
    assert!(found.peer.is_none() && found.peer_floor.is_none());
}

#[test]
fn eight_bit_activations_are_near_and_cut_anyhow_the_same() {
    let model = model();
    let found = measured(&model, practical(&model), None);
    let ours = &found.ours[0];
    assert!((1e-6..1e-2).contains(&ours.kl.mean.value), "{ours:?}");
    assert!(ours.top1.value > 0.8 && ours.kl.max < 0.1, "{ours:?}");
    assert!(ours.kl.median <= ours.kl.p99 && ours.kl.p99 <= ours.kl.max);
    assert_eq!(found.ours[1].kl, ours.kl);
    assert!(
        found.ways.iter().all(|row| row.comparison.kl.max < 1e-12),
        "{:?}",
        found.ways
    );
    assert!(found.depths.iter().all(|row| row.comparison.kl.mean.value > 0.0));
    let candidates: Vec<(usize, &str)> = found
        .depths
        .iter()
        .map(|row| (row.depth, row.comparison.candidate.as_str()))
        .collect();
    assert_eq!(
        candidates,
        [(0, "ours"), (0, "f32 cache"), (70, "ours"), (70, "f32 cache")]
    );
    assert_ne!(found.depths[2].comparison.kl, found.depths[3].comparison.kl);
    assert_eq!(found.depths[2].comparison.kl_by_position[0].0, 70);
}

/// The perplexity of the same windows, computed by what `sparkinfer perplexity` uses.
#[test]
fn the_perplexity_is_the_known_one() {
    let model = model();
    let text = text(&model, 2);
    let mut engine = CpuEngine::new(&model.gguf, &model.spec, &CpuOptions::reference(128)).unwrap();
    let tokens = &text.tokens[..2 * WINDOW];
    let expected = crate::perplexity::perplexity(&mut engine, tokens, WINDOW, None, &mut |_| {}).unwrap();
    let found = measured(&model, practical(&model), None);
    assert!(
        (found.ours[0].perplexity[0] / expected.value - 1.0).abs() < 1e-6,
        "{expected:?}"
    );
}

/// A file of the reference's own predictions stands where its 16 bits put it.
#[test]
fn a_peer_is_measured_through_its_file() {
    let model = model();
    let text = text(&model, 2);
    let mut reference = exact(&model, "exact");
    let windows = text.windows.iter();
    let predictions = windows.flat_map(|window| reference.predictions(&window.input(), window.first_scored()).unwrap());
    let bytes = write(WINDOW, &text.tokens[..2 * WINDOW], &predictions.collect::<Vec<_>>());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("base"), bytes).unwrap();
    let file = BaseFile::open(&folder.path().join("base")).unwrap();
    let peer = Recorded {
        name: "peer".to_owned(),
        file,
    };
    let found = measured(&model, practical(&model), Some(peer));
    let (peer, floor) = (found.peer.unwrap(), found.peer_floor.unwrap());
    assert_eq!(peer.kl, floor.kl);
    assert!(floor.kl.max < 1e-8 && floor.top1.value == 1.0, "{floor:?}");
    let (from_peer, ours) = (found.from_peer.unwrap(), &found.ours[0]);
    assert!((from_peer.kl.mean.value / ours.kl.mean.value - 1.0).abs() < 0.01);
}

#[test]
fn a_report_can_be_read_and_drawn() {
    let model = model();
    let found = measured(&model, practical(&model), None);
    let gate = Gate {
        kl_mean: Some(1e-9),
        ..Gate::default()
    };
    let report = Report {
        model: ModelFacts {
            title: "a <model>".to_owned(),
            file: "f".to_owned(),
            file_bytes: 1,
            sha256: None,
        },
        machine: Machine::look(),
        text: "a text".to_owned(),
        window: WINDOW,
        kv_type: Some("q8_0".to_owned()),
        options: options(),
        peer: None,
        verdict: Some(gate.judge(&found)),
        found,
    };
    let text = report.to_string();
    for part in [
        "exact ‖ ours",
        "exact ‖ again",
        "depth 70, ours: KL mean",
        "gate: FAILED",
        "NO  kl_mean",
        "free writing",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let drawn = svg(&report);
    assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n") && drawn.contains("a &lt;model&gt;"));
    assert_eq!(drawn.matches("<polyline").count(), 2);
    assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        json["found"]["ours"][0]["kl"]["mean"]["value"],
        report.found.ours[0].kl.mean.value
    );
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let model = model();
    let run = |references: Vec<Box<dyn Reference>>, options: &Options, context| {
        let ours = predictor(&model.gguf, &model, "ours", &CpuOptions::practical(context));
        let mut parties = Parties {
            references,
            ours,
            variants: Vec::new(),
            peer: None,
        };
        measure(&mut parties, &text(&model, 1), options, &mut |_| {})
            .unwrap_err()
            .to_string()
    };
    assert!(run(Vec::new(), &options(), 128).contains("a reference and a window are needed"));
    let deep = Options {
        depths: vec![1 << 40],
        ..options()
    };
    assert!(run(vec![Box::new(exact(&model, "exact"))], &deep, 128).contains("take a longer one"));
    let problem = run(vec![Box::new(exact(&model, "exact"))], &options(), 20);
    assert!(
        problem.starts_with("ours: ") && problem.contains("context of 20"),
        "{problem}"
    );
}

#[test]
fn the_context_covers_everything() {
    let mut options = options();
    assert_eq!(options.context(16), 78);
    assert_eq!(options.context(200), 200);
    options.written = 500;
    assert_eq!(options.context(16), 508);
}
