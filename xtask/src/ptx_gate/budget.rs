//! What kernels may use: registers spilled to memory only as the budget file says, shared memory as every GPU has it.

use super::assembler::Usage;
use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// Static shared memory that one block can have on every supported GPU, in bytes.
const SHARED_BYTES: u32 = 99 * 1024;

/// Bytes of spills allowed, by kernel and target.
pub type Budget = BTreeMap<(String, String), u32>;

/// Reads lines of `KERNEL TARGET BYTES REASON…`; empty lines and those that begin with `#` say nothing.
///
/// # Errors
/// A line without bytes or without a reason.
pub fn parse(text: &str) -> Result<Budget> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| parse_line(line).with_context(|| format!("not KERNEL TARGET BYTES REASON: {line}")))
        .collect()
}

fn parse_line(line: &str) -> Option<((String, String), u32)> {
    let mut words = line.split_whitespace();
    let key = (words.next()?.to_owned(), words.next()?.to_owned());
    let bytes = words.next()?.parse().ok()?;
    words.next().map(|_| (key, bytes))
}

/// Complaints about kernels that spill more than allowed, or use more shared memory than there is.
pub fn check(budget: &Budget, target: &str, usage: &BTreeMap<String, Usage>) -> Vec<String> {
    let mut problems = Vec::new();
    for (kernel, usage) in usage {
        let allowed = budget.get(&(kernel.clone(), target.to_owned())).copied().unwrap_or(0);
        let spilled = usage.spill_stores + usage.spill_loads;
        if spilled > allowed {
            problems.push(format!(
                "{target} {kernel}: spills {spilled} bytes, {allowed} are allowed"
            ));
        }
        if usage.shared > SHARED_BYTES {
            problems.push(format!(
                "{target} {kernel}: {} bytes of shared memory, over {SHARED_BYTES}",
                usage.shared
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{Usage, check, parse};
    use std::collections::BTreeMap;

    #[test]
    fn spills_are_held_against_the_budget() {
        let budget = parse("# why\n\nwide sm_80 16 many accumulators, no faster form found\n").expect("it is a budget");
        let usage = Usage {
            spill_stores: 8,
            spill_loads: 8,
            ..Usage::default()
        };
        let usage = BTreeMap::from([("wide".to_owned(), usage)]);
        assert!(check(&budget, "sm_80", &usage).is_empty());
        assert_eq!(
            check(&budget, "sm_90", &usage),
            ["sm_90 wide: spills 16 bytes, 0 are allowed"]
        );
    }

    #[test]
    fn too_much_shared_memory_is_told() {
        let usage = BTreeMap::from([(
            "k".to_owned(),
            Usage {
                shared: 100 * 1024,
                ..Usage::default()
            },
        )]);
        assert_eq!(check(&BTreeMap::new(), "sm_90", &usage).len(), 1);
    }

    #[test]
    fn an_exception_needs_a_reason() {
        assert!(parse("wide sm_80 16").is_err());
        assert!(parse("wide sm_80 many because").is_err());
    }
}
