//! Chat templates: from messages to the text of a prompt.
//!
//! A GGUF file carries its template as a Jinja program written for Python's Jinja2. It is run by `minijinja` with the
//! settings that Hugging Face uses, and with Python's string methods, so that the text is the same to the byte.
//!
//! Templates are code from a stranger: each run has a budget of instructions and memory, recursion is bounded, and
//! nothing outside of the given values can be reached.

mod clock;
mod environment;
mod error;
mod json;

use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use sparkinfer_gguf::Gguf;
use std::time::SystemTime;

use crate::tokenizer::Tokenizer;

pub use error::{ChatError, Result};

/// The key of a model's template.
const KEY: &str = "tokenizer.chat_template";
/// The key of the template that some models have for conversations with tools.
const TOOL_KEY: &str = "tokenizer.chat_template.tool_use";
/// Name of the template in use, and of the one for tools.
const MAIN: &str = "chat template";
const TOOLS: &str = "chat template for tools";

/// The most common format, for files without a template of their own.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\
                      {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// One message of a conversation: `role`, `content`, and whatever else its template knows (`tool_calls`,
/// `reasoning_content`, …).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Message(pub Map<String, serde_json::Value>);

impl Message {
    /// A message of plain text.
    pub fn new(role: &str, content: &str) -> Self {
        let entries = [("role", role), ("content", content)];
        Self(
            entries
                .map(|(key, value)| (key.to_owned(), value.into()))
                .into_iter()
                .collect(),
        )
    }
}

/// What a template is given besides the messages.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Descriptions of the tools that the model may call, as JSON.
    pub tools: Vec<serde_json::Value>,
    /// End with the beginning of the assistant's answer.
    pub add_generation_prompt: bool,
    /// Let the model think first, if it can.
    pub enable_thinking: bool,
    /// More values, for templates that know them.
    pub extra: Map<String, serde_json::Value>,
    /// The time that templates see (in UTC).
    pub now: SystemTime,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            add_generation_prompt: true,
            enable_thinking: true,
            extra: Map::new(),
            now: SystemTime::now(),
        }
    }
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    is_fallback: bool,
}

impl ChatTemplate {
    /// The template of a GGUF file; ChatML if the file has none.
    ///
    /// # Errors
    /// If the template is not valid Jinja; the message names file, key and line.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self> {
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).unwrap_or_default();
        let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
        let source = gguf.metadata().str(KEY)?;
        let mut template = Self::compile(source.unwrap_or(CHATML), bos, eos)
            .map_err(|error| gguf.metadata().error(KEY, error::syntax(&error)))?;
        template.is_fallback = source.is_none();
        if let Some(tools) = gguf.metadata().str(TOOL_KEY)? {
            template
                .add(TOOLS, tools)
                .map_err(|error| gguf.metadata().error(TOOL_KEY, error::syntax(&error)))?;
        }
        Ok(template)
    }

    /// A template from its source, with the texts that it is to use for the beginning and the end of a sequence.
    ///
    /// # Errors
    /// If the source is not valid Jinja.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self> {
        Self::compile(source, bos, eos).map_err(|error| ChatError::Syntax(error::syntax(&error)))
    }

    fn compile(source: &str, bos: &str, eos: &str) -> std::result::Result<Self, minijinja::Error> {
        let mut template = Self {
            environment: environment::new()?,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            is_fallback: false,
        };
        template.add(MAIN, source)?;
        Ok(template)
    }

    fn add(&mut self, name: &'static str, source: &str) -> std::result::Result<(), minijinja::Error> {
        let source = environment::without_training_marks(source);
        self.environment.add_template_owned(name, source)
    }

    /// Is this ChatML, because the file has no template?
    pub fn is_fallback(&self) -> bool {
        self.is_fallback
    }

    /// The prompt of a conversation. Turn it into ids with [`Tokenizer::encode_chat`].
    ///
    /// # Errors
    /// If the template refuses the conversation, fails, or goes over its budget.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        let with_tools = (!options.tools.is_empty()).then_some(TOOLS);
        let template = with_tools
            .and_then(|name| self.environment.get_template(name).ok())
            .map_or_else(|| self.environment.get_template(MAIN), Ok);
        let text = template.and_then(|template| template.render(self.context(messages, options)));
        text.map_err(|error| error::render(&error))
    }

    fn context(&self, messages: &[Message], options: &RenderOptions) -> Value {
        let mut values = vec![
            ("messages", Value::from(Serde(messages))),
            ("bos_token", self.bos.as_str().into()),
            ("eos_token", self.eos.as_str().into()),
            ("enable_thinking", options.enable_thinking.into()),
            ("strftime_now", clock::function(options.now)),
        ];
        if !options.tools.is_empty() {
            values.push(("tools", Value::from(Serde(&options.tools))));
        }
        if options.add_generation_prompt {
            values.push(("add_generation_prompt", true.into()));
        }
        let given = values.into_iter().map(|(key, value)| (key.to_owned(), value));
        let extra = options.extra.iter();
        let extra = extra.map(|(key, value)| (key.clone(), Value::from(Serde(value))));
        Value::from_pairs(given.chain(extra))
    }
}

#[cfg(test)]
mod tests;
