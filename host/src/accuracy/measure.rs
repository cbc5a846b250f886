//! Letting all parties predict, and comparing.

use super::base_file::rounded;
use super::distribution::{Distribution, Point};
use super::source::{Predictor, Recorded, Source, Way};
use super::summary::{Comparison, Estimate};
use super::{AccuracyError, AtDepth, Found, Options, Result, Text, Writing};
use crate::engine::EngineError;

/// Who takes part.
pub struct Parties<'e> {
    /// Those measured by; the first is the main one.
    pub references: Vec<Predictor<'e>>,
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

/// Names the party whose error it is.
fn of_party<T>(party: &str, result: Result<T>) -> Result<T> {
    result.map_err(|error| match error {
        AccuracyError::Engine(error) => AccuracyError::Party {
            party: party.to_owned(),
            error,
        },
        other => other,
    })
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
    let (reference, ours) = (&mut parties.references[0], &mut parties.ours);
    for &depth in &options.way_depths {
        note(&format!("prompt against decoding at depth {depth}"));
        found.ways.push(ways_at(ours, text, depth, options.tokens_at_depth)?);
    }
    for &depth in &options.depths {
        note(&format!("depth {depth}"));
        let stretch = Stretch::new(text, depth, options.tokens_at_depth)?;
        let base = stretch.predictions(reference)?;
        for candidate in std::iter::once(&mut *ours).chain(&mut parties.variants) {
            let predictions = stretch.predictions(candidate)?;
            let comparison = stretch.compare(&reference.name, &base, &candidate.name, &predictions)?;
            found.depths.push(AtDepth { depth, comparison });
        }
    }
    if options.prompts > 0 && options.written > 0 {
        note("free writing");
        found.writing = Some(writing(reference, ours, text, options)?);
    }
    Ok(found)
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
        note(&format!("window {} of {}", index + 1, text.windows.len()));
        pairs.add_window(parties, text, index)?;
    }
    Ok(pairs.found(parties, text.windows[0].first_scored()))
}

impl Pairs {
    fn add_window(&mut self, parties: &mut Parties<'_>, text: &Text, index: usize) -> Result<()> {
        let window = &text.windows[index];
        let predictions = |source: &mut dyn Source| {
            let found = source.predictions(index, window);
            of_party(source.name(), found)
        };
        let references = parties.references.iter_mut().map(|reference| predictions(reference));
        let references = references.collect::<Result<Vec<_>>>()?;
        let ours = predictions(&mut parties.ours)?;
        let next = window.predicted();
        for (pair, reference) in self.ours.iter_mut().zip(&references) {
            pair.add(reference, &ours, next)?;
        }
        for (pair, reference) in self.references.iter_mut().zip(&references[1..]) {
            pair.add(&references[0], reference, next)?;
        }
        if let Some(peer) = &mut parties.peer {
            let peer = predictions(peer)?;
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
        let main = &references[0].name;
        let peer = parties.peer.as_ref().map_or("", |peer| &peer.name);
        let from_references = references.iter().zip(&self.ours);
        let others = references[1..].iter().zip(&self.references);
        Found {
            parties: who(parties),
            vocab_size,
            ours: from_references
                .filter_map(|(base, pair)| of(&base.name, ours, pair))
                .collect(),
            references: others.filter_map(|(other, pair)| of(main, &other.name, pair)).collect(),
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
    let engines = parties
        .references
        .iter()
        .chain([&parties.ours])
        .chain(&parties.variants);
    engines
        .map(|party| (party.name.clone(), party.engine.description().device.clone()))
        .collect()
}

/// Some tokens behind a filled cache.
struct Stretch {
    before: Vec<u32>,
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
        let tokens = input.split_off(depth);
        Ok(Self {
            before: input,
            tokens,
            predicted: text.tokens[depth + 1..end].to_vec(),
        })
    }

    /// Fills the engine's cache, as a prompt.
    fn fill(&self, party: &mut Predictor<'_>) -> Result<()> {
        party.engine.reset();
        if !self.before.is_empty() {
            party.engine.prefill(&self.before)?;
        }
        Ok(())
    }

    fn predictions(&self, party: &mut Predictor<'_>) -> Result<Vec<Distribution>> {
        let filled = self.fill(party);
        let found = filled.and_then(|()| Ok(party.continue_with(&self.tokens, 0)?));
        of_party(&party.name, found)
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
        let comparison = Comparison::of(base, candidate, &[window], self.before.len(), vocab_size);
        comparison.ok_or_else(|| EngineError::Invalid("no position was scored".into()).into())
    }
}

/// Both of an engine's ways behind the same cache.
fn ways_at(ours: &mut Predictor<'_>, text: &Text, depth: usize, count: usize) -> Result<AtDepth> {
    let stretch = Stretch::new(text, depth, count)?;
    let filled = stretch.fill(ours);
    of_party(&ours.name, filled)?;
    let usual = ours.way;
    let [prompt, decode] = [Way::Prompt, Way::Decode].map(|way| {
        ours.way = way;
        ours.engine.truncate(depth);
        ours.continue_with(&stretch.tokens, 0)
    });
    ours.way = usual;
    let prompt = of_party(&ours.name, prompt.map_err(Into::into))?;
    let decode = of_party(&ours.name, decode.map_err(Into::into))?;
    let comparison = stretch.compare("as a prompt", &prompt, "one by one", &decode)?;
    Ok(AtDepth { depth, comparison })
}

fn writing(reference: &mut Predictor<'_>, ours: &mut Predictor<'_>, text: &Text, options: &Options) -> Result<Writing> {
    let mut all = Writing {
        prompts: 0,
        tokens: 0,
        before_difference: 0,
        identical: 0,
    };
    for window in text.windows.iter().take(options.prompts) {
        let prompt = &window.input()[..window.first_scored()];
        let write = |party: &mut Predictor<'_>| {
            let written = party.writes(prompt, options.written);
            of_party(&party.name, written.map_err(Into::into))
        };
        let (expected, found) = (write(reference)?, write(ours)?);
        let same = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
        all.prompts += 1;
        all.tokens += expected.len();
        all.before_difference += same;
        all.identical += usize::from(same == expected.len() && same == found.len());
    }
    Ok(all)
}
