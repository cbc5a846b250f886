//! Pre-tokenisers: where a text is cut into words before bytes are merged.
//!
//! The published expressions end in `\s+(?!\S)|\s+`: a run of spaces before a word leaves its last
//! space to the word. Look-ahead needs a backtracking engine, which gives up on long runs. Here
//! the expressions have only the last `\s+`, run on `regex` (linear time, no failure), and the
//! match that the look-ahead would have shortened is shortened afterwards.

use regex::Regex;

/// Names of `tokenizer.ggml.pre` with the rules that they stand for.
const KINDS: &[(&[&str], Rules)] = &[
    (
        &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"],
        Rules::new(&[QWEN2]),
    ),
    (&["qwen35"], Rules::new(&[QWEN35])),
    (
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"],
        Rules {
            whole_words: true,
            add_bos: true,
            ..Rules::new(&[LLAMA3])
        },
    ),
    (
        &["gpt-2", "phi-2"],
        Rules {
            line_breaks: false,
            ..Rules::new(&[GPT2])
        },
    ),
    (
        &["smollm", "codeshell"],
        Rules {
            line_breaks: false,
            ..Rules::new(&[r"\p{N}", GPT2])
        },
    ),
];

/// ASCII case folding only, as llama.cpp does.
const LLAMA3: &str = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN35: &str = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";

/// What a `tokenizer.ggml.pre` name stands for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Expressions, each applied to the pieces that the one before has left.
    expressions: &'static [&'static str],
    /// Do line breaks have a rule of their own, so that no run of spaces ends in one?
    line_breaks: bool,
    /// Is a word that is a token taken whole, without looking at merges?
    pub(super) whole_words: bool,
    /// Is a beginning-of-sequence token added where the metadata does not say?
    pub(super) add_bos: bool,
}

impl Rules {
    const fn new(expressions: &'static [&'static str]) -> Self {
        Self {
            expressions,
            line_breaks: true,
            whole_words: false,
            add_bos: false,
        }
    }

    /// The rules of a `tokenizer.ggml.pre` name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let known = KINDS.iter().find(|(names, _)| names.contains(&name));
        known.map(|(_, rules)| *rules)
    }

    /// All known names, for error messages.
    pub(super) fn names() -> String {
        let names: Vec<_> = KINDS.iter().flat_map(|(names, _)| *names).copied().collect();
        names.join(", ")
    }
}

/// Cuts texts into words.
#[derive(Debug)]
pub(super) struct Words {
    stages: Vec<Regex>,
    line_breaks: bool,
}

impl Words {
    /// Compiles the expressions of some rules.
    pub(super) fn new(rules: Rules) -> Result<Self, Box<regex::Error>> {
        let stages = rules.expressions.iter().map(|text| Regex::new(text));
        Ok(Self {
            stages: stages.collect::<Result<_, _>>()?,
            line_breaks: rules.line_breaks,
        })
    }

    /// Calls `word` for each word; together they are the whole text.
    pub(super) fn each<E>(&self, text: &str, word: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.split(&self.stages, text, word)
    }

    fn split<E>(&self, stages: &[Regex], text: &str, word: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let Some((stage, later)) = stages.split_first() else {
            return word(text);
        };
        let mut at = 0;
        while let Some(found) = stage.find_at(text, at) {
            if at < found.start() {
                self.split(later, &text[at..found.start()], word)?;
            }
            at = self.end(text, found);
            self.split(later, &text[found.start()..at], word)?;
        }
        if at < text.len() {
            self.split(later, &text[at..], word)?;
        }
        Ok(())
    }

    /// Where a match really ends: a run of two or more spaces in front of something else leaves
    /// its last character to that.
    ///
    /// Only such runs end in white space; where line breaks have a rule of their own, words of
    /// that rule end in a line break, and runs of spaces do not.
    fn end(&self, text: &str, found: regex::Match<'_>) -> usize {
        let run = found.as_str();
        let last = run.chars().next_back().filter(|c| c.is_whitespace());
        let is_run = last.filter(|c| !(self.line_breaks && matches!(c, '\r' | '\n')));
        let len = is_run.map_or(0, char::len_utf8);
        if len < run.len() && found.end() < text.len() {
            found.end() - len
        } else {
            found.end()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        let words = Words::new(Rules::named(name).unwrap()).unwrap();
        words
            .each::<()>(text, &mut |word| {
                out.push(word.to_owned());
                Ok(())
            })
            .unwrap();
        out
    }

    #[test]
    fn runs_of_spaces_leave_one_to_the_word() {
        for name in ["qwen2", "qwen35", "llama-bpe", "gpt-2", "smollm"] {
            assert_eq!(words(name, "   x  "), ["  ", " x", "  "], "{name}");
        }
    }

    #[test]
    fn every_kind_of_space_counts() {
        let text = " \u{3000}\u{85}x";
        assert_eq!(words("qwen2", text), [" \u{3000}", "\u{85}x"]);
        assert_eq!(words("gpt-2", text), [" \u{3000}", "\u{85}", "x"]);
    }

    #[test]
    fn line_breaks() {
        assert_eq!(words("qwen2", "a \n\n  b"), ["a", " \n\n", " ", " b"]);
        assert_eq!(words("gpt-2", "a \n\nb"), ["a", " \n", "\n", "b"]);
        assert_eq!(words("qwen2", "?!\n\nb"), ["?!\n\n", "b"]);
        assert_eq!(words("gpt-2", "?!\n\nb"), ["?!", "\n", "\n", "b"]);
    }

    #[test]
    fn numbers() {
        assert_eq!(words("llama-bpe", "12345"), ["123", "45"]);
        assert_eq!(words("qwen2", "12 3"), ["1", "2", " ", "3"]);
        assert_eq!(words("gpt-2", "a 12345"), ["a", " 12345"]);
        // The digit ends the piece, so that the spaces before it are not in front of anything.
        assert_eq!(words("smollm", "a  12"), ["a", "  ", "1", "2"]);
    }

    #[test]
    fn contractions_fold_ascii_only() {
        assert_eq!(words("qwen2", "we'RE it'ſ"), ["we", "'RE", " it", "'ſ"]);
        assert_eq!(words("gpt-2", "we'RE"), ["we", "'", "RE"]);
    }

    #[test]
    fn marks_belong_to_words_in_qwen35() {
        assert_eq!(words("qwen2", "e\u{301}a"), ["e", "\u{301}a"]);
        assert_eq!(words("qwen35", "e\u{301}a"), ["e\u{301}a"]);
    }

    /// The published expressions, which the `tokenizers` crate runs with look-ahead.
    const PUBLISHED: &[(&str, &[&str])] = &[
        (
            "llama-bpe",
            &[
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ],
        ),
        (
            "qwen2",
            &[
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ],
        ),
        (
            "qwen35",
            &[
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ],
        ),
        ("gpt-2", &[PUBLISHED_GPT2]),
        ("smollm", &[r"\p{N}", PUBLISHED_GPT2]),
    ];
    const PUBLISHED_GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

    fn published(expressions: &[&str], text: &str) -> Vec<String> {
        use tokenizers::SplitDelimiterBehavior::Isolated;
        use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
        use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

        let mut cut = PreTokenizedString::from(text);
        for expression in expressions {
            let pattern = SplitPattern::Regex((*expression).to_owned());
            let split = Split::new(pattern, Isolated, false).unwrap();
            split.pre_tokenize(&mut cut).unwrap();
        }
        let words = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        words.into_iter().map(|(word, ..)| word.to_owned()).collect()
    }

    proptest::proptest! {
        #[test]
        fn words_are_those_of_the_published_expressions(
            text in "[^ſ]{0,20}|[ \r\n\ta1'sL!é\u{85}\u{a0}\u{301}²]{0,30}",
            kind in 0..PUBLISHED.len(),
        ) {
            let (name, expressions) = PUBLISHED[kind];
            let cut = words(name, &text);
            proptest::prop_assert_eq!(cut.concat(), &*text);
            if !text.is_empty() {
                proptest::prop_assert_eq!(cut, published(expressions, &text));
            }
        }
    }
}
