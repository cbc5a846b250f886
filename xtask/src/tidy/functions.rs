//! Finds the functions of a file, and its `.unwrap()` calls.
//!
//! Works on tokens, not on items: so functions inside macro definitions and macro calls (`proptest! { … }`, the
//! instances of a kernel) count like any other.

use super::files::SourceFile;
use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use std::iter::Peekable;

/// A comment line with these words just above a kernel (its attributes and documentation may stand between) allows
/// it 200 lines: for code without branches that would only be harder to read in pieces.
pub const STRAIGHT_LINE_MARKER: &str = "tidy: straight-line kernel";

/// A function with a body.
#[derive(Debug, Clone)]
pub struct Function {
    /// `path:line`.
    pub place: String,
    pub name: String,
    /// Lines from `fn` to the closing brace, without nested functions.
    pub lines: usize,
    /// Whether it only exists for tests.
    pub test: bool,
    /// Whether it is kernel code.
    pub device: bool,
    /// Whether the straight-line marker stands above it.
    pub straight_line: bool,
}

/// What a file holds.
#[derive(Default)]
pub struct Scan {
    pub functions: Vec<Function>,
    /// Lines with an `.unwrap()` outside tests.
    pub unwraps: Vec<usize>,
    /// Modules in files of their own that only tests have (`#[cfg(test)] mod name;`): their paths without `.rs`.
    pub test_modules: Vec<String>,
}

impl Scan {
    /// Takes everything in the file as test code.
    pub fn mark_as_test(&mut self) {
        self.functions.iter_mut().for_each(|function| function.test = true);
        self.unwraps.clear();
    }
}

/// Scans one Rust file.
pub fn scan(file: &SourceFile) -> Result<Scan> {
    let tokens: TokenStream = file.text.parse().map_err(|error| anyhow!("{error}"))?;
    let mut walk = Walk {
        file,
        source: file.text.lines().collect(),
        found: Scan::default(),
    };
    walk.stream(tokens, file.is_test());
    Ok(walk.found)
}

struct Walk<'a> {
    file: &'a SourceFile,
    source: Vec<&'a str>,
    found: Scan,
}

/// What is known about the item being read: reset where an item ends.
#[derive(Default)]
struct Item {
    test: bool,
    function: Option<(String, Span)>,
    module: Option<String>,
}

type Tokens = Peekable<proc_macro2::token_stream::IntoIter>;

impl Walk<'_> {
    /// Reads the tokens between two delimiters; returns the lines that functions in it took.
    fn stream(&mut self, stream: TokenStream, test: bool) -> usize {
        let mut tokens = stream.into_iter().peekable();
        let mut item = Item::default();
        let mut nested = 0;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => nested += self.group(&group, &mut item, test),
                TokenTree::Punct(punct) if punct.as_char() == ';' => self.end(std::mem::take(&mut item)),
                TokenTree::Punct(punct) if punct.as_char() == '#' => item.test |= is_test_attribute(tokens.peek()),
                TokenTree::Punct(punct) if punct.as_char() == '.' => self.unwrap_call(&mut tokens, test || item.test),
                TokenTree::Ident(ident) if ident == "fn" => {
                    item.function = name(&mut tokens).map(|name| (name, ident.span()))
                }
                TokenTree::Ident(ident) if ident == "mod" => item.module = name(&mut tokens),
                _ => {}
            }
        }
        nested
    }

    /// An item without a body ends.
    fn end(&mut self, item: Item) {
        if let (true, Some(module)) = (item.test, item.module) {
            self.found
                .test_modules
                .push(format!("{}/{module}", self.file.module_folder()));
        }
    }

    fn group(&mut self, group: &Group, item: &mut Item, test: bool) -> usize {
        let test = test || item.test;
        let inner = self.stream(group.stream(), test);
        if group.delimiter() != Delimiter::Brace {
            return inner;
        }
        match std::mem::take(item).function {
            Some((name, start)) => inner + self.function(name, start, group, inner, test),
            None => inner,
        }
    }

    /// Records a function; returns its own lines.
    fn function(&mut self, name: String, start: Span, body: &Group, nested: usize, test: bool) -> usize {
        let first = start.start().line;
        let lines = (body.span_close().end().line + 1 - first).saturating_sub(nested);
        self.found.functions.push(Function {
            place: format!("{}:{first}", self.file.path),
            name,
            lines,
            test,
            device: self.file.is_device(),
            straight_line: self.marked(first),
        });
        lines
    }

    /// Whether the marker stands in the comments and attributes above line `first`.
    fn marked(&self, first: usize) -> bool {
        let above = self.source[..first - 1].iter().rev().map(|line| line.trim());
        let mut heading = above.take_while(|line| line.starts_with("//") || line.starts_with("#["));
        heading.any(|line| line.starts_with("// ") && line.contains(STRAIGHT_LINE_MARKER))
    }

    fn unwrap_call(&mut self, tokens: &mut Tokens, test: bool) {
        let Some(TokenTree::Ident(ident)) = tokens.peek() else {
            return;
        };
        if ident == "unwrap" && !test {
            self.found.unwraps.push(ident.span().start().line);
        }
    }
}

/// The name after `fn`; none for function pointer types.
fn name(tokens: &mut Tokens) -> Option<String> {
    match tokens.peek() {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        Some(TokenTree::Punct(punct)) if punct.as_char() == '$' => Some("$name".to_owned()),
        _ => None,
    }
}

/// `#[test]`, `#[cfg(test)]` and forms like `#[cfg(all(test, …))]`.
fn is_test_attribute(attribute: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = attribute else {
        return false;
    };
    let text: String = group.stream().to_string().split_whitespace().collect();
    let config = text.strip_prefix("cfg(").is_some_and(|config| {
        let mut words = config.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| word == "test") && !config.contains("not(test")
    });
    text == "test" || config
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan_text(path: &str, text: &str) -> Scan {
        scan(&SourceFile {
            path: path.into(),
            text: text.into(),
        })
        .unwrap()
    }

    fn lengths(text: &str) -> Vec<(String, usize, bool)> {
        let found = scan_text("host/src/a.rs", text).functions;
        found
            .into_iter()
            .map(|function| (function.name, function.lines, function.test))
            .collect()
    }

    #[test]
    fn methods_and_free_functions() {
        let text = "fn a() {}\nimpl X {\n    pub fn b(\n        &self,\n    ) {\n        x();\n    }\n}\n";
        assert_eq!(lengths(text), [("a".into(), 1, false), ("b".into(), 5, false)]);
    }

    #[test]
    fn nested_functions_count_for_themselves() {
        let text = "fn outer() {\n    fn inner() {\n        x();\n    }\n    inner();\n}\n";
        assert_eq!(lengths(text), [("inner".into(), 3, false), ("outer".into(), 3, false)]);
    }

    #[test]
    fn pointers_and_declarations_are_no_functions() {
        assert_eq!(
            lengths("type F = fn(u32) -> u32;\ntrait T { fn declared(&self); }\nstruct S { f: fn() }"),
            []
        );
    }

    #[test]
    fn functions_in_macros_count() {
        let text = "macro_rules! m { ($name:ident) => {\n    fn $name() {\n    }\n} }";
        assert_eq!(lengths(text), [("$name".into(), 2, false)]);
    }

    #[test]
    fn tests_are_marked() {
        let text = "#[cfg(test)]\nmod tests {\n    fn helper() {}\n}\n#[test]\nfn t() {}\nfn real() {}\n#[cfg(not(test))]\nfn other() {}";
        let found = lengths(text)
            .into_iter()
            .map(|(name, _, test)| (name, test))
            .collect::<Vec<_>>();
        let expected = [("helper", true), ("t", true), ("real", false), ("other", false)];
        assert_eq!(found, expected.map(|(name, test)| (name.to_owned(), test)));
    }

    #[test]
    fn modules_of_tests_are_named_by_their_path() {
        let text = "#[cfg(test)]\nmod fixture;\nmod real;\n#[cfg(test)]\nmod tests { }";
        for path in ["host/src/a/mod.rs", "host/src/a.rs"] {
            assert_eq!(scan_text(path, text).test_modules, ["host/src/a/fixture"]);
        }
        assert_eq!(scan_text("host/src/lib.rs", text).test_modules, ["host/src/fixture"]);
    }

    #[test]
    fn unwraps_outside_tests_are_found() {
        let text = "fn a() { x.unwrap(); y.unwrap_or(1); }\n#[test]\nfn t() { x.unwrap(); }";
        assert_eq!(scan_text("host/src/a.rs", text).unwraps, [1]);
        assert_eq!(scan_text("host/tests/a.rs", text).unwraps, [] as [usize; 0]);
    }

    #[test]
    fn marker_needs_to_touch_the_function() {
        let marked = format!("// {STRAIGHT_LINE_MARKER}\n/// Doc.\n#[kernel]\npub fn k() {{}}\n\nfn plain() {{}}\n");
        let found = scan_text("device/src/a.rs", &marked).functions;
        assert_eq!(
            found.iter().map(|function| function.straight_line).collect::<Vec<_>>(),
            [true, false]
        );
        assert!(found.iter().all(|function| function.device));
    }
}
