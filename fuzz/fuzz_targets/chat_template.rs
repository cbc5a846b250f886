//! A template (up to the first zero byte) and a conversation: rendered within its budget, or refused.
#![no_main]

use std::time::SystemTime;

use libfuzzer_sys::fuzz_target;
use sparkinfer::chat::{ChatTemplate, Message, RenderOptions};

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (source, content) = data.split_at(end);
    let Ok(template) = ChatTemplate::new(&String::from_utf8_lossy(source), "<s>", "</s>") else {
        return;
    };
    let content = String::from_utf8_lossy(content);
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", &content),
        Message::new("assistant", "Yes."),
        Message::new("user", "Why?"),
    ];
    let options = RenderOptions {
        now: SystemTime::UNIX_EPOCH,
        ..RenderOptions::default()
    };
    let _ = template.render(&messages, &options);
});
