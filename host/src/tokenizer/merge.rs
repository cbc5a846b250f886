//! Merging neighbours, best pair first: what all byte-pair encodings share.
//!
//! A heap holds one candidate per neighbouring pair and a linked list holds the parts, so a text
//! of n characters takes O(n log n) however long its lines are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A part of a text: a character at first, then whatever it has been merged into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// First byte.
    pub(super) start: usize,
    /// Past the last byte; equal to `start` once the part has been merged into the one before.
    pub(super) end: usize,
    /// The token that the part is, if it is one.
    pub(super) id: Option<u32>,
}

/// Which neighbours may be merged.
pub(super) trait Joins {
    /// Order of merging: the greatest first, the leftmost of equals.
    type Priority: Ord;

    /// The merge of two neighbours: its priority and its token.
    fn join(&self, left: Part, right: Part) -> Option<(Self::Priority, u32)>;
}

/// Merges the characters of a text until no pair can be merged. `id` gives the token of a single
/// character.
pub(super) fn merge<J: Joins>(text: &str, joins: &J, id: impl Fn(&str) -> Option<u32>) -> Vec<Part> {
    let mut list = PartList::new(text, id);
    let mut heap = BinaryHeap::with_capacity(list.parts.len());
    for left in 0..list.parts.len() {
        heap.extend(list.candidate(left, joins));
    }
    while let Some((_, Reverse(left), join)) = heap.pop().map(Candidate::into_key) {
        if list.apply(left, join) {
            let before = list.links[left].0;
            heap.extend(before.and_then(|before| list.candidate(before, joins)));
            heap.extend(list.candidate(left, joins));
        }
    }
    list.parts.retain(|part| part.start < part.end);
    list.parts
}

/// A pair that may be merged, as it was when it was found.
struct Candidate<P> {
    priority: P,
    left: Reverse<usize>,
    join: Join,
}

/// What a merge makes: it is out of date once its parts reach elsewhere.
#[derive(Clone, Copy)]
struct Join {
    middle: usize,
    end: usize,
    id: u32,
}

impl<P> Candidate<P> {
    fn into_key(self) -> (P, Reverse<usize>, Join) {
        (self.priority, self.left, self.join)
    }
}

impl<P: Ord> Ord for Candidate<P> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_priority = self.priority.cmp(&other.priority);
        by_priority.then_with(|| self.left.cmp(&other.left))
    }
}

impl<P: Ord> PartialOrd for Candidate<P> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: Ord> PartialEq for Candidate<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<P: Ord> Eq for Candidate<P> {}

/// The parts of a text in order, with links over those that have been merged away.
struct PartList {
    parts: Vec<Part>,
    /// Part before and part after.
    links: Vec<(Option<usize>, Option<usize>)>,
}

impl PartList {
    fn new(text: &str, id: impl Fn(&str) -> Option<u32>) -> Self {
        let parts = text.char_indices().map(|(start, c)| {
            let end = start + c.len_utf8();
            let id = id(&text[start..end]);
            Part { start, end, id }
        });
        let parts: Vec<_> = parts.collect();
        let last = parts.len().saturating_sub(1);
        let links = (0..parts.len()).map(|i| (i.checked_sub(1), (i < last).then_some(i + 1)));
        Self {
            links: links.collect(),
            parts,
        }
    }

    /// The merge of a part with the one after it.
    fn candidate<J: Joins>(&self, left: usize, joins: &J) -> Option<Candidate<J::Priority>> {
        let right = self.parts[self.links[left].1?];
        let (priority, id) = joins.join(self.parts[left], right)?;
        let join = Join {
            middle: right.start,
            end: right.end,
            id,
        };
        Some(Candidate {
            priority,
            left: Reverse(left),
            join,
        })
    }

    /// Carries a merge out, unless it is out of date.
    fn apply(&mut self, left: usize, join: Join) -> bool {
        let Some(right) = self.links[left].1 else {
            return false;
        };
        let is_current = self.parts[left].end == join.middle && self.parts[right].end == join.end;
        if is_current {
            self.parts[left].end = join.end;
            self.parts[left].id = Some(join.id);
            self.parts[right].end = self.parts[right].start;
            let after = self.links[right].1;
            self.links[left].1 = after;
            if let Some(after) = after {
                self.links[after].0 = Some(left);
            }
        }
        is_current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges two letters if their join is in the list; the earliest in the list first.
    struct Listed<'a>(&'a str, Vec<String>);

    impl Joins for Listed<'_> {
        type Priority = Reverse<usize>;

        fn join(&self, left: Part, right: Part) -> Option<(Self::Priority, u32)> {
            let text = &self.0[left.start..right.end];
            let rank = self.1.iter().position(|known| known == text)?;
            Some((Reverse(rank), rank as u32))
        }
    }

    fn merged(text: &str, known: &[String]) -> Vec<String> {
        let parts = merge(text, &Listed(text, known.to_vec()), |_| None);
        let texts = parts.iter().map(|part| text[part.start..part.end].to_owned());
        texts.collect()
    }

    /// The definition, in O(n²): look for the best pair, merge it, start again.
    fn by_definition(text: &str, known: &[String]) -> Vec<String> {
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let pairs = parts.windows(2).enumerate();
            let ranked = pairs.filter_map(|(at, pair)| {
                let rank = known.iter().position(|known| *known == pair.concat())?;
                Some((rank, at))
            });
            let Some((_, at)) = ranked.min() else {
                return parts;
            };
            let right = parts.remove(at + 1);
            parts[at].push_str(&right);
        }
    }

    proptest::proptest! {
        #[test]
        fn equals_the_definition(
            known in proptest::collection::vec("[abé]{2,5}", 0..12),
            text in "[abé]{0,30}",
        ) {
            proptest::prop_assert_eq!(merged(&text, &known), by_definition(&text, &known));
        }
    }

    #[test]
    fn leftmost_of_equals() {
        assert_eq!(merged("aaa", &["aa".into()]), ["aa", "a"]);
        assert_eq!(merged("", &[]), Vec::<String>::new());
    }
}
