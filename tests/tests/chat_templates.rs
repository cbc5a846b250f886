//! Chat templates of many models: all compile, and those of the supported models render what Jinja2 renders.
//!
//! `data/chat_golden.json` holds conversations and, per template, the texts that Jinja2 made of them; `data/README.md`
//! says how.

use serde::Deserialize;
use sparkinfer::chat::{ChatError, ChatTemplate, Message, RenderOptions};
use sparkinfer::tokenizer::Tokenizer;
use sparkinfer_gguf::Gguf;
use sparkinfer_tests::assets::{GEMMA3_TOKENIZER, VOCAB};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Noon of 30 November 2026, the time at which the texts were made.
const NOW: Duration = Duration::from_secs(1_796_040_000);

#[derive(Deserialize)]
struct Golden {
    conversations: BTreeMap<String, Conversation>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<serde_json::Value>,
    #[serde(default = "yes")]
    enable_thinking: bool,
    #[serde(default = "yes")]
    add_generation_prompt: bool,
}

/// One rendering: a text, or the template's refusal, or neither if Jinja2 fails.
#[derive(Deserialize)]
struct Case {
    template: String,
    conversation: String,
    text: Option<String>,
    refused: Option<String>,
}

fn yes() -> bool {
    true
}

fn compile(source: &str) -> Result<ChatTemplate, ChatError> {
    ChatTemplate::new(source, "<bos>", "<eos>")
}

/// The template of a case: a file of the collection, the one in a vocabulary, or Gemma 3's; `None` if it has not been
/// fetched.
fn template(name: &str) -> Option<ChatTemplate> {
    let template = if name == "gemma3" {
        let config = std::fs::read(GEMMA3_TOKENIZER.get()?.join("tokenizer_config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        compile(config["chat_template"].as_str().unwrap())
    } else if name.ends_with(".gguf") {
        let gguf = Gguf::open(VOCAB.get()?.join(name)).unwrap();
        ChatTemplate::from_gguf(&gguf, &Tokenizer::from_gguf(&gguf).unwrap())
    } else {
        let path = VOCAB.get()?.join("templates").join(name);
        compile(&std::fs::read_to_string(path).unwrap())
    };
    Some(template.unwrap())
}

fn render(template: &ChatTemplate, conversation: &Conversation) -> Result<String, ChatError> {
    let options = RenderOptions {
        tools: conversation.tools.clone(),
        add_generation_prompt: conversation.add_generation_prompt,
        enable_thinking: conversation.enable_thinking,
        now: SystemTime::UNIX_EPOCH + NOW,
        ..RenderOptions::default()
    };
    template.render(&conversation.messages, &options)
}

/// Renders a case; the differences if there are any.
fn check(template: &ChatTemplate, golden: &Golden, case: &Case) -> Option<String> {
    let found = render(template, &golden.conversations[&case.conversation]);
    let equal = match (&case.text, &case.refused, &found) {
        (Some(text), _, Ok(found)) => text == found,
        (None, Some(refused), Err(ChatError::Refused(found))) => refused == found,
        (None, None, Err(ChatError::Failed(_))) => true,
        _ => false,
    };
    let Case { text, refused, .. } = case;
    let place = (&case.template, &case.conversation);
    (!equal).then(|| format!("{place:?}\nexpected {text:?} {refused:?}\nfound    {found:?}"))
}

fn check_template(name: &str) {
    let golden: Golden = serde_json::from_str(include_str!("../data/chat_golden.json")).unwrap();
    let Some(template) = template(name) else { return };
    let cases: Vec<_> = golden.cases.iter().filter(|case| case.template == name).collect();
    assert_eq!(cases.len(), golden.conversations.len());
    let wrong: Vec<_> = cases
        .iter()
        .filter_map(|case| check(&template, &golden, case))
        .collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n\n"));
}

macro_rules! as_in_jinja2 {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            check_template($name);
        }
    )*};
}

as_in_jinja2! {
    qwen3: "Qwen-Qwen3-0.6B.jinja";
    qwen3_coder: "Qwen3-Coder.jinja";
    qwen35: "Qwen3.5-4B.jinja";
    gemma3: "gemma3";
    gemma4: "google-gemma-4-31B-it.jinja";
    gemma4_of_a_gguf_file: "ggml-vocab-gemma-4.gguf";
    llama31: "meta-llama-Llama-3.1-8B-Instruct.jinja";
    llama32: "meta-llama-Llama-3.2-3B-Instruct.jinja";
}

fn templates(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("templates")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "jinja"))
        .collect()
}

#[test]
fn all_templates_compile() {
    let Some(folder) = VOCAB.get() else { return };
    let templates = templates(&folder);
    assert_eq!(templates.len(), 70);
    for path in templates {
        if let Err(error) = compile(&std::fs::read_to_string(&path).unwrap()) {
            panic!("{}: {error}", path.display());
        }
    }
}
