//! The file that llama.cpp's `llama-perplexity --kl-divergence-base FILE` writes: its predictions for a text.
//!
//! All numbers are little-endian:
//! ```text
//! "_logits_"  u32 window length n  u32 vocabulary V  u32 windows W  W·n × i32 tokens
//! for each window, for each position n/2 … n−2:
//!     f32 step  f32 least  V (made even) × u16 level        ln p = step · level + least
//! ```
//! Levels reach 16 below the best logit, so a step is at most 16/65535; at that step, a level of 0 only says that a
//! token is no likelier. [`rounded`] puts a distribution through the format, so that the part of a divergence that is the
//! file's own can be told: steps s leave about s²/24.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::distribution::Distribution;
use super::{AccuracyError, Result};
use crate::engine::{self, EngineError};

const MAGIC: &[u8; 8] = b"_logits_";
/// How far below the best logit levels reach.
const REACH: f32 = 16.0;
const LEVELS: f32 = 65535.0;
/// Magic and three numbers.
const HEADER_BYTES: u64 = 8 + 3 * 4;

/// An open file.
#[derive(Debug)]
pub struct BaseFile {
    path: PathBuf,
    reader: BufReader<File>,
    window: usize,
    vocab_size: usize,
    tokens: Vec<u32>,
}

impl BaseFile {
    /// Opens a file and reads its tokens.
    ///
    /// # Errors
    /// A file that cannot be read, is not of this format, or does not have the size that its header says.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| problem(path, error))?;
        let bytes = file.metadata().map_err(|error| problem(path, error))?.len();
        let mut reader = BufReader::new(file);
        let (window, vocab_size, windows) = header(&mut reader, bytes).map_err(|what| problem(path, what))?;
        let mut tokens = vec![0u32; windows * window];
        reader
            .read_exact(bytemuck::cast_slice_mut(&mut tokens))
            .map_err(|error| problem(path, error))?;
        tokens.iter_mut().for_each(|token| *token = u32::from_le(*token));
        Ok(Self {
            path: path.to_owned(),
            reader,
            window,
            vocab_size,
            tokens,
        })
    }

    /// Tokens of a window.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Tokens of the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The tokens of all windows, one behind the other.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The predictions for the second half of window `index`.
    ///
    /// # Errors
    /// A window that is not there, a file that cannot be read, or values in it that are no numbers.
    pub fn distributions(&mut self, index: usize) -> Result<Vec<Distribution>> {
        let (count, record) = (scored(self.window), record_bytes(self.vocab_size));
        let first = HEADER_BYTES + 4 * self.tokens.len() as u64 + (index * count * record) as u64;
        let mut bytes = vec![0; record];
        self.reader
            .seek(SeekFrom::Start(first))
            .map_err(|error| problem(&self.path, error))?;
        (0..count)
            .map(|_| {
                self.reader
                    .read_exact(&mut bytes)
                    .map_err(|error| problem(&self.path, error))?;
                decode(&bytes, self.vocab_size).map_err(|error| problem(&self.path, error))
            })
            .collect()
    }
}

fn problem(path: &Path, what: impl std::fmt::Display) -> AccuracyError {
    AccuracyError::File {
        path: path.display().to_string(),
        problem: what.to_string(),
    }
}

/// Positions of a window that have predictions in the file.
fn scored(window: usize) -> usize {
    window - 1 - window / 2
}

fn record_bytes(vocab_size: usize) -> usize {
    8 + 2 * vocab_size.next_multiple_of(2)
}

/// Window length, vocabulary and number of windows, which fit the file's size.
fn header(reader: &mut impl Read, bytes: u64) -> std::result::Result<(usize, usize, usize), String> {
    let mut start = [0; HEADER_BYTES as usize];
    let not_one = "not a file of llama-perplexity --kl-divergence-base";
    reader.read_exact(&mut start).map_err(|_| not_one)?;
    if start[..8] != MAGIC[..] {
        return Err(not_one.to_owned());
    }
    let number = |i: usize| u32::from_le_bytes([start[i], start[i + 1], start[i + 2], start[i + 3]]);
    let [window, vocab_size, windows] = [8, 12, 16].map(number);
    if window < 4 || vocab_size == 0 || windows == 0 {
        return Err(format!(
            "{windows} windows of {window} tokens with a vocabulary of {vocab_size}"
        ));
    }
    let records = u128::from(windows) * scored(window as usize) as u128;
    let expected = u128::from(HEADER_BYTES)
        + 4 * u128::from(windows) * u128::from(window)
        + records * record_bytes(vocab_size as usize) as u128;
    if expected != u128::from(bytes) {
        return Err(format!(
            "{windows} windows of {window} tokens with a vocabulary of {vocab_size} need {expected} bytes, it has \
             {bytes}: its writer did not end well"
        ));
    }
    Ok((window as usize, vocab_size as usize, windows as usize))
}

fn decode(record: &[u8], vocab_size: usize) -> engine::Result<Distribution> {
    let float = |i: usize| f32::from_le_bytes([record[i], record[i + 1], record[i + 2], record[i + 3]]);
    let (step, least) = (float(0), float(4));
    if step < 0.0 {
        return Err(EngineError::Invalid(format!("a step is {step}: the file is damaged")));
    }
    // Rounding may have taken a little from the widest step.
    let clamped = step >= REACH / LEVELS * (1.0 - 1e-6);
    let log_probability = |level: &[u8]| match u16::from_le_bytes([level[0], level[1]]) {
        0 if clamped => f32::NEG_INFINITY,
        level => step * f32::from(level) + least,
    };
    let levels = record[8..].chunks_exact(2).take(vocab_size);
    let log_probabilities: Vec<f32> = levels.map(log_probability).collect();
    let sum: f64 = log_probabilities.iter().map(|&log_p| f64::from(log_p).exp()).sum();
    // What is beyond the reach may be missing; rounding adds a thousandth at most.
    if !(0.5..=1.01).contains(&sum) {
        let problem = format!("the probabilities behind a token add up to {sum:.3}, not 1: the file is damaged");
        return Err(EngineError::Invalid(problem));
    }
    Distribution::bounded(log_probabilities, least)
}

fn encode(distribution: &Distribution) -> Vec<u8> {
    let logits = distribution.logits();
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let least = logits.iter().copied().fold(f32::INFINITY, f32::min).max(most - REACH);
    let step = (most - least) / LEVELS;
    let mut record = Vec::with_capacity(record_bytes(logits.len()));
    record.extend(step.to_le_bytes());
    record.extend(((f64::from(least) - distribution.log_sum()) as f32).to_le_bytes());
    for &logit in logits {
        let level = if step > 0.0 {
            ((logit - least) / step).round_ties_even()
        } else {
            0.0
        };
        record.extend((level.clamp(0.0, LEVELS) as u16).to_le_bytes());
    }
    record.resize(record_bytes(logits.len()), 0);
    record
}

/// What a reader of the file would take a distribution for.
///
/// # Errors
/// None for a distribution.
pub fn rounded(distribution: &Distribution) -> engine::Result<Distribution> {
    decode(&encode(distribution), distribution.logits().len())
}

/// The bytes of a file of these windows' tokens and predictions.
#[cfg(test)]
pub(super) fn write(window: usize, tokens: &[u32], predictions: &[Distribution]) -> Vec<u8> {
    let vocab_size = predictions[0].logits().len();
    let mut bytes = MAGIC.to_vec();
    for number in [window, vocab_size, tokens.len() / window] {
        bytes.extend((number as u32).to_le_bytes());
    }
    bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
    bytes.extend(predictions.iter().flat_map(encode));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distribution(seed: u32, vocab_size: u32) -> Distribution {
        let logits: Vec<f32> = (0..vocab_size)
            .map(|i| ((i * 37 + seed * 11) % 100) as f32 / 4.0)
            .collect();
        Distribution::new(&logits).unwrap()
    }

    fn file(bytes: &[u8]) -> (tempfile::TempDir, Result<BaseFile>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("base");
        std::fs::write(&path, bytes).unwrap();
        let opened = BaseFile::open(&path);
        (folder, opened)
    }

    #[test]
    fn windows_come_back_in_any_order() {
        let predictions: Vec<Distribution> = (0..4).map(|seed| distribution(seed, 7)).collect();
        let tokens = [1, 2, 3, 4, 5, 6, 7, 0, 1, 2];
        let (_folder, opened) = file(&write(5, &tokens, &predictions));
        let mut base = opened.unwrap();
        assert_eq!((base.window(), base.vocab_size(), base.tokens()), (5, 7, &tokens[..]));
        for window in [1, 0] {
            let found = base.distributions(window).unwrap();
            assert_eq!(found.len(), 2);
            for (found, expected) in found.iter().zip(&predictions[2 * window..]) {
                assert_eq!(found, &rounded(expected).unwrap());
                assert!(expected.compare(found, 0).unwrap().kl < 1e-6);
            }
        }
        assert!(base.distributions(2).is_err());
    }

    /// Steps of 16/65535 leave a divergence of about 2.5e-9, wherever the tokens lie that are beyond their reach.
    #[test]
    fn rounding_costs_little_and_clamps() {
        let logits: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.7).sin() * 4.0).collect();
        let fine = Distribution::new(&logits).unwrap();
        assert!(fine.compare(&rounded(&fine).unwrap(), 0).unwrap().kl < 1e-8);
        let steep: Vec<f32> = (0..1000).map(|i| -0.1 * i as f32).collect();
        let steep = Distribution::new(&steep).unwrap();
        let found = rounded(&steep).unwrap();
        let gap = found.log_probability(0).unwrap() - found.log_probability(999).unwrap();
        assert!((gap - 16.0).abs() < 1e-3, "{gap}");
        let kl = steep.compare(&found, 0).unwrap().kl;
        assert!((1e-10..1e-8).contains(&kl), "{kl}");
        let flat = Distribution::new(&[2.0; 9]).unwrap();
        assert!(flat.compare(&rounded(&flat).unwrap(), 0).unwrap().kl < 1e-12);
    }

    #[test]
    fn other_files_are_refused() {
        let good = write(5, &[0; 5], &[distribution(0, 6), distribution(1, 6)]);
        let refused = |bytes: &[u8], part: &str| {
            let text = file(bytes).1.unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        };
        refused(b"GGUF", "not a file of");
        refused(&[b"_LOGITS_", &good[8..]].concat(), "not a file of");
        refused(&good[..good.len() - 1], "did not end well");
        let mut endless = good.clone();
        endless[12..20].fill(0xff);
        refused(&endless, "did not end well");
        let mut short = good;
        short[8] = 3;
        refused(&short, "windows of 3 tokens");
    }

    #[test]
    fn probabilities_that_are_none_are_refused() {
        let good = write(5, &[0; 5], &[distribution(0, 6), distribution(1, 6)]);
        let first = HEADER_BYTES as usize + 4 * 5;
        for (step, least, part) in [
            (-1.0f32, 0.0f32, "a step is -1"),
            (1e-4, 50.0, "add up to"),
            (1e-4, -500.0, "add up to"),
            (f32::NAN, 0.0, "NaN"),
            (1e-4, f32::INFINITY, "add up to inf"),
        ] {
            let mut bad = good.clone();
            bad[first..first + 4].copy_from_slice(&step.to_le_bytes());
            bad[first + 4..first + 8].copy_from_slice(&least.to_le_bytes());
            let (_folder, opened) = file(&bad);
            let error = opened.unwrap().distributions(0).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
