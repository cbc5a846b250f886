//! Letting all parties predict, and comparing.

use super::base_file::rounded;
use super::distribution::{Distribution, Point};
use super::recording::Recorder;
use super::source::{Predictor, Recorded, Reference, Way};
use super::summary::{Comparison, Estimate};
use super::{AtDepth, Found, Options, Result, Text, Writing};
use crate::engine::EngineError;

/// Who takes part.
pub struct Parties<'e> {
    /// Those measured by; the first is the main one.
    pub references: Vec<Box<dyn Reference + 'e>>,
    /// What is measured.
    pub ours: Predictor<'e>,
    /// The same in other configurations, which are measured at depth only.
    pub variants: Vec<Predictor<'e>>,
    /// llama.cpp.
    pub peer: Option<Recorded>,
}

/// Points of a pair of parties, by window.
#[derive(Default)]
struct Pair {
    windows: Vec<Vec<Point>>,
}

impl Pair {
    fn add(&mut self, base: &[Distribution], candidate: &[Distribution], predicted: &[u32]) -> Result<()> {
        self.windows.push(points(base, candidate, predicted)?);
        Ok(())
    }
}

fn points(base: &[Distribution], candidate: &[Distribution], predicted: &[u32]) -> Result<Vec<Point>> {
    if base.len() != predicted.len() || candidate.len() != predicted.len() {
        let counts = format!(
            "{} and {} predictions of {} tokens",
            base.len(),
            candidate.len(),
            predicted.len()
        );
        return Err(EngineError::Invalid(counts).into());
    }
    let pairs = base.iter().zip(candidate).zip(predicted);
    let compared = pairs.map(|((base, candidate), &next)| base.compare(candidate, next));
    Ok(compared.collect::<crate::engine::Result<_>>()?)
}

/// Measures. Engines have room for [`Options::context`] tokens; `note` is told what is being measured.
///
/// # Errors
/// No reference or no window, a text too short for a depth, or a party's own.
pub fn measure(parties: &mut Parties<'_>, text: &Text, options: &Options, note: &mut dyn FnMut(&str)) -> Result<Found> {
    if parties.references.is_empty() || text.windows.is_empty() {
        return Err(EngineError::Invalid("nothing to measure by: a reference and a window are needed".into()).into());
    }
    let mut found = over_windows(parties, text, note)?;
    let (reference, ours) = (parties.references[0].as_mut(), &mut parties.ours);
    for &depth in &options.way_depths {
        note(&format!("prompt against decoding at depth {depth}"));
        found.ways.push(ways_at(ours, text, depth, options.tokens_at_depth)?);
    }
    for &depth in &options.depths {
        note(&format!("depth {depth}"));
        let stretch = Stretch::new(text, depth, options.tokens_at_depth)?;
        let base = reference.predictions(&stretch.tokens, depth)?;
        for candidate in std::iter::once(&mut *ours).chain(&mut parties.variants) {
            let predictions = candidate.predictions(&stretch.tokens, depth)?;
            let comparison = stretch.compare(reference.name(), &base, &candidate.name, &predictions)?;
            found.depths.push(AtDepth { depth, comparison });
        }
    }
    if options.prompts > 0 && options.written > 0 {
        note("free writing");
        found.writing = Some(writing(reference, ours, text, options)?);
    }
    Ok(found)
}

/// Writes to `recorder` what `reference` answers to everything that [`measure`] asks its first reference.
///
/// # Errors
/// No window, a text too short for a depth, the reference's own, or a file that cannot be written.
pub fn record(
    reference: &mut dyn Reference,
    text: &Text,
    options: &Options,
    recorder: &mut Recorder,
    note: &mut dyn FnMut(&str),
) -> Result<()> {
    for (index, window) in text.windows.iter().enumerate() {
        note(&window_of(index, text));
        recorder.predictions(reference, &window.input(), window.first_scored())?;
    }
    for &depth in &options.depths {
        note(&format!("depth {depth}"));
        let stretch = Stretch::new(text, depth, options.tokens_at_depth)?;
        recorder.predictions(reference, &stretch.tokens, depth)?;
    }
    if options.written > 0 {
        for prompt in prompts(text, options) {
            recorder.writes(reference, &prompt, options.written)?;
        }
    }
    Ok(())
}

fn window_of(index: usize, text: &Text) -> String {
    format!("window {} of {}", index + 1, text.windows.len())
}

/// The prompts behind which engines write by themselves.
fn prompts(text: &Text, options: &Options) -> impl Iterator<Item = Vec<u32>> {
    let windows = text.windows.iter().take(options.prompts);
    windows.map(|window| window.input()[..window.first_scored()].to_vec())
}

/// All pairs over all windows.
struct Pairs {
    ours: Vec<Pair>,
    references: Vec<Pair>,
    peer: Pair,
    from_peer: Pair,
    floor: Pair,
}

fn over_windows(parties: &mut Parties<'_>, text: &Text, note: &mut dyn FnMut(&str)) -> Result<Found> {
    let count = parties.references.len();
    let mut pairs = Pairs {
        ours: (0..count).map(|_| Pair::default()).collect(),
        references: (1..count).map(|_| Pair::default()).collect(),
        peer: Pair::default(),
        from_peer: Pair::default(),
        floor: Pair::default(),
    };
    for index in 0..text.windows.len() {
        note(&window_of(index, text));
        pairs.add_window(parties, text, index)?;
    }
    Ok(pairs.found(parties, text.windows[0].first_scored()))
}

impl Pairs {
    fn add_window(&mut self, parties: &mut Parties<'_>, text: &Text, index: usize) -> Result<()> {
        let window = &text.windows[index];
        let (input, from) = (window.input(), window.first_scored());
        let references = parties.references.iter_mut();
        let references = references.map(|reference| reference.predictions(&input, from));
        let references = references.collect::<Result<Vec<_>>>()?;
        let ours = parties.ours.predictions(&input, from)?;
        let next = window.predicted();
        for (pair, reference) in self.ours.iter_mut().zip(&references) {
            pair.add(reference, &ours, next)?;
        }
        for (pair, reference) in self.references.iter_mut().zip(&references[1..]) {
            pair.add(&references[0], reference, next)?;
        }
        if let Some(peer) = &mut parties.peer {
            let peer = peer.file.distributions(index)?;
            self.peer.add(&references[0], &peer, next)?;
            self.from_peer.add(&peer, &ours, next)?;
            let floor = references[0]
                .iter()
                .map(rounded)
                .collect::<crate::engine::Result<Vec<_>>>()?;
            self.floor.add(&references[0], &floor, next)?;
        }
        Ok(())
    }

    fn found(self, parties: &Parties<'_>, first: usize) -> Found {
        let vocab_size = parties.ours.engine.vocab_size();
        let of = |base: &str, candidate: &str, pair: &Pair| {
            Comparison::of(base, candidate, &pair.windows, first, vocab_size)
        };
        let (references, ours) = (&parties.references, &parties.ours.name);
        let main = references[0].name();
        let peer = parties.peer.as_ref().map_or("", |peer| &peer.name);
        let from_references = references.iter().zip(&self.ours);
        let others = references[1..].iter().zip(&self.references);
        Found {
            parties: who(parties),
            vocab_size,
            ours: from_references
                .filter_map(|(base, pair)| of(base.name(), ours, pair))
                .collect(),
            references: others
                .filter_map(|(other, pair)| of(main, other.name(), pair))
                .collect(),
            peer: of(main, peer, &self.peer),
            over_peer: parties
                .peer
                .as_ref()
                .map(|_| Estimate::excess(&self.ours[0].windows, &self.peer.windows)),
            from_peer: of(peer, ours, &self.from_peer),
            peer_floor: of(main, &format!("{main} in 16 bits"), &self.floor),
            ways: Vec::new(),
            depths: Vec::new(),
            writing: None,
        }
    }
}

fn who(parties: &Parties<'_>) -> Vec<(String, String)> {
    let of = |party: &dyn Reference| (party.name().to_owned(), party.description());
    let references = parties.references.iter().map(|reference| of(reference.as_ref()));
    let candidates = std::iter::once(&parties.ours).chain(&parties.variants);
    references.chain(candidates.map(|party| of(party))).collect()
}

/// Some tokens behind a filled cache.
struct Stretch {
    depth: usize,
    /// Those in the cache, and those behind them.
    tokens: Vec<u32>,
    predicted: Vec<u32>,
}

impl Stretch {
    fn new(text: &Text, depth: usize, count: usize) -> Result<Self> {
        let end = depth.saturating_add(count).saturating_add(1);
        if count == 0 || text.tokens.len() < end {
            let problem = format!(
                "{count} tokens at depth {depth} need a text of {end} tokens, it has {}: take a longer one",
                text.tokens.len()
            );
            return Err(EngineError::Invalid(problem).into());
        }
        let mut input = text.tokens[..end - 1].to_vec();
        input[0] = text.bos.unwrap_or(input[0]);
        Ok(Self {
            depth,
            tokens: input,
            predicted: text.tokens[depth + 1..end].to_vec(),
        })
    }

    fn compare(
        &self,
        base: &str,
        base_predictions: &[Distribution],
        candidate: &str,
        predictions: &[Distribution],
    ) -> Result<Comparison> {
        let window = points(base_predictions, predictions, &self.predicted)?;
        let vocab_size = base_predictions[0].logits().len();
        let comparison = Comparison::of(base, candidate, &[window], self.depth, vocab_size);
        comparison.ok_or_else(|| EngineError::Invalid("no position was scored".into()).into())
    }
}

/// Both of an engine's ways behind the same cache.
fn ways_at(ours: &mut Predictor<'_>, text: &Text, depth: usize, count: usize) -> Result<AtDepth> {
    let stretch = Stretch::new(text, depth, count)?;
    let filled = fill(ours, &stretch.tokens[..depth]);
    ours.own(filled)?;
    let usual = ours.way;
    let [prompt, decode] = [Way::Prompt, Way::Decode].map(|way| {
        ours.way = way;
        ours.engine.truncate(depth);
        ours.continue_with(&stretch.tokens[depth..], 0)
    });
    ours.way = usual;
    let (prompt, decode) = (ours.own(prompt)?, ours.own(decode)?);
    let comparison = stretch.compare("as a prompt", &prompt, "one by one", &decode)?;
    Ok(AtDepth { depth, comparison })
}

/// Fills the engine's cache, as a prompt.
fn fill(party: &mut Predictor<'_>, tokens: &[u32]) -> crate::engine::Result<()> {
    party.engine.reset();
    if !tokens.is_empty() {
        party.engine.prefill(tokens)?;
    }
    Ok(())
}

fn writing(reference: &mut dyn Reference, ours: &mut Predictor<'_>, text: &Text, options: &Options) -> Result<Writing> {
    let mut all = Writing {
        prompts: 0,
        tokens: 0,
        before_difference: 0,
        identical: 0,
    };
    for prompt in prompts(text, options) {
        let expected = reference.writes(&prompt, options.written)?;
        let found = ours.writes(&prompt, options.written)?;
        let same = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
        all.prompts += 1;
        all.tokens += expected.len();
        all.before_difference += same;
        all.identical += usize::from(same == expected.len() && same == found.len());
    }
    Ok(all)
}
