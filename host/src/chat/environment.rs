//! The world that a template runs in.

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use std::borrow::Cow;

use super::error::Raised;
use super::json;

/// Instructions that a run may take; each also stands for 64 bytes of data, so this bounds memory too (to 640 MB of
/// short-lived copies). A long conversation takes some ten thousand.
const FUEL: u64 = 10_000_000;

/// An environment with Hugging Face's settings.
pub(super) fn new() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("tojson", json::tojson);
    environment.add_function("raise_exception", raise_exception);
    Ok(environment)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let raised = Raised(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(raised))
}

/// Takes `{% generation %}` and `{% endgeneration %}` out: they mark what training learns from, and mean nothing here.
pub(super) fn without_training_marks(source: &str) -> String {
    let mut out = Cow::Borrowed(source);
    for name in ["generation", "endgeneration"] {
        for (open, close) in [("{%", "%}"), ("{%-", "-%}"), ("{%-", "%}"), ("{%", "-%}")] {
            let tag = format!("{open} {name} {close}");
            if out.contains(&tag) {
                // An empty comment trims as the tag did.
                let comment = format!("{}{}", open.replace('%', "#"), close.replace('%', "#"));
                out = Cow::Owned(out.replace(&tag, &comment));
            }
        }
    }
    out.into_owned()
}
