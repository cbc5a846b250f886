//! A text through the bundled model's tokenizer and back.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use sparkinfer::bundled;
use sparkinfer::tokenizer::{DecodeOptions, EncodeOptions, Tokenizer};
use sparkinfer_gguf::Gguf;

fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| {
        let gguf = Gguf::from_bytes(bundled::model().expect("it is in the program")).expect("it is sound");
        Tokenizer::from_gguf(&gguf).expect("it has a tokenizer")
    })
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let tokens = tokenizer()
        .encode(&text, EncodeOptions::TEXT)
        .expect("every byte has a token");
    assert_eq!(tokenizer().decode(&tokens, DecodeOptions::default()), text);
    let all = DecodeOptions {
        special: true,
        ..DecodeOptions::default()
    };
    let tokens = tokenizer().encode_chat(&text).expect("every byte has a token");
    assert_eq!(tokenizer().decode(&tokens, all), text);
});
