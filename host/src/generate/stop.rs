//! Stop strings, found in text that arrives in pieces.

/// Watches a stream of text for stop strings, which may lie across any number of pieces.
///
/// Text that could be the beginning of a stop string is held back until it is known not to be. The first stop string
/// to be complete ends the text; where one piece completes several, the one that begins first does.
#[derive(Debug, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    matched: bool,
}

impl StopMatcher {
    /// A matcher for `stops`; empty strings among them are ignored.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self {
            stops,
            held: String::new(),
            matched: false,
        }
    }

    /// Takes the next piece; returns the text that is now certain to come before any stop string.
    pub fn push(&mut self, piece: &str) -> String {
        if self.matched {
            return String::new();
        }
        self.held.push_str(piece);
        let first = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        self.matched = first.is_some();
        let end = first.unwrap_or_else(|| self.held.len() - self.undecided());
        let rest = self.held.split_off(end);
        std::mem::replace(&mut self.held, rest)
    }

    /// Whether a stop string was found; nothing more comes out then.
    pub fn matched(&self) -> bool {
        self.matched
    }

    /// The end of the stream: what was held back, unless a stop string was found.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        if self.matched { String::new() } else { rest }
    }

    /// Length in bytes of the longest end of the held text that begins a stop string.
    fn undecided(&self) -> usize {
        let ends = self.held.char_indices().map(|(start, _)| &self.held[start..]);
        let mut open = ends.filter(|end| self.stops.iter().any(|stop| stop.starts_with(end)));
        open.next().map_or(0, str::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that comes out piece by piece, the rest at the end, and whether it stopped.
    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, String, bool) {
        let mut matcher = StopMatcher::new(stops.iter().map(|stop| stop.to_string()));
        let out = pieces.iter().map(|piece| matcher.push(piece)).collect();
        let matched = matcher.matched();
        (out, matcher.finish(), matched)
    }

    #[test]
    fn without_stops_everything_passes() {
        assert_eq!(
            run(&[], &["ab", "c"]),
            (vec!["ab".into(), "c".into()], String::new(), false)
        );
        assert_eq!(run(&[""], &["ab"]), (vec!["ab".into()], String::new(), false));
    }

    #[test]
    fn a_stop_across_pieces_is_cut_off() {
        let (out, rest, matched) = run(&["</end>"], &["text<", "/e", "nd> more", "ignored"]);
        assert_eq!(out, ["text", "", "", ""]);
        assert_eq!((rest.as_str(), matched), ("", true));
    }

    #[test]
    fn a_false_beginning_is_given_back() {
        let (out, rest, matched) = run(&["\n\nUser"], &["a\n", "\nUs", "e it"]);
        assert_eq!(out, ["a", "", "\n\nUse it"]);
        assert_eq!((rest.as_str(), matched), ("", false));
    }

    #[test]
    fn an_open_beginning_is_given_back_at_the_end() {
        assert_eq!(run(&["abc"], &["xab"]), (vec!["x".into()], "ab".into(), false));
    }

    #[test]
    fn overlapping_beginnings_are_tried_again() {
        assert_eq!(run(&["aab"], &["a", "a", "a", "b"]).0, ["", "", "a", ""]);
    }

    #[test]
    fn the_stop_that_begins_first_wins() {
        assert_eq!(run(&["cd", "bcde"], &["abcdef"]).0, ["a"]);
    }

    #[test]
    fn characters_are_never_split() {
        let (out, rest, _) = run(&["é!"], &["caf", "é", "è"]);
        assert_eq!((out.concat() + &rest).as_str(), "caféè");
    }
}
