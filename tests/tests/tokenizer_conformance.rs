//! llama.cpp's own conformance cases, for every kind of tokenizer.

use sparkinfer::tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};
use sparkinfer_gguf::Gguf;
use sparkinfer_tests::assets::{SMOLLM2, VOCAB};
use std::path::Path;

const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

fn tokenizer(folder: &Path, name: &str) -> Tokenizer {
    let gguf = Gguf::open(folder.join(format!("ggml-vocab-{name}.gguf"))).unwrap();
    Tokenizer::from_gguf(&gguf).unwrap()
}

/// The cases of one vocabulary: texts and their ids.
fn cases(folder: &Path, name: &str) -> Vec<(String, Vec<u32>)> {
    let read = |kind| std::fs::read_to_string(folder.join(format!("ggml-vocab-{name}.gguf.{kind}"))).unwrap();
    let (texts, ids) = (read("inp"), read("out"));
    let ids = ids
        .lines()
        .map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect());
    texts.split(SEPARATOR).map(str::to_owned).zip(ids).collect()
}

/// Encodes every case; returns their number.
fn conform(name: &str) -> Option<usize> {
    let folder = VOCAB.get()?;
    let tokenizer = tokenizer(&folder, name);
    let cases = cases(&folder, name);
    for (text, ids) in &cases {
        let found = tokenizer.encode(text, EncodeOptions::TEXT).unwrap();
        assert_eq!(&found, ids, "{name}: {text:?}");
    }
    Some(cases.len())
}

macro_rules! conformance {
    ($($test:ident: $name:literal, $count:literal;)*) => {$(
        #[test]
        fn $test() {
            if let Some(count) = conform($name) {
                assert_eq!(count, $count);
            }
        }
    )*};
}

conformance! {
    qwen2: "qwen2", 46;
    qwen35: "qwen35", 50;
    llama_bpe: "llama-bpe", 46;
    gpt2: "gpt-2", 46;
    llama_spm: "llama-spm", 46;
    gemma4: "gemma-4", 46;
}

/// SmolLM2 has no conformance file of its own: these ids come from a llama.cpp server with this very model.
#[test]
fn smollm() {
    let Some(model) = SMOLLM2.get() else { return };
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(model).unwrap()).unwrap();
    let cases: Vec<serde_json::Value> = serde_json::from_str(include_str!("../data/smollm_tokens.json")).unwrap();
    assert_eq!(cases.len(), 54);
    let parsed = EncodeOptions {
        parse_special: true,
        ..EncodeOptions::TEXT
    };
    for case in &cases {
        let text = case["text"].as_str().unwrap();
        for (options, ids) in [(EncodeOptions::TEXT, &case["plain"]), (parsed, &case["parsed"])] {
            let found = tokenizer.encode(text, options).unwrap();
            assert_eq!(serde_json::to_value(found).unwrap(), *ids, "{text:?}");
        }
    }
}

const NAMES: [&str; 6] = ["qwen2", "qwen35", "llama-bpe", "gpt-2", "llama-spm", "gemma-4"];

#[test]
fn cases_come_back_as_text() {
    let Some(folder) = VOCAB.get() else { return };
    let options = DecodeOptions {
        strip_prefix: true,
        ..DecodeOptions::default()
    };
    for name in NAMES {
        let tokenizer = tokenizer(&folder, name);
        for (text, ids) in cases(&folder, name) {
            assert_eq!(tokenizer.decode(&ids, options), text, "{name}");
        }
    }
}
