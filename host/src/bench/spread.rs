//! Repeated measurements of one thing.

use std::fmt;

use serde::Serialize;

/// The median of some rates, and how far they spread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the two middle ones.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// All, in the order in which they were measured.
    pub samples: Vec<f64>,
}

impl Spread {
    /// Of at least one measurement; none of none.
    pub fn of(samples: Vec<f64>) -> Option<Self> {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let lower = if sorted.len() % 2 == 1 {
            upper
        } else {
            sorted[middle - 1]
        };
        Some(Self {
            median: (lower + upper) / 2.0,
            least: sorted[0],
            most: sorted[sorted.len() - 1],
            samples,
        })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ({:.1}..{:.1})", self.median, self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Spread::of(vec![]), None);
        let odd = Spread::of(vec![3.0, 1.0, 20.0]).unwrap();
        assert_eq!((odd.median, odd.least, odd.most), (3.0, 1.0, 20.0));
        assert_eq!(odd.to_string(), "3.0 (1.0..20.0)");
        assert_eq!(Spread::of(vec![4.0, 1.0]).unwrap().median, 2.5);
    }
}
