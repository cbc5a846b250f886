//! Counting instructions in PTX text.

use std::collections::BTreeMap;
use std::fmt;

/// How often a kernel has the instructions that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Barriers of blocks and warps.
    pub bar: u32,
    /// Shuffles.
    pub shfl: u32,
    /// Votes, matches and reductions over a warp.
    pub vote: u32,
    /// Matrix instructions.
    pub mma: u32,
    /// Loads of 16 bytes from global memory.
    pub ld16: u32,
    /// Loads and stores of local memory.
    pub local: u32,
    /// Calls.
    pub call: u32,
}

/// Names of the columns, in order.
pub const COLUMNS: [&str; 7] = ["bar", "shfl", "vote", "mma", "ld16", "local", "call"];

impl Counts {
    /// The columns, in order.
    pub fn columns(&self) -> [u32; 7] {
        [
            self.bar, self.shfl, self.vote, self.mma, self.ld16, self.local, self.call,
        ]
    }

    /// The counts in those columns.
    pub fn from_columns([bar, shfl, vote, mma, ld16, local, call]: [u32; 7]) -> Self {
        Self {
            bar,
            shfl,
            vote,
            mma,
            ld16,
            local,
            call,
        }
    }

    fn add(&mut self, instruction: &str) {
        let first = instruction.split('.').next().unwrap_or_default();
        let counter = match first {
            "bar" | "barrier" => &mut self.bar,
            "shfl" => &mut self.shfl,
            "vote" | "match" | "redux" => &mut self.vote,
            "mma" | "wgmma" => &mut self.mma,
            "call" => &mut self.call,
            "ld" | "st" if instruction.contains(".local") => &mut self.local,
            "ld" if instruction.starts_with("ld.global") && bytes_loaded(instruction) == 16 => &mut self.ld16,
            _ => return,
        };
        *counter += 1;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = COLUMNS.iter().zip(self.columns()).filter(|(_, count)| *count > 0);
        let words: Vec<_> = named.map(|(name, count)| format!("{name} {count}")).collect();
        f.write_str(&if words.is_empty() {
            "none".to_owned()
        } else {
            words.join(", ")
        })
    }
}

/// Bytes of `ld.global.….vN.TYPE`: the vector's length times the type's width.
fn bytes_loaded(instruction: &str) -> u32 {
    let vector = instruction
        .split('.')
        .find_map(|part| part.strip_prefix('v')?.parse().ok())
        .unwrap_or(1);
    let kind = instruction.rsplit('.').next().unwrap_or_default();
    let bits: u32 = kind
        .trim_start_matches(|c: char| c.is_ascii_alphabetic())
        .parse()
        .unwrap_or(0);
    vector * bits / 8
}

/// Each kernel of the PTX with its counts.
pub fn kernels(ptx: &str) -> BTreeMap<String, Counts> {
    let mut found = BTreeMap::new();
    let mut inside: Option<(String, Counts)> = None;
    for line in ptx.lines() {
        if let Some(name) = entry_name(line) {
            inside = Some((name.to_owned(), Counts::default()));
        } else if line.starts_with('}') {
            found.extend(inside.take());
        } else if let Some((_, counts)) = &mut inside {
            instructions(line).for_each(|instruction| counts.add(instruction));
        }
    }
    found
}

/// `name` of `.visible .entry name(`.
fn entry_name(line: &str) -> Option<&str> {
    let rest = line.split_once(".entry ")?.1;
    Some(rest.split(['(', ' ']).next().unwrap_or(rest))
}

/// The opcodes of a line, without predicates, braces, labels and comments.
fn instructions(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split([';', '{', '}']).filter_map(|part| {
        let mut words = part.split_whitespace();
        let first = words.next()?;
        if first.starts_with('@') {
            words.next()
        } else {
            Some(first)
        }
    })
}

/// Names in the PTX that only panics and formatting leave behind.
pub fn forbidden_symbols(ptx: &str) -> Vec<String> {
    const MARKS: [&str; 4] = ["panicking", "panic_fmt", "core3fmt", "unwrap_failed"];
    let mut found: Vec<_> = ptx
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$'))
        .filter(|word| MARKS.iter().any(|mark| word.contains(mark)))
        .map(str::to_owned)
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::{Counts, forbidden_symbols, kernels};

    const PTX: &str = "\
.version 7.8
.visible .entry one(
\t.param .u64 one_param_0
)
.maxntid 128
{
\t.reg .b32 \t%r<3>;
\tbar.sync \t0;
\tbarrier.cta.sync.aligned.all \t0;
$L__BB0_1:
\t@%p1 shfl.sync.bfly.b32 \t%r1, %r2, 1, 31, -1;
\t// begin inline asm
\tld.global.nc.L1::no_allocate.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
\t{ .reg .b16 t; redux.sync.max.u32 %r1, %r2, -1; }
\t// end inline asm bar.sync 0;
\tld.global.v2.b64 \t{%rd1, %rd2}, [%rd3];
\tld.global.b32 \t%r1, [%rd1];
\tmma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1}, {%r2}, {%r3}, {%r4};
\tst.local.b32 \t[%rd1], %r1;
\tret;
}
.visible .entry two()
{
\tcall.uni \tfoo, ();
\tld.local.v4.b32 \t{%r1, %r2, %r3, %r4}, [%rd1];
}
";

    #[test]
    fn instructions_are_counted_for_each_kernel() {
        let found = kernels(PTX);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found["one"],
            Counts {
                bar: 2,
                shfl: 1,
                vote: 1,
                mma: 1,
                ld16: 2,
                local: 1,
                call: 0
            }
        );
        assert_eq!(
            found["two"],
            Counts {
                call: 1,
                local: 1,
                ..Counts::default()
            }
        );
    }

    #[test]
    fn columns_lead_back() {
        let counts = Counts {
            bar: 1,
            shfl: 2,
            vote: 3,
            mma: 4,
            ld16: 5,
            local: 6,
            call: 7,
        };
        assert_eq!(Counts::from_columns(counts.columns()), counts);
    }

    #[test]
    fn what_panics_leave_is_found_once() {
        let ptx = "call _ZN4core9panicking5panic17h0E; call _ZN4core9panicking5panic17h0E; .func no_panic_here";
        assert_eq!(forbidden_symbols(ptx), ["_ZN4core9panicking5panic17h0E"]);
        assert!(forbidden_symbols(PTX).is_empty());
    }
}
