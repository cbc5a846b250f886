//! Rotary position embedding of query and key heads.

use crate::model::{Rope, RopeLayout};

/// Sines and cosines of some positions, for one kind of rotation.
pub(super) struct Rotation {
    layout: RopeLayout,
    frequencies: Vec<f64>,
    magnitude: f64,
    /// (cos, sin) of each pair, times the magnitude: `[positions][pairs]`.
    table: Vec<(f32, f32)>,
}

impl Rotation {
    pub(super) fn new(rope: &Rope) -> Self {
        Rotation {
            layout: rope.layout,
            frequencies: rope.frequencies(),
            magnitude: f64::from(rope.magnitude()),
            table: Vec::new(),
        }
    }

    /// Computes the table of the positions `first .. first + count`. Angles are formed in f64, so that
    /// late positions are as exact as early ones.
    pub(super) fn prepare(&mut self, first: usize, count: usize) {
        self.table.clear();
        for position in first..first + count {
            self.table.extend(self.frequencies.iter().map(|frequency| {
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                ((cos * self.magnitude) as f32, (sin * self.magnitude) as f32)
            }));
        }
    }

    /// Rotates `head` for the `i`-th prepared position.
    pub(super) fn apply(&self, i: usize, head: &mut [f32]) {
        let pairs = self.frequencies.len();
        let table = &self.table[i * pairs..][..pairs];
        match self.layout {
            RopeLayout::Halves => {
                let (low, high) = head.split_at_mut(pairs);
                for ((a, b), turn) in low.iter_mut().zip(high).zip(table) {
                    (*a, *b) = rotate(*a, *b, *turn);
                }
            }
            RopeLayout::Interleaved => {
                for (pair, turn) in head.as_chunks_mut::<2>().0.iter_mut().zip(table) {
                    (pair[0], pair[1]) = rotate(pair[0], pair[1], *turn);
                }
            }
        }
    }
}

fn rotate(a: f32, b: f32, (cos, sin): (f32, f32)) -> (f32, f32) {
    (a * cos - b * sin, a * sin + b * cos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RopeScaling;

    fn rotated(layout: RopeLayout, position: usize, head: [f32; 6]) -> [f32; 6] {
        let rope = Rope {
            layout,
            dims: 4,
            base: 100.0,
            scaling: RopeScaling::None,
            factors: Vec::new(),
        };
        let mut rotation = Rotation::new(&rope);
        rotation.prepare(position - 1, 2);
        let mut head = head;
        rotation.apply(1, &mut head);
        head
    }

    /// Base 100 and four values: pair 0 turns by the position, pair 1 by a tenth of it.
    #[test]
    fn pairs_of_both_layouts() {
        let (c, s) = (3f32.cos(), 3f32.sin());
        let (d, t) = (0.3f32.cos(), 0.3f32.sin());
        let close = |found: [f32; 6], expected: [f32; 6]| {
            assert!(
                found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6),
                "{found:?} {expected:?}"
            );
        };
        close(
            rotated(RopeLayout::Halves, 3, [1.0, 0.0, 0.0, 1.0, 7.0, 8.0]),
            [c, -t, s, d, 7.0, 8.0],
        );
        close(
            rotated(RopeLayout::Interleaved, 3, [1.0, 0.0, 0.0, 1.0, 7.0, 8.0]),
            [c, s, -t, d, 7.0, 8.0],
        );
    }
}
