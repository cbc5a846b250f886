//! The limits on the lengths of functions.

use super::Problem;
use super::functions::Function;

const MEDIAN: usize = 10;
const LONGEST: usize = 150;
const LONGEST_STRAIGHT_LINE: usize = 200;

/// Host code and kernel code are measured apart.
const SIDES: [Side; 2] = [
    Side {
        name: "host",
        device: false,
        percentile_95: 60,
    },
    Side {
        name: "device",
        device: true,
        percentile_95: 100,
    },
];

struct Side {
    name: &'static str,
    device: bool,
    percentile_95: usize,
}

impl Side {
    /// Sorted lengths of this side's functions, tests left out.
    fn lengths(&self, functions: &[Function]) -> Vec<usize> {
        let own = functions
            .iter()
            .filter(|function| function.device == self.device && !function.test);
        let mut lengths: Vec<usize> = own.map(|function| function.lines).collect();
        lengths.sort_unstable();
        lengths
    }

    fn check(&self, lengths: &[usize]) -> Vec<Problem> {
        let found = [
            ("median", percentile(lengths, 50), MEDIAN),
            ("95th percentile", percentile(lengths, 95), self.percentile_95),
        ];
        let over = found.into_iter().filter(|(_, value, limit)| value > limit);
        over.map(|(what, value, limit)| {
            Problem::new(
                self.name,
                format!("{what} of function lengths is {value}, over {limit}"),
            )
        })
        .collect()
    }
}

/// The smallest value that at least `percent` of the sorted values do not exceed; 0 for none.
fn percentile(sorted: &[usize], percent: usize) -> usize {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Everything that is over a limit.
pub fn check(functions: &[Function]) -> Vec<Problem> {
    let distribution = SIDES.iter().flat_map(|side| side.check(&side.lengths(functions)));
    distribution.chain(functions.iter().filter_map(too_long)).collect()
}

fn too_long(function: &Function) -> Option<Problem> {
    let straight = function.device && function.straight_line;
    let limit = if straight { LONGEST_STRAIGHT_LINE } else { LONGEST };
    let message = || format!("function {} has {} lines, over {limit}", function.name, function.lines);
    (function.lines > limit).then(|| Problem::new(&function.place, message()))
}

/// Median, 95th percentile and longest of each side, in words.
pub fn summary(functions: &[Function]) -> String {
    let side = |side: &Side| {
        let lengths = side.lengths(functions);
        let [median, high, longest] = [50, 95, 100].map(|percent| percentile(&lengths, percent));
        format!(
            "{} median {median}, 95th percentile {high}, longest {longest}",
            side.name
        )
    };
    SIDES.iter().map(side).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize, device: bool, straight_line: bool) -> Function {
        Function {
            place: "a.rs:1".into(),
            name: "f".into(),
            lines,
            test: false,
            device,
            straight_line,
        }
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let sorted: Vec<usize> = (1..=20).collect();
        assert_eq!(
            [
                percentile(&sorted, 50),
                percentile(&sorted, 95),
                percentile(&sorted, 100)
            ],
            [10, 19, 20]
        );
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn median_and_percentile_have_limits_of_their_own() {
        let mut functions = vec![function(10, false, false); 95];
        functions.extend(vec![function(61, false, false); 4]);
        assert_eq!(check(&functions), []);
        functions.extend(vec![function(61, false, false); 2]);
        assert_eq!(check(&functions).len(), 1);
        assert_eq!(check(&vec![function(11, true, false); 3]).len(), 1);
    }

    #[test]
    fn straight_line_kernels_may_have_200_lines() {
        assert!(too_long(&function(151, true, false)).is_some());
        assert!(too_long(&function(200, true, true)).is_none());
        assert!(too_long(&function(201, true, true)).is_some());
        assert!(too_long(&function(151, false, true)).is_some());
    }
}
