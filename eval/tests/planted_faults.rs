//! Every fault that is planted is caught by a gate that lets the sound engine pass.
//!
//! The bundled model's GPU engine, emulated, is measured against the CPU's f32 reference, token by token, by the limits
//! of `gates/emulator.json`.

use sparkinfer::accuracy::{Found, Gate, Options, Parties, Predictor, Text, Verdict, Way, Window, measure};
use sparkinfer::cpu::{CpuEngine, CpuOptions};
use sparkinfer::gpu::emulated::Emulated;
use sparkinfer::gpu::{Backend, GpuEngine};
use sparkinfer::load::Model;
use sparkinfer::model::{ModelSpec, Operation};
use sparkinfer_eval::device::{ExchangedParts, Fault, Faulty, MissingResidual, StaleQuery, SwappedPages};
use sparkinfer_eval::file::{dropped_expert, wrong_scale};
use sparkinfer_gguf::Gguf;
use std::path::Path;

/// Tokens of the window; the second half is scored.
const WINDOW: usize = 32;
/// Tokens of a window that is longer than a page of the cache.
const PAGES: usize = 88;
/// Layers of the bundled model.
const LAYERS: usize = 4;

fn model() -> Model {
    Model::open(None).unwrap()
}

fn data(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// What is measured over a window of an engine of a file and a description on a device, by the reference of `expected`.
fn found<B: Backend>(model: &Model, expected: &ModelSpec, ours: (&Gguf, &ModelSpec, B), window: usize) -> Found {
    let (gguf, spec, device) = ours;
    let text = std::fs::read_to_string(data("../tests/data/heldout.txt")).unwrap();
    let tokens = model.text_ids(&text[..2000]).unwrap();
    let text = Text {
        name: "held-out text".to_owned(),
        windows: Window::cut(&tokens, window, Some(1), None).unwrap(),
        tokens,
        bos: None,
    };
    let reference = CpuEngine::new(&model.gguf, expected, &CpuOptions::reference(window)).unwrap();
    let ours = GpuEngine::load(device, gguf, spec, window, &mut |_, _| {}).unwrap();
    let mut parties = Parties {
        references: vec![Box::new(Predictor {
            name: "cpu-f32".to_owned(),
            engine: Box::new(reference),
            way: Way::Prompt,
        })],
        ours: Predictor {
            name: "ours".to_owned(),
            engine: Box::new(ours),
            way: Way::Decode,
        },
        variants: Vec::new(),
        peer: None,
    };
    let options = Options {
        way_depths: vec![],
        depths: vec![],
        tokens_at_depth: 1,
        prompts: 0,
        written: 0,
    };
    measure(&mut parties, &text, &options, &mut |_| {}).unwrap()
}

fn judged(name: &str, found: &Found) -> Verdict {
    let verdict = Gate::open(&data("gates/emulator.json")).unwrap().judge(found);
    let ours = &found.ours[0];
    println!(
        "{name}: KL mean {:.2e}, p99 {:.2e}, max {:.2e}, same best token {:.1} %: {}",
        ours.kl.mean.value,
        ours.kl.p99,
        ours.kl.max,
        100.0 * ours.top1.value,
        if verdict.passed {
            "passed".to_owned()
        } else {
            format!("caught by {}", verdict.broken().join(", "))
        }
    );
    verdict
}

fn caught(name: &str, found: &Found) {
    assert!(!judged(name, found).passed, "{name} was not caught");
}

/// With the reference's own description and file, and a fault on the device.
fn on_device(name: &str, fault: Box<dyn Fault>, window: usize) {
    let model = model();
    let (device, planted) = Faulty::new(fault);
    let found = found(&model, &model.spec, (&model.gguf, &model.spec, device), window);
    assert!(
        planted.get() > 0,
        "{name} was never planted: the launches it waits for have other names now"
    );
    caught(name, &found);
}

fn in_file(name: &str, plant: impl FnOnce(&Gguf) -> Result<Gguf, String>) {
    let model = model();
    let planted = plant(&model.gguf).unwrap();
    caught(
        name,
        &found(
            &model,
            &model.spec,
            (&planted, &model.spec, Emulated::default()),
            WINDOW,
        ),
    );
}

/// The model's description with `change` made to every part's operation.
fn changed(spec: &ModelSpec, mut change: impl FnMut(&mut Operation)) -> ModelSpec {
    let mut spec = spec.clone();
    let parts = spec.layers.iter_mut().flat_map(|layer| &mut layer.parts);
    parts.for_each(|part| change(&mut part.operation));
    spec
}

#[test]
fn the_sound_engine_passes() {
    let model = model();
    let found = found(
        &model,
        &model.spec,
        (&model.gguf, &model.spec, Emulated::default()),
        WINDOW,
    );
    let verdict = judged("no fault", &found);
    assert!(verdict.passed, "{verdict:?}");
}

#[test]
fn a_wrong_block_scale_is_caught() {
    in_file("one block's scale doubled", |gguf| {
        wrong_scale(gguf, "blk.0.attn_output.weight", 1, 2.0)
    });
}

#[test]
fn a_dropped_expert_is_caught() {
    in_file("one expert dropped", |gguf| {
        dropped_expert(gguf, "blk.1.ffn_down_exps.weight", 3)
    });
}

#[test]
fn one_expert_too_few_is_caught() {
    let model = model();
    let planted = changed(&model.spec, |operation| {
        if let Operation::Moe(moe) = operation {
            moe.used -= 1;
        }
    });
    let found = found(
        &model,
        &model.spec,
        (&model.gguf, &planted, Emulated::default()),
        WINDOW,
    );
    caught("three experts instead of four", &found);
}

/// The model is given a window that it was not trained with: the reference has it too.
#[test]
fn a_window_off_by_one_is_caught() {
    let model = model();
    let with = |tokens| {
        changed(&model.spec, |operation| {
            if let Operation::Attention(attention) = operation {
                attention.window = Some(tokens);
            }
        })
    };
    let (right, wrong) = (with(12), with(13));
    let measured = |spec| found(&model, &right, (&model.gguf, spec, Emulated::default()), WINDOW);
    assert!(judged("a window of 12", &measured(&right)).passed);
    caught("a window of 13 instead of 12", &measured(&wrong));
}

#[test]
fn a_stale_query_is_caught() {
    on_device(
        "one head's query stale",
        Box::new(StaleQuery::new(LAYERS, 2, 1, 128)),
        WINDOW,
    );
}

#[test]
fn swapped_pages_are_caught() {
    on_device("two pages swapped", Box::new(SwappedPages), PAGES);
}

#[test]
fn exchanged_activation_parts_are_caught() {
    on_device(
        "activation bytes exchanged",
        Box::new(ExchangedParts::new(LAYERS, 3, 0)),
        WINDOW,
    );
}

#[test]
fn a_missing_residual_is_caught() {
    on_device(
        "a residual missing",
        Box::new(MissingResidual::new(LAYERS, 1, 256)),
        WINDOW,
    );
}
