//! A report as people read it.

use std::fmt::{Display, Formatter, Result};

use super::{AtDepth, Comparison, Report, Verdict, Writing};

const HEADINGS: [&str; 10] = [
    "base ‖ candidate",
    "KL mean",
    "± error",
    "median",
    "p99",
    "max",
    "top 1",
    "top 5",
    "rms Δp",
    "perplexity, ln ratio ± error",
];

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let found = &self.found;
        let (windows, positions) = found.ours.first().map_or((0, 0), |ours| (ours.windows, ours.positions));
        let (title, text, window) = (&self.model.title, &self.text, self.window);
        writeln!(
            f,
            "{title}, {text}: {windows} windows of {window} tokens, {positions} positions scored"
        )?;
        for (name, description) in &found.parties {
            writeln!(f, "  {name}: {description}")?;
        }
        if let Some(kind) = &self.kv_type {
            writeln!(f, "  ours with a cache of type {kind}")?;
        }
        if let Some(peer) = &self.peer {
            writeln!(f, "  llama.cpp: {}, {}", peer.build, peer.arguments)?;
        }
        let pairs = found.ours.iter().chain(&found.references);
        let pairs = pairs
            .chain(&found.peer)
            .chain(&found.from_peer)
            .chain(&found.peer_floor);
        table(
            f,
            pairs
                .map(|pair| row(&format!("{} ‖ {}", pair.base, pair.candidate), pair))
                .collect(),
        )?;
        if let Some(excess) = &found.over_peer {
            writeln!(
                f,
                "\nKL mean of ours over llama.cpp's: {:.2e} ± {:.1e}",
                excess.value, excess.error
            )?;
        }
        depths(f, "the same engine, from its way of reading prompts", &found.ways)?;
        depths(f, "behind a filled cache, from the first reference", &found.depths)?;
        found.writing.iter().try_for_each(|writing| writing.fmt(f))?;
        self.verdict.iter().try_for_each(|verdict| verdict.fmt(f))
    }
}

fn row(name: &str, pair: &Comparison) -> [String; 10] {
    let kl = &pair.kl;
    let small = |value: f64| format!("{value:.2e}");
    let part = |value: f64| format!("{:.2} %", 100.0 * value);
    let [base, candidate] = pair.perplexity;
    let ratio = &pair.log_perplexity_ratio;
    [
        name.to_owned(),
        small(kl.mean.value),
        small(kl.mean.error),
        small(kl.median),
        small(kl.p99),
        small(kl.max),
        part(pair.top1.value),
        part(pair.top5.value),
        small(pair.rms_delta_p),
        format!("{base:.4} → {candidate:.4}, {:.1e} ± {:.1e}", ratio.value, ratio.error),
    ]
}

/// Columns as wide as they need; the first begins on the left, the others end on the right.
fn table(f: &mut Formatter<'_>, rows: Vec<[String; 10]>) -> Result {
    let rows: Vec<[String; 10]> = [HEADINGS.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    writeln!(f)?;
    for row in &rows {
        write!(f, "{:<1$}", row[0], width(0))?;
        for (column, cell) in row.iter().enumerate().skip(1) {
            write!(f, "  {cell:>0$}", width(column))?;
        }
        writeln!(f)?;
    }
    Ok(())
}

fn depths(f: &mut Formatter<'_>, title: &str, rows: &[AtDepth]) -> Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title}")?;
    for AtDepth { depth, comparison } in rows {
        let (candidate, kl, count) = (&comparison.candidate, &comparison.kl, comparison.positions);
        let same = (comparison.top1.value * count as f64).round();
        writeln!(
            f,
            "  depth {depth}, {candidate}: KL mean {:.2e}, max {:.2e}, the same best token at {same} of {count}",
            kl.mean.value, kl.max
        )?;
    }
    Ok(())
}

impl Display for Writing {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self {
            prompts,
            tokens,
            before_difference,
            identical,
        } = self;
        writeln!(
            f,
            "\nfree writing: {before_difference} of {tokens} tokens before the first difference, {identical} of \
             {prompts} texts identical"
        )
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "\ngate: {}", if self.passed { "passed" } else { "FAILED" })?;
        for rule in &self.rules {
            let mark = if rule.kept { "ok" } else { "NO" };
            let measured = rule.measured.map_or("not measured".to_owned(), number);
            writeln!(f, "  {mark}  {}: {measured}, limit {}", rule.name, number(rule.limit))?;
        }
        Ok(())
    }
}

/// Small numbers with an exponent, others as they are.
fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-2 {
        format!("{value:.3e}")
    } else {
        format!("{}", (value * 1e4).round() / 1e4)
    }
}
