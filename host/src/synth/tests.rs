//! Synthetic files have the shapes they should, and the same bytes every time.

use sparkinfer_gguf::{Gguf, TensorType};

use super::*;

fn options(name: &str) -> SynthOptions<'static> {
    let preset = Preset::find(name).expect("preset");
    SynthOptions {
        preset,
        mix: Mix::Q4KM,
        layers: None,
        seed: 1,
        vocabulary: None,
    }
}

fn open(options: &SynthOptions<'_>) -> Gguf {
    let bytes = Synth::new(options).and_then(|synth| synth.to_vec()).expect("model");
    Gguf::from_vec("synthetic", bytes).expect("file")
}

#[test]
fn the_large_preset_has_the_real_model_s_size() {
    let synth = Synth::new(&options("qwen3-30b-a3b")).expect("plan");
    let values: usize = synth.tensors.iter().map(|(planned, _)| planned.elements()).sum();
    assert_eq!(values, 30_532_122_624);
    let bytes = synth.file_bytes().expect("size");
    assert!((18_550_000_000..18_700_000_000).contains(&bytes), "{bytes}");
    let six_bits = synth.tensors.iter().filter(|(_, ty)| *ty == TensorType::Q6_K).count();
    assert_eq!(six_bits, 1 + 24 + 24);
}

#[test]
fn small_presets_are_sound() {
    for preset in Preset::all().iter().filter(|preset| preset.name.starts_with("small-")) {
        for mix in Mix::ALL {
            let options = SynthOptions {
                mix,
                ..options(preset.name)
            };
            let synth = Synth::new(&options).expect("plan");
            let gguf = open(&options);
            assert_eq!(gguf.metadata().require_str("general.architecture"), Ok(preset.arch));
            for (tensor, (planned, ty)) in gguf.tensors().zip(&synth.tensors) {
                assert_eq!((tensor.name, tensor.ty), (planned.name.as_str(), *ty));
                assert_eq!(tensor.shape(), planned.shape);
                check_values(preset, &tensor, planned);
            }
        }
    }
}

/// Values are finite and of the planned size. Of a few values only the mean can be checked.
fn check_values(preset: &Preset, tensor: &sparkinfer_gguf::TensorView<'_>, planned: &Planned) {
    let values = tensor.dequantize().expect("values");
    let n = values.len() as f64;
    let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
    let deviation = (values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n).sqrt();
    let wanted = f64::from(planned.values.deviation);
    let name = format!("{} {} ({})", preset.name, tensor.name, tensor.ty);
    assert!(
        n < 64.0 || (deviation / wanted - 1.0).abs() < 0.2,
        "{name}: deviation {deviation} instead of {wanted}"
    );
    assert!(
        (mean - f64::from(planned.values.mean)).abs() < 5.0 * wanted / n.sqrt() + 0.01 * wanted,
        "{name}: mean {mean}"
    );
}

#[test]
fn threads_and_memory_agree() {
    let synth = Synth::new(&options("small-qwen3moe")).expect("plan");
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("m.gguf");
    let written = std::sync::atomic::AtomicU64::new(0);
    let count = |bytes| {
        written.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
    };
    synth.write(&path, count).expect("written");
    assert!(std::fs::read(&path).expect("file") == synth.to_vec().expect("model"));
    let data: u64 = Gguf::open(&path)
        .expect("file")
        .tensors()
        .map(|t| t.data.len() as u64)
        .sum();
    assert_eq!(written.into_inner(), data);
}

#[test]
fn seeds_and_layers_count() {
    let base = options("small-qwen3");
    let first = |options: &SynthOptions<'_>| {
        open(options)
            .require_tensor("token_embd.weight")
            .expect("t")
            .data
            .to_vec()
    };
    assert!(first(&base) == first(&base));
    assert!(first(&base) != first(&SynthOptions { seed: 2, ..base }));
    let gguf = open(&SynthOptions {
        layers: Some(1),
        ..base
    });
    assert_eq!(gguf.metadata().require_u32("qwen3.block_count"), Ok(1));
    assert!(gguf.tensor("blk.1.attn_q.weight").is_none());
    let error = Synth::new(&SynthOptions {
        layers: Some(0),
        ..base
    })
    .err()
    .map(|e| e.to_string());
    assert_eq!(error.as_deref(), Some("0 layers are not possible; 1 to 512 are"));
}

#[test]
fn a_vocabulary_can_be_given() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-qwen3moe-q4_k_m.gguf");
    let tiny = Gguf::open(path).expect("bundled model");
    let gguf = open(&SynthOptions {
        vocabulary: Some(&tiny),
        ..options("small-qwen3moe")
    });
    let tokens = |gguf: &Gguf| {
        gguf.metadata()
            .array("tokenizer.ggml.tokens")
            .map(|a| a.map(|a| a.packed().to_vec()))
    };
    assert!(tokens(&gguf) == tokens(&tiny));
    let small = Preset {
        vocab: 4095,
        ..options("small-qwen3moe").preset.clone()
    };
    let refused = Synth::new(&SynthOptions {
        preset: &small,
        vocabulary: Some(&tiny),
        ..options("small-qwen3moe")
    });
    let error = refused.err().expect("refused").to_string();
    assert!(
        error.ends_with("its vocabulary has 4096 tokens, the model only 4095 rows"),
        "{error}"
    );
}

#[test]
fn unknown_presets_are_refused_with_a_list() {
    let error = Preset::find("gpt-5").unwrap_err().to_string();
    assert!(
        error.starts_with("no synthetic model is called 'gpt-5'; there are qwen3-30b-a3b, "),
        "{error}"
    );
}
