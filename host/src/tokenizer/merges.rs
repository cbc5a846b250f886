//! The list of merges.

use super::vocab::{Vocab, VocabData};

/// One usable merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge<'a> {
    /// Left part.
    pub(super) left: &'a str,
    /// Right part.
    pub(super) right: &'a str,
    /// Ids of the left part, the right part and their concatenation.
    pub(super) ids: (u32, u32, u32),
}

/// Parses `tokenizer.ggml.merges`, in order of rank.
///
/// The parts are separated by the first space that is not the line's first character. Merges
/// without two parts, and those whose parts or result are no tokens (a vocabulary may have been
/// cut short), can never apply and are left out.
pub(super) fn parse<'a>(data: &VocabData<'a>, vocab: &Vocab) -> Vec<Merge<'a>> {
    let mut joined = String::new();
    let usable = data.merges.iter().filter_map(|&line| {
        let (left, right) = split(line)?;
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let ids = (vocab.id(left)?, vocab.id(right)?, vocab.id(&joined)?);
        Some(Merge { left, right, ids })
    });
    usable.collect()
}

fn split(line: &str) -> Option<(&str, &str)> {
    let first = line.chars().next()?.len_utf8();
    let space = first + line[first..].find(' ')?;
    Some((&line[..space], &line[space + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_space_after_the_first_character_splits() {
        assert_eq!(split("a b"), Some(("a", "b")));
        assert_eq!(split("  b"), Some((" ", "b")));
        assert_eq!(split("é b c"), Some(("é", "b c")));
        assert_eq!(split("ab"), None);
        assert_eq!(split(" a"), None);
        assert_eq!(split(""), None);
    }

    #[test]
    fn merges_that_cannot_apply_are_left_out() {
        let data = VocabData {
            tokens: vec!["a", "b", "ab", "ba"],
            merges: vec!["a b", "a", "x y", "a a", "b ", "b a"],
            ..VocabData::default()
        };
        let merges = parse(&data, &Vocab::new(&data).unwrap());
        let ids: Vec<_> = merges.iter().map(|merge| merge.ids).collect();
        assert_eq!(ids, [(0, 1, 2), (1, 0, 3)]);
    }
}
