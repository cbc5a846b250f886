//! A small sound model with some keys and tensors changed: described and given a tokenizer and a template, or refused.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use sparkinfer::chat::ChatTemplate;
use sparkinfer::model::{KvType, ModelSpec};
use sparkinfer::tokenizer::Tokenizer;
use sparkinfer_gguf::{Gguf, GgufWriter, MetaValue, TensorType};

const ARCHITECTURES: [&str; 5] = ["llama", "qwen2", "qwen3", "qwen3moe", "gemma3"];

/// Keys of an architecture and their sound values.
const NUMBERS: [(&str, u32); 19] = [
    ("block_count", 1),
    ("context_length", 64),
    ("embedding_length", 32),
    ("feed_forward_length", 64),
    ("expert_feed_forward_length", 64),
    ("expert_count", 2),
    ("expert_used_count", 1),
    ("attention.head_count", 2),
    ("attention.head_count_kv", 1),
    ("attention.key_length", 16),
    ("attention.value_length", 16),
    ("attention.sliding_window", 8),
    ("attention.sliding_window_pattern", 2),
    ("rope.dimension_count", 16),
    ("rope.scaling.original_context_length", 32),
    ("vocab_size", 4),
    ("expert_shared_count", 0),
    ("expert_gating_func", 1),
    ("leading_dense_block_count", 0),
];

/// Tensors and their sound shapes.
const TENSORS: [(&str, &[u64]); 20] = [
    ("token_embd.weight", &[32, 4]),
    ("output.weight", &[32, 4]),
    ("output_norm.weight", &[32]),
    ("rope_freqs.weight", &[8]),
    ("blk.0.attn_norm.weight", &[32]),
    ("blk.0.attn_q.weight", &[32, 32]),
    ("blk.0.attn_q.bias", &[32]),
    ("blk.0.attn_k.weight", &[32, 16]),
    ("blk.0.attn_v.weight", &[32, 16]),
    ("blk.0.attn_output.weight", &[32, 32]),
    ("blk.0.attn_q_norm.weight", &[16]),
    ("blk.0.attn_k_norm.weight", &[16]),
    ("blk.0.ffn_norm.weight", &[32]),
    ("blk.0.ffn_gate.weight", &[32, 64]),
    ("blk.0.ffn_up.weight", &[32, 64]),
    ("blk.0.ffn_down.weight", &[64, 32]),
    ("blk.0.ffn_gate_inp.weight", &[32, 2]),
    ("blk.0.ffn_gate_exps.weight", &[32, 64, 2]),
    ("blk.0.ffn_up_exps.weight", &[32, 64, 2]),
    ("blk.0.ffn_down_exps.weight", &[64, 32, 2]),
];

/// Texts of a file and their sound values; the last two are read as lists.
const TEXTS: [(&str, &str); 6] = [
    ("rope.scaling.type", "none"),
    ("tokenizer.ggml.model", "gpt2"),
    ("tokenizer.ggml.pre", "qwen2"),
    ("tokenizer.chat_template", "{{ messages[0].content }}"),
    ("tokenizer.ggml.tokens", "a b ab <s>"),
    ("tokenizer.ggml.merges", "a b"),
];

/// Random bytes, then zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    /// A number of the kind that breaks arithmetic, or a small one.
    fn number(&mut self) -> u64 {
        match self.next() {
            small @ 0..=127 => small.into(),
            high => (u64::from(self.next()) + 1) << (high % 57),
        }
    }

    fn text(&mut self) -> String {
        let length = usize::from(self.next()).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn value(&mut self) -> MetaValue {
        match self.next() % 8 {
            0 => MetaValue::from(self.text()),
            1 => MetaValue::from(f32::from_bits(self.number() as u32)),
            2 => MetaValue::from(self.number() as i64),
            3 => MetaValue::from(self.next() & 1 == 1),
            4 => MetaValue::strings(self.text().split(' ')),
            5 => MetaValue::from(&[self.number() as u32, self.number() as u32][..]),
            _ => MetaValue::from(self.number() as u32),
        }
    }
}

/// Metadata and tensors.
struct File {
    keys: BTreeMap<String, MetaValue>,
    tensors: BTreeMap<&'static str, (TensorType, Vec<u64>)>,
    /// Whether a key of the tokenizer is not the sound one: making a tokenizer costs a thousand descriptions.
    another_tokenizer: bool,
}

impl File {
    fn sound(architecture: &str) -> Self {
        let mut keys = BTreeMap::from([("general.architecture".to_owned(), MetaValue::from(architecture))]);
        for (key, value) in NUMBERS {
            keys.insert(format!("{architecture}.{key}"), value.into());
        }
        let epsilon = format!("{architecture}.attention.layer_norm_rms_epsilon");
        keys.insert(epsilon, 1e-5f32.into());
        for (key, text) in TEXTS {
            let value = match key {
                "tokenizer.ggml.tokens" => MetaValue::strings(text.split(' ')),
                "tokenizer.ggml.merges" => MetaValue::strings([text]),
                _ => MetaValue::from(text),
            };
            keys.insert(key.to_owned(), value);
        }
        let tensors = TENSORS.map(|(name, shape)| (name, (TensorType::F32, shape.to_vec())));
        Self {
            keys,
            tensors: tensors.into(),
            another_tokenizer: false,
        }
    }

    /// One change: a key set or removed, a tensor with another type or shape, or none of it.
    fn change(&mut self, bytes: &mut Bytes) {
        let what = bytes.next();
        let place = usize::from(bytes.next());
        if what < 128 {
            let key = self
                .keys
                .keys()
                .nth(place % self.keys.len())
                .cloned()
                .unwrap_or_default();
            self.another_tokenizer |= key.starts_with("tokenizer.");
            if what < 16 && self.keys.len() > 1 {
                self.keys.remove(&key);
            } else {
                self.keys.insert(key, bytes.value());
            }
            return;
        }
        let Some((ty, shape)) = self.tensors.values_mut().nth(place % TENSORS.len()) else {
            return;
        };
        if what < 192 {
            let number = usize::from(bytes.next());
            *ty = TensorType::all().nth(number % TensorType::all().count()).unwrap_or(*ty);
        } else {
            let at = usize::from(bytes.next()) % shape.len();
            shape[at] = bytes.number().clamp(1, 128);
        }
    }

    /// The file, unless its tensors are not even storable.
    fn write(&self) -> Option<Gguf> {
        let mut writer = GgufWriter::new();
        for (key, value) in &self.keys {
            writer.set(key, value.clone());
        }
        let mut sizes = Vec::new();
        for (name, (ty, shape)) in &self.tensors {
            writer.tensor(name, *ty, shape).ok()?;
            let elements: u64 = shape.iter().product();
            sizes.push(ty.row_bytes(elements as usize)?);
        }
        let file = writer.to_vec(|i, out| out.write_all(&vec![0x3c; sizes[i]])).ok()?;
        Some(Gguf::from_vec("fuzzed", file).expect("what the writer writes can be read"))
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let architecture = ARCHITECTURES[usize::from(bytes.next()) % ARCHITECTURES.len()];
    let mut file = File::sound(architecture);
    for _ in 0..=bytes.next() % 8 {
        file.change(&mut bytes);
    }
    let Some(gguf) = file.write() else {
        return;
    };
    if let Ok(spec) = ModelSpec::from_gguf(&gguf) {
        assert!(spec.memory(KvType::F16).weights > 0);
    }
    if !file.another_tokenizer {
        return;
    }
    if let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) {
        let _ = ChatTemplate::from_gguf(&gguf, &tokenizer);
    }
});
