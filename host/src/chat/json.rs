//! The filter `tojson`, as Hugging Face defines it: Python's `json.dumps` without escapes for HTML or for letters.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};
use std::io::{self, Write};

/// Bytes of data that one unit of a template's budget stands for.
const BYTES_PER_FUEL: usize = 64;
/// Deepest indentation that a template may ask for.
const MAX_INDENT: usize = 64;

/// `value | tojson(indent, ensure_ascii, separators, sort_keys)`
pub(super) fn tojson(state: &State, value: Value, indent: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let style = Style::new(indent, &options)?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let mut json = serde_json::to_value(&value).map_err(|error| failed(&error))?;
    if sort_keys == Some(true) {
        json.sort_all_objects();
    }
    let mut out = Vec::new();
    json.serialize(&mut Serializer::with_formatter(&mut out, style))
        .map_err(|error| failed(&error))?;
    state.consume_fuel((out.len() / BYTES_PER_FUEL) as u64)?;
    let text = String::from_utf8(out).map_err(|error| failed(&error))?;
    Ok(Value::from_safe_string(text))
}

fn failed(error: &dyn std::error::Error) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {error}"))
}

/// How Python writes JSON.
struct Style {
    indent: Option<usize>,
    item_separator: String,
    key_separator: String,
    ensure_ascii: bool,
    depth: usize,
    is_empty: bool,
}

impl Style {
    fn new(indent: Option<Value>, options: &Kwargs) -> Result<Self, Error> {
        let indent = match indent {
            Some(indent) => Some(indent),
            None => options.get::<Option<Value>>("indent")?,
        };
        let indent = indent.filter(|indent| !matches!(indent.kind(), ValueKind::None | ValueKind::Undefined));
        let indent = indent.map(usize::try_from).transpose()?;
        let separators: Option<Vec<String>> = options.get("separators")?;
        let default = if indent.is_some() { "," } else { ", " };
        let (item_separator, key_separator) = match separators.as_deref() {
            Some([item, key]) => (item.clone(), key.clone()),
            _ => (default.to_owned(), ": ".to_owned()),
        };
        Ok(Self {
            indent: indent.map(|indent| indent.min(MAX_INDENT)),
            item_separator,
            key_separator,
            ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
            depth: 0,
            is_empty: true,
        })
    }

    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.is_empty = true;
        out.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if !self.is_empty {
            self.new_line(out)?;
        }
        self.is_empty = false;
        out.write_all(bracket)
    }

    fn item<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(self.item_separator.as_bytes())?;
        }
        self.is_empty = false;
        self.new_line(out)
    }

    fn new_line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        let Some(indent) = self.indent else {
            return Ok(());
        };
        write!(out, "\n{:width$}", "", width = indent * self.depth)
    }
}

impl Formatter for Style {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.key_separator.as_bytes())
    }

    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        out.write_all(python_float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        if !self.ensure_ascii {
            return out.write_all(text.as_bytes());
        }
        let mut units = [0; 2];
        for c in text.chars() {
            match c {
                ' '..='~' => write!(out, "{c}")?,
                _ => c
                    .encode_utf16(&mut units)
                    .iter()
                    .try_for_each(|unit| write!(out, "\\u{unit:04x}"))?,
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, out: &mut W, escape: CharEscape) -> io::Result<()> {
        match escape {
            CharEscape::Quote => out.write_all(b"\\\""),
            CharEscape::ReverseSolidus | CharEscape::Solidus => out.write_all(b"\\\\"),
            CharEscape::Backspace => out.write_all(b"\\b"),
            CharEscape::FormFeed => out.write_all(b"\\f"),
            CharEscape::LineFeed => out.write_all(b"\\n"),
            CharEscape::CarriageReturn => out.write_all(b"\\r"),
            CharEscape::Tab => out.write_all(b"\\t"),
            CharEscape::AsciiControl(byte) => write!(out, "\\u{byte:04x}"),
        }
    }
}

/// A float as Python writes it: digits as few as needed, an exponent of two digits at least from 1e16 on and below
/// 1e-4.
fn python_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_writes_them() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.5, "-0.5"),
            (100.0, "100.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
        ] {
            assert_eq!(python_float(value), text);
        }
    }

    fn render(template: &str) -> String {
        let mut environment = minijinja::Environment::new();
        environment.add_filter("tojson", tojson);
        environment.render_str(template, ()).unwrap()
    }

    #[test]
    fn json_as_python_writes_it() {
        assert_eq!(
            render(r#"{{ {"b": [1, 2.0, "<é'\n\"\\>"], "a": {}, "c": []} | tojson }}"#),
            r#"{"b": [1, 2.0, "<é'\n\"\\>"], "a": {}, "c": []}"#
        );
        assert_eq!(
            render("{{ [1, {'b': true, 'a': none}] | tojson(indent=2) }}"),
            "[\n  1,\n  {\n    \"b\": true,\n    \"a\": null\n  }\n]"
        );
        assert_eq!(
            render("{{ {'b': 1, 'a': 'é🦀'} | tojson(ensure_ascii=true, sort_keys=true, separators=[',', ':']) }}"),
            r#"{"a":"\u00e9\ud83e\udd80","b":1}"#
        );
    }
}
