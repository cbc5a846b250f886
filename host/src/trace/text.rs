//! The comparison as text.

use std::fmt;

use super::{Difference, TraceDiff};

impl fmt::Display for TraceDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = &self.engines;
        writeln!(f, "a: {a}\nb: {b}\n")?;
        let width = self.points.iter().map(|found| found.point.len()).max().unwrap_or(0);
        for found in &self.points {
            let mark = if found.relative > self.tolerance {
                "  beyond"
            } else {
                ""
            };
            let Difference {
                point, token, relative, ..
            } = found;
            writeln!(f, "{point:width$}  {relative:9.2e}  token {token}{mark}")?;
        }
        match &self.first {
            None => writeln!(f, "\nno difference beyond {} in {} tokens", self.tolerance, self.tokens),
            Some(first) => write!(f, "\nfirst difference beyond {}: {first}", self.tolerance),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.values;
        writeln!(
            f,
            "{}, token {}: {:.2e}; furthest apart is element {}, {a} and {b}",
            self.point, self.token, self.relative, self.element
        )
    }
}
