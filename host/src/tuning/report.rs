//! What a search found, as data and as a table.

use std::fmt;

use serde::Serialize;

use super::Tuning;
use super::search::{Finding, Verdict};
use crate::bench::Spread;

/// What `sparkinfer tune` answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The model.
    pub model: String,
    /// The device.
    pub device: String,
    /// Where the search began.
    pub before: Tuning,
    /// What it found.
    pub after: Tuning,
    /// Each choice.
    pub findings: Vec<Finding>,
    /// Decode rates with the one and with the other, measured in turns; none where nothing changed.
    pub rates: Vec<Rates>,
    /// The seconds that all of it took.
    pub seconds: f64,
}

/// Decode rates at a depth, in tokens a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rates {
    /// Tokens in the cache.
    pub depth: usize,
    /// As the search began.
    pub before: Spread,
    /// As found.
    pub after: Spread,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} | {}", self.model, self.device)?;
        writeln!(f, "\n{:<24} {:>7} {:>7}   ms", "choice", "before", "after")?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        if self.rates.is_empty() {
            return writeln!(f, "\nnothing is faster by more than the spread ({:.1} s)", self.seconds);
        }
        writeln!(f, "\n{:<9} {:>24} {:>24}", "depth", "before, tok/s", "after, tok/s")?;
        for Rates { depth, before, after } in &self.rates {
            let gain = 100.0 * (after.median / before.median - 1.0);
            writeln!(
                f,
                "{depth:<9} {:>24} {:>24}   {gain:+.1} %",
                before.to_string(),
                after.to_string()
            )?;
        }
        writeln!(f, "{:.1} s", self.seconds)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<24} {:>7} {:>7}   ", self.choice, self.before, self.after)?;
        match self.verdict {
            Verdict::NoMatter => return f.write_str("does not matter to this model"),
            Verdict::NoTime => return f.write_str("no time left"),
            Verdict::Wrong => f.write_str("a faster value gives other results; ")?,
            Verdict::Better | Verdict::Kept => {}
        }
        for (i, tried) in self.tried.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {:.4}", tried.value, tried.milliseconds)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::search::Tried;

    fn report(rates: Vec<Rates>) -> Report {
        let finding = |choice, verdict, tried| Finding {
            choice,
            before: 0,
            after: 24,
            verdict,
            tried,
        };
        let tried = [(0, 1.25), (24, 1.125)].map(|(value, milliseconds)| Tried { value, milliseconds });
        Report {
            model: "tiny (qwen3moe)".into(),
            device: "Some GPU".into(),
            before: Tuning::default(),
            after: Tuning::default(),
            findings: vec![
                finding("attention_splits", Verdict::Better, tried.to_vec()),
                finding("row_blocks", Verdict::NoMatter, vec![]),
            ],
            rates,
            seconds: 12.5,
        }
    }

    #[test]
    fn a_table_of_choices_and_one_of_rates() {
        let spread = |rate| Spread::of(vec![rate]).unwrap();
        let rates = Rates {
            depth: 4096,
            before: spread(700.0),
            after: spread(735.0),
        };
        let text = report(vec![rates]).to_string();
        assert!(
            text.contains("attention_splits               0      24   0: 1.2500, 24: 1.1250\n"),
            "{text}"
        );
        assert!(
            text.contains("does not matter to this model\n") && text.contains("+5.0 %\n"),
            "{text}"
        );
        let text = report(vec![]).to_string();
        assert!(
            text.ends_with("nothing is faster by more than the spread (12.5 s)\n"),
            "{text}"
        );
    }
}
