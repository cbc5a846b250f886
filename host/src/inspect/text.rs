//! A report as text.

use super::{Report, Share, Tensor};
use crate::generate::stats::bytes;
use serde_json::Value as Json;
use std::fmt::{Display, Formatter, Result};

/// Longest string shown of a metadata value, in characters.
const SHOWN_CHARACTERS: usize = 72;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let parts = if self.files == 1 {
            String::new()
        } else {
            format!(" in {} files", self.files)
        };
        writeln!(
            f,
            "{}: GGUF version {}, {}{parts}",
            self.file,
            self.version,
            bytes(self.file_bytes)
        )?;
        writeln!(
            f,
            "{} parameters, {:.2} bits per weight",
            self.parameters, self.bits_per_weight
        )?;
        writeln!(f, "\nmodel")?;
        self.model.iter().try_for_each(|model| write!(f, "{model}"))?;
        self.gpu_memory.iter().try_for_each(|memory| write!(f, "{memory}"))?;
        self.problem
            .iter()
            .try_for_each(|problem| writeln!(f, "  cannot be run: {problem}"))?;
        writeln!(f, "\nmetadata")?;
        self.metadata
            .iter()
            .try_for_each(|(key, value)| writeln!(f, "  {key} = {}", shown(value)))?;
        writeln!(f, "\ntypes")?;
        self.mix.iter().try_for_each(|share| line_of_share(f, share))?;
        writeln!(f, "\ntensors")?;
        self.tensors.iter().try_for_each(|tensor| line_of_tensor(f, tensor))
    }
}

fn line_of_share(f: &mut Formatter<'_>, share: &Share) -> Result {
    let Share {
        ty,
        tensors,
        parameters,
        ..
    } = share;
    writeln!(
        f,
        "  {ty:<8} {tensors:>5} tensors {parameters:>14} parameters {:>10}",
        bytes(share.bytes)
    )
}

fn line_of_tensor(f: &mut Formatter<'_>, tensor: &Tensor) -> Result {
    let shape = tensor.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
    writeln!(
        f,
        "  {:<36} {:<8} {shape:<24} {:>10}",
        tensor.name,
        tensor.ty,
        bytes(tensor.bytes)
    )
}

/// A value on one line.
fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => shown_text(text),
        Json::Object(array) => {
            let first = array["first"].as_array().map_or(&[][..], Vec::as_slice);
            let first = first.iter().map(shown).collect::<Vec<_>>().join(", ");
            let length = &array["length"];
            format!("{} {length}: [{first}, …]", array["type"].as_str().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

fn shown_text(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_CHARACTERS).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_take_one_line() {
        assert_eq!(shown(&json!("a\nb")), r#""a\nb""#);
        assert_eq!(
            shown(&json!("x".repeat(100))),
            format!("\"{}\"…", "x".repeat(SHOWN_CHARACTERS))
        );
        assert_eq!(
            shown(&json!({"type": "i32", "length": 9, "first": [1, 2]})),
            "i32 9: [1, 2, …]"
        );
        assert_eq!(shown(&json!(1.5)), "1.5");
    }
}
