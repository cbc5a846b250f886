//! The report as text: what was measured on, and a table for each kind of figure.

use std::fmt::{self, Write};

use super::{DecodeRow, GpuState, ProfileAt, PromptFacts, PromptKind, Report};
use crate::generate::stats::bytes;
use crate::profile::StageProfile;

/// The stage that reads the cache, whose bytes are added to those of its weights.
const CACHE_READER: &str = "attention";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} | {}", self.model.title, self.device)?;
        for gpu in &self.machine.gpus {
            writeln!(f, "{gpu}")?;
        }
        if let Some(bandwidth) = self.read_bandwidth {
            let weights = self
                .decode
                .iter()
                .find_map(|row| row.limit)
                .map_or(0, |limit| limit.weight_bytes);
            let weights = bytes(weights);
            writeln!(
                f,
                "memory read at {:.1} GB/s; {weights} of weights a token",
                bandwidth / 1e9
            )?;
        }
        if let Some(peer) = &self.peer {
            writeln!(
                f,
                "peer: {} {}, {}, {}",
                peer.name, peer.build, peer.device, peer.arguments
            )?;
        }
        self.prompts
            .iter()
            .try_for_each(|prompt| self.decode_table(f, prompt))?;
        self.prompt_table(f)?;
        self.together_table(f)?;
        self.profiles
            .iter()
            .try_for_each(|profile| self.profile_table(f, profile))
    }
}

impl fmt::Display for GpuState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([clock, most], [memory, most_memory]) = (&self.clock_mhz, &self.memory_clock_mhz);
        write!(
            f,
            "{}, driver {}, {clock} of {most} MHz, memory {memory} of {most_memory} MHz, {} W",
            self.name, self.driver, self.power_limit_w
        )
    }
}

impl Report {
    fn peer_name(&self) -> &str {
        self.peer.as_ref().map_or("peer", |peer| &peer.name)
    }

    fn decode_table(&self, f: &mut fmt::Formatter<'_>, prompt: &PromptFacts) -> fmt::Result {
        let rows: Vec<&DecodeRow> = self.decode_behind(prompt.kind).collect();
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\ndecode of {} tokens behind {}, tokens a second:",
            self.tokens, prompt.description
        )?;
        if let (PromptKind::Real, Some(run)) = (prompt.kind, self.peer.as_ref().and_then(|peer| peer.behind_text)) {
            writeln!(f, "({}: {run})", self.peer_name())?;
        }
        let mut table = Table::new(["depth", "sparkinfer"]);
        if self.peer.is_some() {
            table.head([self.peer_name(), "ratio"]);
        }
        if self.read_bandwidth.is_some() {
            table.head(["limit", "of limit", "streaming ms", "other ms"]);
        }
        rows.into_iter().for_each(|row| table.row(decode_cells(row)));
        table.fmt(f)
    }

    fn prompt_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prompt.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nprompt, tokens a second:")?;
        let mut table = Table::new(["tokens", "sparkinfer"]);
        if self.peer.is_some() {
            table.head([self.peer_name(), "ratio"]);
        }
        for row in &self.prompt {
            let mut cells = vec![row.tokens.to_string(), row.ours.to_string()];
            if let Some(peer) = &row.peer {
                cells.extend([peer.to_string(), format!("{:.2}", row.ours.median / peer.median)]);
            }
            table.row(cells);
        }
        table.fmt(f)
    }

    fn together_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.together.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nseveral sequences together, tokens a second of all:")?;
        let mut table = Table::new(["sequences", "sparkinfer"]);
        if self.peer.is_some() {
            table.head([self.peer_name(), "ratio"]);
        }
        for row in &self.together {
            let mut cells = vec![row.sequences.to_string(), row.ours.to_string()];
            if let Some(peer) = &row.peer {
                cells.extend([peer.to_string(), format!("{:.2}", row.ours.median / peer.median)]);
            }
            table.row(cells);
        }
        table.fmt(f)
    }

    fn profile_table(&self, f: &mut fmt::Formatter<'_>, at: &ProfileAt) -> fmt::Result {
        let profile = &at.profile;
        match at.sequences {
            1 => writeln!(f, "\na step at depth {}, µs:", at.depth)?,
            several => writeln!(f, "\na step of {several} sequences at depth {}, µs:", at.depth)?,
        }
        let mut table = Table::new(["stage", "launches", "alone", "share", "MB", "GB/s alone"]);
        if self.read_bandwidth.is_some() {
            table.head(["of memory"]);
        }
        for stage in &profile.stages {
            table.row(stage_cells(stage, at.kv_bytes, self.read_bandwidth));
        }
        let total = |name: &str, alone: f64, share: f64| {
            [
                name.to_owned(),
                profile.launches.to_string(),
                microseconds(alone),
                microseconds(share),
            ]
            .to_vec()
        };
        table.row(total("sum", profile.sum_alone(), profile.sum_of_shares()));
        table.row(total("whole step", profile.whole_seconds, profile.whole_seconds));
        table.fmt(f)
    }
}

fn decode_cells(row: &DecodeRow) -> Vec<String> {
    let mut cells = vec![row.depth.to_string(), row.ours.to_string()];
    if let (Some(peer), Some(ratio)) = (&row.peer, row.ratio()) {
        cells.extend([peer.to_string(), format!("{ratio:.2}")]);
    }
    if let (Some(limit), Some(share), Some(other)) = (row.limit, row.share_of_limit(), row.other_ms()) {
        cells.extend([
            format!("{:.0}", limit.tokens_per_second),
            format!("{:.0}%", 1e2 * share),
            format!("{:.3}", limit.streaming_ms),
            format!("{other:.3}"),
        ]);
    }
    cells
}

fn stage_cells(stage: &StageProfile, kv_bytes: u64, bandwidth: Option<f64>) -> Vec<String> {
    let cache = if stage.name == CACHE_READER { kv_bytes } else { 0 };
    let read = (stage.weight_bytes + cache) as f64;
    let rate = read / stage.alone_seconds;
    let mut cells = vec![
        stage.name.clone(),
        stage.launches.to_string(),
        microseconds(stage.alone_seconds),
        microseconds(stage.share_seconds),
        format!("{:.2}", read / 1e6),
        format!("{:.0}", rate / 1e9),
    ];
    cells.extend(bandwidth.map(|bandwidth| format!("{:.0}%", 1e2 * rate / bandwidth)));
    cells
}

fn microseconds(seconds: f64) -> String {
    format!("{:.1}", 1e6 * seconds)
}

/// Rows of cells, the first column to the left and the others to the right.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new<const N: usize>(head: [&str; N]) -> Self {
        Self(vec![head.map(str::to_owned).to_vec()])
    }

    /// More columns.
    fn head<const N: usize>(&mut self, names: [&str; N]) {
        self.0[0].extend(names.map(str::to_owned));
    }

    fn row(&mut self, cells: Vec<String>) {
        self.0.push(cells);
    }

    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.0.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> = (0..columns)
            .map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0))
            .collect();
        for row in &self.0 {
            let mut line = String::new();
            for (i, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if i == 0 {
                    write!(line, "{cell:<width$}")?;
                } else {
                    write!(line, "  {cell:>width$}")?;
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
