//! Special tokens in a text: where they stand, before anything else is split.

use aho_corasick::{AhoCorasick, MatchKind};

use super::error::Result;
use super::vocab::{Vocab, VocabData};

/// A piece of a text: either a special token, or text for the model to encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    /// A special token's id.
    Token(u32),
    /// Text between special tokens; never empty.
    Text(&'t str),
}

/// Finds the texts of all special tokens at once.
#[derive(Debug)]
pub(super) struct SpecialTokens {
    automaton: AhoCorasick,
    /// Per pattern of the automaton: the token's id, and whether only `parse_special` matches it.
    patterns: Vec<(u32, bool)>,
}

impl SpecialTokens {
    /// Collects the control, unknown and user-defined tokens.
    pub(super) fn new(data: &VocabData<'_>, vocab: &Vocab) -> Result<Self> {
        let special = || vocab.iter().filter(|(_, _, kind)| kind.is_special());
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(special().map(|(_, text, _)| text))
            .map_err(|error| data.error("tokens", format!("too many special tokens: {error}")))?;
        Ok(Self {
            automaton,
            patterns: special().map(|(id, _, kind)| (id, kind.is_hidden())).collect(),
        })
    }

    /// Cuts a text at its special tokens.
    ///
    /// Longer tokens win over shorter ones wherever they overlap, then tokens with a lower id,
    /// then those further left. Control and unknown tokens count only if `parse_special` is set.
    pub(super) fn split<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Fragment<'t>> {
        let mut fragments = Vec::new();
        let mut done = 0;
        for (start, end, id) in self.accepted(text, parse_special) {
            if done < start {
                fragments.push(Fragment::Text(&text[done..start]));
            }
            fragments.push(Fragment::Token(id));
            done = end;
        }
        if done < text.len() {
            fragments.push(Fragment::Text(&text[done..]));
        }
        fragments
    }

    /// The matches that survive, in the order of the text.
    fn accepted(&self, text: &str, parse_special: bool) -> Vec<(usize, usize, u32)> {
        let mut found: Vec<_> = self.candidates(text, parse_special).collect();
        if found.len() > 1 {
            found.sort_unstable_by_key(|&(start, end, id)| (usize::MAX - (end - start), id, start));
            // No match is longer than those before it, so one that overlaps an earlier one has
            // its first or its last byte inside of it.
            let mut taken = vec![false; text.len()];
            found.retain(|&(start, end, _)| {
                let free = !taken[start] && !taken[end - 1];
                if free {
                    taken[start..end].fill(true);
                }
                free
            });
            found.sort_unstable();
        }
        found
    }

    fn candidates(&self, text: &str, all: bool) -> impl Iterator<Item = (usize, usize, u32)> {
        let matches = self.automaton.find_overlapping_iter(text);
        matches.filter_map(move |found| {
            let (id, hidden) = self.patterns[found.pattern().as_usize()];
            (all || !hidden).then(|| (found.start(), found.end(), id))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn special(tokens: &[(&str, i32)]) -> SpecialTokens {
        let data = VocabData {
            tokens: tokens.iter().map(|token| token.0).collect(),
            types: Some(tokens.iter().map(|token| token.1).collect()),
            ..VocabData::default()
        };
        SpecialTokens::new(&data, &Vocab::new(&data).unwrap()).unwrap()
    }

    use Fragment::{Text, Token};

    #[test]
    fn control_tokens_only_on_request() {
        let special = special(&[("plain", 1), ("<c>", 3), ("<u>", 4)]);
        assert_eq!(special.split("a<c>plain<u>", false), [Text("a<c>plain"), Token(2)]);
        assert_eq!(
            special.split("<c>plain<u>b", true),
            [Token(1), Text("plain"), Token(2), Text("b")]
        );
        assert_eq!(special.split("", true), []);
    }

    #[test]
    fn longest_wins_then_leftmost() {
        let special = special(&[("ab", 4), ("bcd", 4), ("aa", 4), ("aaaa", 4)]);
        assert_eq!(special.split("abcd", true), [Text("a"), Token(1)]);
        assert_eq!(special.split("aaaaaaa", true), [Token(3), Token(2), Text("a")]);
    }

    /// The rule as it is usually written: one token after the other, longest first, each over
    /// what text is left.
    fn one_by_one<'t>(tokens: &[&str], text: &'t str) -> Vec<Fragment<'t>> {
        let mut order: Vec<usize> = (0..tokens.len()).collect();
        order.sort_by_key(|&id| std::cmp::Reverse(tokens[id].len()));
        let mut fragments = vec![Text(text)];
        for id in order {
            fragments = fragments.iter().flat_map(|&f| cut(f, tokens[id], id as u32)).collect();
        }
        fragments.retain(|fragment| *fragment != Text(""));
        fragments
    }

    fn cut<'t>(fragment: Fragment<'t>, token: &str, id: u32) -> Vec<Fragment<'t>> {
        let Text(text) = fragment else {
            return vec![fragment];
        };
        let pieces: Vec<_> = text.split(token).map(Text).collect();
        let mut out = vec![pieces[0]];
        for piece in &pieces[1..] {
            out.extend([Token(id), *piece]);
        }
        out
    }

    proptest::proptest! {
        #[test]
        fn equals_the_rule_applied_token_by_token(
            tokens in proptest::collection::btree_set("[ab]{1,4}", 1..6),
            text in "[abc]{0,40}",
        ) {
            let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
            let typed: Vec<_> = tokens.iter().map(|token| (*token, 4)).collect();
            proptest::prop_assert_eq!(
                special(&typed).split(&text, false),
                one_by_one(&tokens, &text)
            );
        }
    }
}
