//! The checked-in table of counts.

use super::counts::{COLUMNS, Counts};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt;

/// Counts for each architecture and kernel, and the compiler whose code has them.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// The compiler's description of itself.
    pub compiler: String,
    /// By architecture and kernel.
    pub rows: BTreeMap<(String, String), Counts>,
}

impl Table {
    /// Reads what [`fmt::Display`] writes.
    ///
    /// # Errors
    /// The line that is not as it should be.
    pub fn parse(text: &str) -> Result<Self> {
        let compiler = text
            .lines()
            .find_map(|line| line.strip_prefix("# made by "))
            .unwrap_or_default()
            .to_owned();
        let rows = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.starts_with("arch\t"));
        let rows = rows.map(|line| parse_row(line).with_context(|| format!("not a row of the PTX table: {line}")));
        Ok(Self {
            compiler,
            rows: rows.collect::<Result<_>>()?,
        })
    }

    /// What `found` has otherwise, in words: what must not be, and what may be when the compiler is another.
    pub fn differences(&self, found: &Self, same_compiler: bool) -> (Vec<String>, Vec<String>) {
        let (mut fatal, mut tolerable) = (Vec::new(), Vec::new());
        for ((arch, kernel), expected) in &self.rows {
            let Some(counts) = found.rows.get(&(arch.clone(), kernel.clone())) else {
                fatal.push(format!(
                    "{arch} {kernel}: in the table but not in the PTX: --bless if it was removed"
                ));
                continue;
            };
            if counts != expected {
                let worse = counts.local > expected.local || counts.call > expected.call;
                let list = if same_compiler || worse {
                    &mut fatal
                } else {
                    &mut tolerable
                };
                list.push(format!(
                    "{arch} {kernel}: the table says {expected}; the PTX has {counts}"
                ));
            }
        }
        let new = found.rows.keys().filter(|key| !self.rows.contains_key(key));
        fatal.extend(new.map(|(arch, kernel)| format!("{arch} {kernel}: not in the table: --bless if it is new")));
        (fatal, tolerable)
    }
}

/// One line: architecture, kernel and the counts, between tabs.
fn parse_row(line: &str) -> Option<((String, String), Counts)> {
    let mut cells = line.split('\t');
    let key = (cells.next()?.to_owned(), cells.next()?.to_owned());
    let counts: Vec<u32> = cells.map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    Some((key, Counts::from_columns(counts.try_into().ok()?)))
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Instructions of each kernel; compared and written by `cargo xtask ptx-gate [--bless]`."
        )?;
        writeln!(f, "# made by {}", self.compiler)?;
        writeln!(f, "arch\tkernel\t{}", COLUMNS.join("\t"))?;
        for ((arch, kernel), counts) in &self.rows {
            let cells: Vec<_> = counts.columns().iter().map(u32::to_string).collect();
            writeln!(f, "{arch}\t{kernel}\t{}", cells.join("\t"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Table};

    fn table(rows: &[(&str, Counts)]) -> Table {
        let rows = rows
            .iter()
            .map(|(kernel, counts)| (("sm_90".to_owned(), (*kernel).to_owned()), *counts));
        Table {
            compiler: "rustc 1.96.0 (x y)".to_owned(),
            rows: rows.collect(),
        }
    }

    #[test]
    fn a_table_reads_what_it_writes() {
        let table = table(&[
            (
                "a",
                Counts {
                    bar: 1,
                    ..Counts::default()
                },
            ),
            (
                "b",
                Counts {
                    call: 2,
                    ..Counts::default()
                },
            ),
        ]);
        assert_eq!(Table::parse(&table.to_string()).expect("it is a table"), table);
        assert!(Table::parse("sm_90\ta\t1\t2").is_err());
    }

    #[test]
    fn every_difference_is_told() {
        let none = Counts::default();
        let expected = table(&[("same", none), ("more", none), ("gone", none)]);
        let found = table(&[("same", none), ("more", Counts { bar: 1, ..none }), ("new", none)]);
        let (fatal, tolerable) = expected.differences(&found, true);
        assert_eq!((fatal.len(), tolerable.len()), (3, 0), "{fatal:?}");
        assert!(
            fatal
                .iter()
                .any(|text| text.contains("more: the table says none; the PTX has bar 1")),
            "{fatal:?}"
        );
    }

    #[test]
    fn another_compiler_may_unroll_but_not_spill() {
        let none = Counts::default();
        let expected = table(&[("a", none), ("b", none)]);
        let found = table(&[("a", Counts { shfl: 5, ..none }), ("b", Counts { local: 1, ..none })]);
        let (fatal, tolerable) = expected.differences(&found, false);
        assert_eq!((fatal.len(), tolerable.len()), (1, 1));
        assert!(fatal[0].contains(" b:"), "{fatal:?}");
    }
}
