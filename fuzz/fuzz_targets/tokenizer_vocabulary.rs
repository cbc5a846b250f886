//! A vocabulary, and a text for it: lines of tokens, an empty line, lines of merges, an empty line, the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sparkinfer::tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};
use sparkinfer_gguf::{Gguf, GgufWriter, MetaValue};

const MODELS: [(&str, &str); 6] = [
    ("gpt2", "qwen2"),
    ("gpt2", "llama-bpe"),
    ("gpt2", "smollm"),
    ("gpt2", "gpt-2"),
    ("llama", "default"),
    ("gemma4", "gemma4"),
];

fn file(model: (&str, &str), tokens: &[u8], merges: &[u8], kind: u8) -> Gguf {
    let lines = |text: &[u8]| MetaValue::strings(text.split(|byte| *byte == b'\n'));
    let count = tokens.split(|byte| *byte == b'\n').count();
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "llama");
    writer
        .set("tokenizer.ggml.model", model.0)
        .set("tokenizer.ggml.pre", model.1);
    writer.set("tokenizer.ggml.tokens", lines(tokens));
    writer.set("tokenizer.ggml.merges", lines(merges));
    let scores: Vec<f32> = (0..count).map(|i| -(i as f32)).collect();
    let kinds: Vec<i32> = (0..count).map(|i| 1 + i32::from(kind) * i as i32 % 6).collect();
    writer.set("tokenizer.ggml.scores", &scores[..]);
    writer.set("tokenizer.ggml.token_type", &kinds[..]);
    writer.set("tokenizer.ggml.bos_token_id", u32::from(kind));
    let bytes = writer.to_vec(|_, _| Ok(())).expect("it can be written");
    Gguf::from_vec("fuzzed", bytes).expect("it can be read")
}

/// The part before the first empty line, and what is behind it.
fn part(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.windows(2).position(|pair| pair == b"\n\n");
    end.map_or((data, &[]), |end| (&data[..end], &data[end + 2..]))
}

fuzz_target!(|data: &[u8]| {
    let [model, kind, rest @ ..] = data else {
        return;
    };
    let (tokens, rest) = part(rest);
    let (merges, text) = part(rest);
    let gguf = file(MODELS[usize::from(*model) % MODELS.len()], tokens, merges, *kind);
    let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    for options in [EncodeOptions::TEXT, EncodeOptions::PROMPT] {
        if let Ok(ids) = tokenizer.encode(&text, options) {
            tokenizer.decode(&ids, DecodeOptions::default());
        }
    }
});
