use proptest::prelude::*;
use sparkinfer_gguf::writer::{GgufWriter, MetaValue};

use super::*;

fn small() -> VocabData<'static> {
    VocabData {
        file: "x.gguf".into(),
        model: "gpt2".into(),
        pre: Some("qwen2".into()),
        tokens: vec!["a", "b", "ab", "Ġ", "<s>", "</s>", "<x>"],
        types: Some(vec![1, 1, 1, 1, 3, 3, 4]),
        merges: vec!["a b"],
        ids: SpecialIds {
            bos: Some(4),
            eos: Some(5),
            ..SpecialIds::default()
        },
        ..VocabData::default()
    }
}

fn refusal(data: VocabData<'_>) -> String {
    Tokenizer::from_data(data).unwrap_err().to_string()
}

#[test]
fn prompts_get_what_the_metadata_says() {
    let mut data = small();
    let encode = |data: &VocabData<'_>, options| {
        let tokenizer = Tokenizer::from_data(data.clone()).unwrap();
        tokenizer.encode("ab<s> <x>", options)
    };
    let missing = TokenizerError::Unencodable { byte: b'<' };
    assert_eq!(encode(&data, EncodeOptions::PROMPT), Ok(vec![2, 4, 3, 6]));
    assert_eq!(encode(&data, EncodeOptions::TEXT), Err(missing));
    data.add_bos = Some(true);
    data.add_eos = Some(true);
    assert_eq!(encode(&data, EncodeOptions::PROMPT), Ok(vec![4, 2, 4, 3, 6, 5]));
    data.ids.bos = None;
    data.ids.eos = Some(700);
    assert_eq!(encode(&data, EncodeOptions::PROMPT), Ok(vec![2, 4, 3, 6]));
}

#[test]
fn chats_have_one_beginning() {
    let mut data = small();
    let encode = |data: &VocabData<'_>, text| {
        let tokenizer = Tokenizer::from_data(data.clone()).unwrap();
        tokenizer.encode_chat(text).unwrap()
    };
    assert_eq!(encode(&data, "<s>a"), [4, 0]);
    data.add_bos = Some(true);
    assert_eq!(encode(&data, "<s>a"), [4, 0]);
    assert_eq!(encode(&data, "a"), [4, 0]);
    assert_eq!(encode(&data, "<s><s>a"), [4, 4, 0]);
}

#[test]
fn kinds_that_are_not_supported_are_named() {
    let mut data = small();
    data.pre = Some("tekken".into());
    let message = refusal(data.clone());
    assert!(
        message.starts_with("x.gguf: key 'tokenizer.ggml.pre': 'tekken' is not supported (supported: qwen2, "),
        "{message}"
    );
    data.pre = None;
    assert!(refusal(data.clone()).starts_with("x.gguf: key 'tokenizer.ggml.pre': missing; "));
    data.model = "bert\n".repeat(1000);
    let message = refusal(data);
    assert!(
        message.starts_with("x.gguf: key 'tokenizer.ggml.model': 'bert\\nbert"),
        "{message}"
    );
    assert!(
        message.ends_with("…' is not supported (supported: gpt2, llama, gemma4)"),
        "{message}"
    );
}

#[test]
fn control_tokens_are_invisible_unless_asked_for() {
    let tokenizer = Tokenizer::from_data(small()).unwrap();
    let ids = [4, 2, 3, 6, 5, 1000];
    assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()), "ab <x>");
    let special = DecodeOptions {
        special: true,
        ..DecodeOptions::default()
    };
    assert_eq!(tokenizer.decode(&ids, special), "<s>ab <x></s>");
    assert!(tokenizer.is_end(5) && !tokenizer.is_end(4) && !tokenizer.is_end(1000));
}

#[test]
fn ids_that_must_not_be_sampled() {
    let mut data = small();
    data.suppress = vec![-1, 3, 7, i32::MAX, 0];
    assert_eq!(Tokenizer::from_data(data).unwrap().suppressed(), [3, 0]);
}

/// A file with the small vocabulary and one key replaced.
fn with(key: &str, value: impl Into<MetaValue>) -> Result<Tokenizer> {
    let data = small();
    let mut writer = GgufWriter::new();
    writer.set("tokenizer.ggml.model", "gpt2");
    writer.set("tokenizer.ggml.pre", "qwen2");
    writer.set("tokenizer.ggml.tokens", MetaValue::strings(data.tokens));
    writer.set("tokenizer.ggml.token_type", &data.types.unwrap()[..]);
    writer.set("tokenizer.ggml.merges", MetaValue::strings(data.merges));
    writer.set("tokenizer.ggml.bos_token_id", 4u32);
    writer.set(&format!("tokenizer.ggml.{key}"), value);
    let bytes = writer.to_vec(|_, _| Ok(())).unwrap();
    Tokenizer::from_gguf(&Gguf::from_vec("y.gguf", bytes).unwrap())
}

#[test]
fn files_are_read_and_wrong_kinds_refused_by_key() {
    let tokenizer = with("add_bos_token", true).unwrap();
    assert_eq!(tokenizer.encode("ab", EncodeOptions::PROMPT), Ok(vec![4, 2]));
    let refused = |result: Result<Tokenizer>, key: &str| {
        let message = result.unwrap_err().to_string();
        let start = format!("y.gguf: key 'tokenizer.ggml.{key}': ");
        assert!(message.starts_with(&start), "{message}");
    };
    refused(with("add_bos_token", 1u32), "add_bos_token");
    refused(with("model", 7u32), "model");
    refused(with("pre", &[1u32][..]), "pre");
    refused(with("tokens", &[1u32][..]), "tokens");
    refused(with("tokens", MetaValue::strings([&b"a"[..], b"\xFF"])), "tokens");
    refused(with("token_type", MetaValue::strings(["1"])), "token_type");
    refused(with("merges", "a b"), "merges");
    refused(with("eos_token_id", "two"), "eos_token_id");
    refused(with("scores", MetaValue::strings(["1"])), "scores");
}

/// Vocabularies made of a few letters: many are nonsense, and none may bring the tokenizer down.
fn any_data() -> impl Strategy<Value = VocabData<'static>> {
    const TEXTS: &[&str] = &[
        "a",
        "b",
        "ab",
        "ba",
        "aba",
        "Ġ",
        "Ġa",
        "▁",
        "▁a",
        "",
        "<0x61>",
        "<0xC3>",
        "<0x",
        "é",
        "Ã",
        "©",
        "\n",
        "\n\n",
        "</s>",
        "<|im_end|>",
        "<|tool_response>",
        "<PRE>",
    ];
    const MERGES: &[&str] = &[
        "a b", "b a", "ab a", "a  b", " ", "", "ab", "Ġ a", "▁ a", "\n \n", "é é", "a Ã",
    ];
    let texts = proptest::sample::subsequence(TEXTS, 0..TEXTS.len()).prop_shuffle();
    let merges = proptest::collection::vec(proptest::sample::select(MERGES), 0..12);
    let types = proptest::option::of(proptest::collection::vec(-1..8i32, 0..30));
    let scores = proptest::option::of(proptest::collection::vec(any::<f32>(), 0..30));
    let names = ("gpt2|llama|gemma4", "qwen2|gpt-2|smollm|llama-bpe");
    let ids = (any::<u32>(), 0..30u32);
    (texts, merges, types, scores, names, ids).prop_map(|(tokens, merges, types, scores, names, ids)| VocabData {
        model: names.0,
        pre: Some(names.1),
        tokens,
        merges,
        types,
        scores,
        ids: SpecialIds {
            bos: Some(ids.0),
            eos: Some(ids.1),
            unk: Some(ids.1),
            fim_pad: Some(ids.0),
            ..SpecialIds::default()
        },
        add_bos: Some(true),
        add_eos: Some(true),
        suppress: vec![ids.0 as i32],
        ..VocabData::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_vocabulary_brings_it_down(data in any_data(), text in "[abé▁ \n<>/s0x61]{0,20}") {
        let Ok(tokenizer) = Tokenizer::from_data(data) else { return Ok(()) };
        for options in [EncodeOptions::TEXT, EncodeOptions::PROMPT] {
            let Ok(ids) = tokenizer.encode(&text, options) else { continue };
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            tokenizer.decode(&ids, DecodeOptions::default());
        }
        let _ = tokenizer.encode_chat(&text);
    }
}
