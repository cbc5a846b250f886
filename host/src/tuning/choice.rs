//! What each choice may be, what is worth trying, and what it changes.

use std::ops::RangeInclusive;

use super::Tuning;

/// What is timed to see what a choice is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Decoding at every depth.
    Depths,
    /// Decoding at the smallest depth.
    Decode,
    /// Reading a long prompt.
    Prompt,
    /// Reading prompts of a few tokens.
    ShortPrompts,
}

/// One number of a [`Tuning`].
#[derive(Debug)]
pub struct Choice {
    /// Its name in files and tables.
    pub name: &'static str,
    /// What it may be.
    pub range: RangeInclusive<u32>,
    /// What is worth trying, the smallest first.
    pub candidates: &'static [u32],
    /// What shows its worth.
    pub workload: Workload,
    field: fn(&mut Tuning) -> &mut u32,
}

impl Choice {
    const fn new(
        name: &'static str,
        range: RangeInclusive<u32>,
        candidates: &'static [u32],
        workload: Workload,
        field: fn(&mut Tuning) -> &mut u32,
    ) -> Self {
        Self {
            name,
            range,
            candidates,
            workload,
            field,
        }
    }

    /// The number in `tuning`.
    pub fn of(&self, mut tuning: Tuning) -> u32 {
        *(self.field)(&mut tuning)
    }

    /// `tuning` with another number.
    #[must_use]
    pub fn set(&self, mut tuning: Tuning, value: u32) -> Tuning {
        *(self.field)(&mut tuning) = value;
        tuning
    }

    /// Refuses a number that is out of range.
    ///
    /// # Errors
    /// Name, number and range.
    pub fn check(&self, tuning: &Tuning) -> Result<(), String> {
        let value = self.of(*tuning);
        if self.range.contains(&value) {
            return Ok(());
        }
        let (least, most) = (self.range.start(), self.range.end());
        Err(format!("{} is {value}, {least} to {most} are allowed", self.name))
    }
}

/// All choices, in the order in which they are searched.
pub static CHOICES: [Choice; 9] = [
    Choice::new(
        "attention_splits",
        0..=64,
        &[8, 16, 24, 32, 48, 64],
        Workload::Depths,
        |t| &mut t.attention_splits,
    ),
    Choice::new("attention_warps", 1..=8, &[2, 4, 8], Workload::Depths, |t| {
        &mut t.attention_warps
    }),
    Choice::new(
        "attention_least_chunks",
        1..=4096,
        &[2, 4, 8, 16, 32],
        Workload::Depths,
        |t| &mut t.attention_least_chunks,
    ),
    Choice::new("head_blocks", 1..=16, &[2, 3, 4, 6, 8], Workload::Decode, |t| {
        &mut t.head_blocks
    }),
    Choice::new("row_blocks", 1..=64, &[8, 16, 32], Workload::Decode, |t| {
        &mut t.row_blocks
    }),
    Choice::new("tile_warps", 8..=128, &[16, 24, 32, 48, 64], Workload::Decode, |t| {
        &mut t.tile_warps
    }),
    Choice::new("graph_steps", 1..=32, &[1, 2, 4, 8], Workload::Decode, |t| {
        &mut t.graph_steps
    }),
    Choice::new(
        "prompt_chunk",
        16..=2048,
        &[256, 512, 1024, 2048],
        Workload::Prompt,
        |t| &mut t.prompt_chunk,
    ),
    Choice::new(
        "shortest_chunk",
        1..=64,
        &[2, 3, 4, 6, 8, 12],
        Workload::ShortPrompts,
        |t| &mut t.shortest_chunk,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_a_number_of_its_own() {
        let json = serde_json::to_value(Tuning::default()).unwrap();
        assert_eq!(json.as_object().unwrap().len(), CHOICES.len());
        for choice in &CHOICES {
            let value = 7 - choice.of(Tuning::default()) % 2;
            let changed = serde_json::to_value(choice.set(Tuning::default(), value)).unwrap();
            let differing = json
                .as_object()
                .unwrap()
                .iter()
                .filter(|(key, of)| changed[key.as_str()] != **of);
            assert!(differing.map(|(key, _)| key).eq([choice.name]), "{}", choice.name);
        }
    }

    #[test]
    fn what_is_tried_is_allowed_and_ordered() {
        assert_eq!(Tuning::default().check(), Ok(()));
        for choice in &CHOICES {
            assert!(choice.candidates.iter().all(|value| choice.range.contains(value)));
            assert!(choice.candidates.is_sorted());
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let tuning = Tuning {
            attention_warps: 9,
            ..Tuning::default()
        };
        assert_eq!(tuning.check(), Err("attention_warps is 9, 1 to 8 are allowed".into()));
    }
}
