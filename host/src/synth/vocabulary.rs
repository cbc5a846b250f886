//! The tokenizer's keys: from another file, or a byte-level vocabulary made up.

use sparkinfer_gguf::{Gguf, GgufWriter, MetaValue};

use super::{Preset, SynthError};

/// `tokenizer.ggml.token_type` of ordinary, control and unused tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";

/// The special tokens, in order: end of text, start and end of a chat message.
const SPECIALS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
/// Pairs that are merged, `Ġ` being a space.
const MERGES: [(&str, &str); 8] = [
    ("Ġ", "t"),
    ("h", "e"),
    ("Ġ", "a"),
    ("i", "n"),
    ("r", "e"),
    ("o", "n"),
    ("Ġt", "he"),
    ("in", "g"),
];

/// Copies the tokenizer of another file and pads its vocabulary to the model's rows.
pub(super) fn copy(writer: &mut GgufWriter, from: &Gguf, preset: &Preset) -> Result<(), SynthError> {
    let metadata = from.metadata();
    let rows = preset.vocab as usize;
    let mut tokens: Vec<Vec<u8>> = metadata.require_strings(TOKENS)?.map(<[u8]>::to_vec).collect();
    let count = tokens.len();
    if count > rows {
        return Err(SynthError::Vocabulary {
            file: from.label().to_owned(),
            tokens: count,
            rows,
        });
    }
    for (key, value) in metadata.iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        writer.set(key, value);
    }
    tokens.extend((count..rows).map(|i| format!("[PAD{i}]").into_bytes()));
    writer.set(TOKENS, MetaValue::strings(tokens));
    if let Some(mut types) = metadata.list::<i32>(TYPES)? {
        types.resize(rows, UNUSED);
        writer.set(TYPES, &types[..]);
    }
    if let Some(mut scores) = metadata.list::<f32>(SCORES)? {
        scores.resize(rows, 0.0);
        writer.set(SCORES, &scores[..]);
    }
    Ok(())
}

/// Makes up a vocabulary: the bytes, a few merges, three special tokens, and padding around them.
pub(super) fn invent(writer: &mut GgufWriter, preset: &Preset) {
    let mut tokens: Vec<String> = (0..=255).map(|byte| byte_symbol(byte).to_string()).collect();
    tokens.extend(MERGES.map(|(left, right)| format!("{left}{right}")));
    let ordinary = tokens.len();
    tokens.extend((ordinary..preset.vocab as usize).map(|i| format!("[PAD{i}]")));
    let mut types = vec![UNUSED; tokens.len()];
    types[..ordinary].fill(NORMAL);
    let first = preset.specials_at as usize;
    for (i, special) in SPECIALS.iter().enumerate() {
        tokens[first + i] = (*special).to_owned();
        types[first + i] = CONTROL;
    }
    writer
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "qwen2");
    writer.set(TOKENS, MetaValue::strings(&tokens)).set(TYPES, &types[..]);
    let merges = MERGES.map(|(left, right)| format!("{left} {right}"));
    writer.set("tokenizer.ggml.merges", MetaValue::strings(merges));
    writer.set("tokenizer.ggml.bos_token_id", preset.specials_at);
    writer.set("tokenizer.ggml.padding_token_id", preset.specials_at);
    writer.set("tokenizer.ggml.eos_token_id", preset.specials_at + 2);
    writer.set("tokenizer.ggml.add_bos_token", false);
}

/// The printable character that stands for a byte in byte-level vocabularies: itself where it is printable, else one
/// from U+0100 on, in order.
fn byte_symbol(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match printable(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
            char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_symbols_are_distinct_and_known() {
        let symbols: std::collections::HashSet<char> = (0..=255).map(byte_symbol).collect();
        assert_eq!(symbols.len(), 256);
        assert_eq!(
            [
                byte_symbol(b' '),
                byte_symbol(b'\n'),
                byte_symbol(b'a'),
                byte_symbol(0xad)
            ],
            ['Ġ', 'Ċ', 'a', 'Ń']
        );
    }
}
