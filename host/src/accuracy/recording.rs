//! A reference's answers in a file, so that what takes it long is computed once, on any machine.
//!
//! All numbers are little-endian:
//! ```text
//! "sparkref"  u32 answers (0 until all are written)  u32 bytes of the header  header: JSON
//! for each answer:  SHA-256 of the question  u32 words  words × u32
//! ```
//! A question is the tokens themselves with what is asked about them, so an answer can only be found by who asks for the
//! same positions behind the same text. Predictions are the logits in f32, vocabulary by vocabulary; a text is its tokens.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::distribution::Distribution;
use super::source::Reference;
use super::{AccuracyError, Result};
use crate::bench::ModelFacts;
use crate::engine;

const MAGIC: &[u8; 8] = b"sparkref";
/// Where the number of answers stands.
const COUNT_AT: u64 = MAGIC.len() as u64;
/// Magic and two numbers.
const START_BYTES: u64 = COUNT_AT + 8;
/// No header is longer.
const MOST_HEADER: u32 = 1 << 20;
/// Before an answer's words.
const QUESTION_BYTES: u64 = 32 + 4;

/// What is asked, as its SHA-256.
type Question = [u8; 32];

fn question(what: &str, tokens: &[u32], number: usize) -> Question {
    let mut hash = Sha256::new();
    hash.update(what);
    hash.update((number as u64).to_le_bytes());
    tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
    hash.finalize().into()
}

/// The predictions behind each of `tokens` from number `from` on.
fn predictions_question(tokens: &[u32], from: usize) -> Question {
    question("predictions", tokens, from)
}

/// The text of `count` tokens behind a prompt.
fn text_question(prompt: &[u32], count: usize) -> Question {
    question("text", prompt, count)
}

/// Whose answers they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    model: ModelFacts,
    vocab_size: usize,
    reference: String,
    description: String,
}

fn problem(path: &Path, what: impl std::fmt::Display) -> AccuracyError {
    AccuracyError::File {
        path: path.display().to_string(),
        problem: what.to_string(),
    }
}

/// Writes a file.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    writer: BufWriter<File>,
    answers: u32,
}

impl Recorder {
    /// Begins a file with the answers of `reference` for a model.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(path: &Path, model: &ModelFacts, vocab_size: usize, reference: &dyn Reference) -> Result<Self> {
        let header = Header {
            model: model.clone(),
            vocab_size,
            reference: reference.name().to_owned(),
            description: reference.description(),
        };
        let header = serde_json::to_vec(&header).map_err(|error| problem(path, error))?;
        let file = File::create(path).map_err(|error| problem(path, error))?;
        let mut recorder = Self {
            path: path.to_owned(),
            writer: BufWriter::new(file),
            answers: 0,
        };
        let lengths = [0, header.len() as u32].map(u32::to_le_bytes);
        recorder.put(&[MAGIC, &lengths[0], &lengths[1], &header])?;
        Ok(recorder)
    }

    /// Asks for predictions and writes them.
    ///
    /// # Errors
    /// The reference's own, or a file that cannot be written.
    pub fn predictions(&mut self, reference: &mut dyn Reference, tokens: &[u32], from: usize) -> Result<()> {
        let found = reference.predictions(tokens, from)?;
        let logits = found.iter().flat_map(Distribution::logits);
        let words: Vec<u32> = logits.map(|logit| logit.to_bits()).collect();
        self.answer(&predictions_question(tokens, from), &words)
    }

    /// Asks for a text and writes it.
    ///
    /// # Errors
    /// The reference's own, or a file that cannot be written.
    pub fn writes(&mut self, reference: &mut dyn Reference, prompt: &[u32], count: usize) -> Result<()> {
        let written = reference.writes(prompt, count)?;
        self.answer(&text_question(prompt, count), &written)
    }

    /// Ends the file and gives its bytes. A file without this end is refused by [`Recording::open`].
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(mut self) -> Result<u64> {
        let ended = self.end();
        ended.map_err(|error| problem(&self.path, error))
    }

    fn end(&mut self) -> std::io::Result<u64> {
        let bytes = self.writer.stream_position()?;
        self.writer.seek(SeekFrom::Start(COUNT_AT))?;
        self.writer.write_all(&self.answers.to_le_bytes())?;
        self.writer.flush()?;
        Ok(bytes)
    }

    fn answer(&mut self, question: &Question, words: &[u32]) -> Result<()> {
        let count = u32::try_from(words.len()).map_err(|_| problem(&self.path, "too many predictions at once"))?;
        self.put(&[question, &count.to_le_bytes()])?;
        for word in words {
            self.put(&[&word.to_le_bytes()])?;
        }
        self.answers += 1;
        Ok(())
    }

    fn put(&mut self, parts: &[&[u8]]) -> Result<()> {
        let mut parts = parts.iter();
        let written = parts.try_for_each(|part| self.writer.write_all(part));
        written.map_err(|error| problem(&self.path, error))
    }
}

/// A file that is read.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    reader: BufReader<File>,
    header: Header,
    /// Where the words of each answer begin, and how many they are.
    answers: HashMap<Question, (u64, u32)>,
}

impl Recording {
    /// Opens a file.
    ///
    /// # Errors
    /// A file that cannot be read, is not of this format, or does not have the size that its numbers say.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| problem(path, error))?;
        let bytes = file.metadata().map_err(|error| problem(path, error))?.len();
        let mut reader = BufReader::new(file);
        let (count, header) = start(&mut reader).map_err(|what| problem(path, what))?;
        let answers = answers(&mut reader, count, bytes).map_err(|what| problem(path, what))?;
        Ok(Self {
            path: path.to_owned(),
            reader,
            header,
            answers,
        })
    }

    /// Whether these are answers of the model `model` with `vocab_size` tokens. Names are no part of a model; SHA-256s
    /// are compared where both sides have them.
    ///
    /// # Errors
    /// They are another's.
    pub fn check(&self, model: &ModelFacts, vocab_size: usize) -> Result<()> {
        let (ours, theirs) = (
            (&model.title, model.file_bytes, vocab_size),
            (
                &self.header.model.title,
                self.header.model.file_bytes,
                self.header.vocab_size,
            ),
        );
        let what = if ours != theirs {
            let of = |(title, bytes, vocab): (&String, u64, usize)| format!("{title}, {bytes} bytes, {vocab} tokens");
            format!("is for another model: {}, and this is {}", of(theirs), of(ours))
        } else if different(&model.sha256, &self.header.model.sha256) {
            "is for another file: name and size are this model's, the SHA-256 is not".to_owned()
        } else {
            return Ok(());
        };
        Err(problem(&self.path, what))
    }

    fn words(&mut self, question: &Question, asked: impl FnOnce() -> String) -> Result<Vec<u32>> {
        let &(first, count) = self.answers.get(question).ok_or_else(|| {
            let what = format!("has no {}: record it with the same text and options", asked());
            problem(&self.path, what)
        })?;
        let read = read_words(&mut self.reader, first, count);
        read.map_err(|error| problem(&self.path, error))
    }
}

fn different<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if a != b)
}

impl Reference for Recording {
    fn name(&self) -> &str {
        &self.header.reference
    }

    fn description(&self) -> String {
        format!("recorded: {}", self.header.description)
    }

    fn predictions(&mut self, tokens: &[u32], from: usize) -> Result<Vec<Distribution>> {
        let (scored, vocab_size) = (tokens.len() - from, self.header.vocab_size);
        let asked = || format!("predictions for these {scored} tokens behind {from}");
        let words = self.words(&predictions_question(tokens, from), asked)?;
        if Some(words.len()) != scored.checked_mul(vocab_size) {
            let what = format!(
                "has {} numbers for {scored} predictions of {vocab_size}: it is damaged",
                words.len()
            );
            return Err(problem(&self.path, what));
        }
        let logits: Vec<f32> = words.into_iter().map(f32::from_bits).collect();
        let found = logits.chunks_exact(vocab_size).map(Distribution::new);
        let found = found.collect::<engine::Result<_>>();
        found.map_err(|error| problem(&self.path, format!("{error}: it is damaged")))
    }

    fn writes(&mut self, prompt: &[u32], count: usize) -> Result<Vec<u32>> {
        let asked = || format!("text of {count} tokens behind these {}", prompt.len());
        self.words(&text_question(prompt, count), asked)
    }
}

/// The number of answers, and whose they are.
fn start(reader: &mut impl Read) -> std::result::Result<(u32, Header), String> {
    let mut start = [0; START_BYTES as usize];
    let not_one = "not a file of accuracy --record";
    reader.read_exact(&mut start).map_err(|_| not_one)?;
    if start[..8] != MAGIC[..] {
        return Err(not_one.to_owned());
    }
    let number = |i: usize| u32::from_le_bytes([start[i], start[i + 1], start[i + 2], start[i + 3]]);
    let (count, bytes) = (number(8), number(12));
    if count == 0 {
        return Err("its writer did not end well".to_owned());
    }
    if bytes > MOST_HEADER {
        return Err(format!("a header of {bytes} bytes: it is damaged"));
    }
    let mut header = vec![0; bytes as usize];
    reader.read_exact(&mut header).map_err(|_| "ends in its header")?;
    let header: Header = serde_json::from_slice(&header).map_err(|error| format!("its header: {error}"))?;
    if header.vocab_size == 0 {
        return Err("its header: a vocabulary of no tokens".to_owned());
    }
    Ok((count, header))
}

/// Where the answers are in a file of `bytes` bytes.
fn answers(
    reader: &mut BufReader<File>,
    count: u32,
    bytes: u64,
) -> std::result::Result<HashMap<Question, (u64, u32)>, String> {
    let mut found = HashMap::new();
    let mut at = reader.stream_position().map_err(|error| error.to_string())?;
    for index in 0..count {
        let short = |_| format!("ends before answer {} of {count}: it is not whole", index + 1);
        let (mut question, mut words) = ([0; 32], [0; 4]);
        reader.read_exact(&mut question).map_err(short)?;
        reader.read_exact(&mut words).map_err(short)?;
        let words = u32::from_le_bytes(words);
        found.insert(question, (at + QUESTION_BYTES, words));
        at += QUESTION_BYTES + 4 * u64::from(words);
        if at > bytes {
            return Err(format!("ends in answer {} of {count}: it is not whole", index + 1));
        }
        let skip = reader.seek_relative(4 * i64::from(words));
        skip.map_err(|error| error.to_string())?;
    }
    if at != bytes {
        return Err(format!("has {} bytes behind its last answer", bytes - at));
    }
    Ok(found)
}

/// Words that are known to be in the file.
fn read_words(reader: &mut BufReader<File>, first: u64, count: u32) -> std::io::Result<Vec<u32>> {
    let mut words = vec![0u32; count as usize];
    reader.seek(SeekFrom::Start(first))?;
    reader.read_exact(bytemuck::cast_slice_mut(&mut words))?;
    words.iter_mut().for_each(|word| *word = u32::from_le(*word));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Predicts from the tokens alone.
    struct Oracle;

    impl Reference for Oracle {
        fn name(&self) -> &str {
            "oracle"
        }

        fn description(&self) -> String {
            "knows everything".to_owned()
        }

        fn predictions(&mut self, tokens: &[u32], from: usize) -> Result<Vec<Distribution>> {
            let logits = |token: &u32| [*token as f32, from as f32, -0.5].map(|x| x / 3.0);
            let found = tokens[from..].iter().map(|token| Distribution::new(&logits(token)));
            Ok(found.collect::<engine::Result<_>>()?)
        }

        fn writes(&mut self, prompt: &[u32], count: usize) -> Result<Vec<u32>> {
            Ok(vec![prompt[0]; count])
        }
    }

    fn facts() -> ModelFacts {
        ModelFacts {
            title: "a model".to_owned(),
            file: "a.gguf".to_owned(),
            file_bytes: 1000,
            sha256: Some(vec!["ab".to_owned()]),
        }
    }

    fn recorded(folder: &tempfile::TempDir) -> PathBuf {
        let path = folder.path().join("reference");
        let mut recorder = Recorder::create(&path, &facts(), 3, &Oracle).unwrap();
        recorder.predictions(&mut Oracle, &[1, 2, 3, 4], 2).unwrap();
        recorder.writes(&mut Oracle, &[7, 8], 5).unwrap();
        recorder.predictions(&mut Oracle, &[5, 6], 0).unwrap();
        let bytes = recorder.finish().unwrap();
        assert_eq!(bytes, std::fs::metadata(&path).unwrap().len());
        path
    }

    #[test]
    fn answers_come_back_bit_by_bit_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = Recording::open(&recorded(&folder)).unwrap();
        assert_eq!(
            (file.name(), file.description().as_str()),
            ("oracle", "recorded: knows everything")
        );
        for (tokens, from) in [(&[5, 6][..], 0), (&[1, 2, 3, 4], 2)] {
            let expected = Oracle.predictions(tokens, from).unwrap();
            assert_eq!(file.predictions(tokens, from).unwrap(), expected);
        }
        assert_eq!(file.writes(&[7, 8], 5).unwrap(), [7; 5]);
    }

    #[test]
    fn other_questions_have_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = Recording::open(&recorded(&folder)).unwrap();
        for (tokens, from) in [(&[1, 2, 3, 5][..], 2), (&[1, 2, 3, 4], 1), (&[2, 2, 3, 4], 2), (&[], 0)] {
            let error = file.predictions(tokens, from).unwrap_err().to_string();
            assert!(error.contains("has no predictions for these"), "{error}");
        }
        let error = file.writes(&[7, 8], 4).unwrap_err().to_string();
        assert!(
            error.contains("has no text of 4 tokens") && error.contains("reference"),
            "{error}"
        );
    }

    #[test]
    fn another_model_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = Recording::open(&recorded(&folder)).unwrap();
        let renamed = ModelFacts {
            file: "b.gguf".to_owned(),
            sha256: None,
            ..facts()
        };
        file.check(&renamed, 3).unwrap();
        file.check(&facts(), 3).unwrap();
        let larger = ModelFacts {
            file_bytes: 1001,
            ..facts()
        };
        let other = ModelFacts {
            sha256: Some(vec!["cd".to_owned()]),
            ..facts()
        };
        for (model, vocab_size, part) in [
            (&larger, 3, "1001 bytes"),
            (&facts(), 4, "4 tokens"),
            (&other, 3, "SHA-256"),
        ] {
            let error = file.check(model, vocab_size).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = recorded(&folder);
        let good = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8], part: &str| {
            std::fs::write(&path, bytes).unwrap();
            let error = Recording::open(&path).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        };
        for len in 0..good.len() {
            refused(&good[..len], "");
        }
        refused(&good[..good.len() - 1], "ends in answer 3 of 3");
        refused(&[&good[..], b"x"].concat(), "1 bytes behind");
        refused(&[b"GGUFGGUF", &good[8..]].concat(), "not a file of");
        let patched = |at: usize, word: u32| {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            bytes
        };
        refused(&patched(8, 0), "did not end well");
        refused(&patched(8, u32::MAX), "ends before answer 4");
        refused(&patched(12, u32::MAX), "it is damaged");
        refused(&patched(12, 3), "its header");
        let first_answer = START_BYTES as usize + u32::from_le_bytes(good[12..16].try_into().unwrap()) as usize;
        refused(&patched(first_answer + 32, u32::MAX), "ends in answer 1");
        refused(&patched(good.len() - 6 * 4 - 4, 5), "4 bytes behind");
        // Numbers that are none are found when they are asked for.
        std::fs::write(&path, patched(good.len() - 4, f32::NAN.to_bits())).unwrap();
        let error = Recording::open(&path).unwrap().predictions(&[5, 6], 0).unwrap_err();
        assert!(error.to_string().contains("it is damaged"), "{error}");
    }
}
