//! Recasts of the bundled model.

use super::*;
use sparkinfer::bundled;
use sparkinfer::model::{ModelSpec, Operation};
use sparkinfer::tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};

fn tiny() -> Gguf {
    Gguf::from_bytes(bundled::model().unwrap()).unwrap()
}

#[test]
fn layers_are_renumbered() {
    let tiny = tiny();
    let made = Recast::of(&tiny).unwrap().keep_layers(1, 2).unwrap().to_gguf().unwrap();
    assert_eq!(ModelSpec::from_gguf(&made).unwrap().layers.len(), 2);
    let name = |layer| format!("blk.{layer}.attn_q.weight");
    assert_eq!(made.tensor(&name(1)).unwrap().data, tiny.tensor(&name(2)).unwrap().data);
    assert!(Recast::of(&tiny).unwrap().keep_layers(3, 2).is_err());
}

#[test]
fn a_shorter_vocabulary_still_has_a_tokenizer() {
    let tiny = tiny();
    let made = Recast::of(&tiny).unwrap().keep_tokens(1000).unwrap().to_gguf().unwrap();
    assert_eq!(ModelSpec::from_gguf(&made).unwrap().vocab_size, 1000);
    let options = EncodeOptions {
        add_special: false,
        parse_special: false,
    };
    let (tokenizer, text) = (Tokenizer::from_gguf(&made).unwrap(), "Once upon a time");
    let tokens = tokenizer.encode(text, options).unwrap();
    let all = Tokenizer::from_gguf(&tiny).unwrap().encode(text, options).unwrap();
    assert!(tokens.iter().all(|&token| token < 1000) && tokens.len() > all.len());
    assert_eq!(tokenizer.decode(&tokens, DecodeOptions::default()), text);
    assert!(Recast::of(&tiny).unwrap().keep_tokens(5000).is_err());
}

#[test]
fn an_expert_becomes_a_network() {
    let tiny = tiny();
    let mut recast = Recast::of(&tiny).unwrap();
    let made = recast.keep_first_expert().unwrap().rename("qwen3").to_gguf().unwrap();
    let spec = ModelSpec::from_gguf(&made).unwrap();
    assert_eq!(spec.architecture, "qwen3");
    assert!(matches!(&spec.layers[3].parts[1].operation, Operation::Dense(dense) if dense.width == 256));
}

#[test]
fn files_and_parts_are_what_is_in_memory() {
    let (tiny, folder) = (tiny(), tempfile::tempdir().unwrap());
    let mut recast = Recast::of(&tiny).unwrap();
    let recast = recast.keep_layers(0, 1).unwrap();
    let whole = folder.path().join("whole.gguf");
    recast.write_file(&whole).unwrap();
    recast.write_parts(&folder.path().join("part"), 1 << 20).unwrap();
    let mut parts: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    parts.retain(|path| path != &whole);
    parts.sort();
    assert!(parts.len() > 2);
    let (whole, parts) = (Gguf::open(&whole).unwrap(), Gguf::open(&parts[0]).unwrap());
    assert_eq!(whole.tensors().len(), parts.tensors().len());
    for tensor in whole.tensors() {
        assert_eq!(tensor.data, parts.tensor(tensor.name).unwrap().data, "{}", tensor.name);
    }
}
