//! Split files: `<prefix>-00001-of-00003.gguf` and its fellows.
//!
//! Each part is a complete file. All metadata is in the first; the others hold the split keys and tensors.

use std::path::{Path, PathBuf};

use super::Gguf;
use crate::error::{Error, ErrorKind, Quoted};

/// Index of this part, counted from 0.
pub(crate) const NO_KEY: &str = "split.no";
/// Number of parts.
pub(crate) const COUNT_KEY: &str = "split.count";
/// Number of tensors over all parts.
pub(crate) const TENSORS_KEY: &str = "split.tensors.count";

/// The file name of part `no` (from 0) of `count`.
pub(crate) fn file_name(prefix: &str, no: u32, count: u32) -> String {
    format!("{prefix}-{:05}-of-{count:05}.gguf", no + 1)
}

/// Takes a part's file name apart: prefix, index from 0, count.
fn parse_file_name(name: &str) -> Option<(&str, u32, u32)> {
    let stem = name.strip_suffix(".gguf")?;
    let (stem, count) = stem.rsplit_once("-of-")?;
    let (prefix, no) = stem.rsplit_once('-')?;
    let number = |digits: &str| {
        let valid = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
        valid.then(|| digits.parse::<u32>().ok()).flatten()
    };
    Some((prefix, number(no)?.checked_sub(1)?, number(count)?))
}

/// The paths of the parts after the first, when `first` is the first of several.
pub(super) fn other_parts(first: &Gguf, path: &Path) -> Result<Vec<PathBuf>, Error> {
    let fail = |problem: String| Err(first.error(ErrorKind::Split(problem)));
    let count = match part_count(first)? {
        0 | 1 => return Ok(Vec::new()),
        count => count,
    };
    let no = first.metadata().require_u32(NO_KEY)?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((prefix, named_no, named_count)) = parse_file_name(name) else {
        return fail(format!(
            "part {} of {count} must be named {}",
            no + 1,
            file_name("<name>", no, count)
        ));
    };
    if (named_no, named_count) != (no, count) {
        return fail(format!(
            "its keys say part {} of {count}, its name says otherwise",
            no + 1
        ));
    }
    if no != 0 {
        return fail(format!(
            "this is part {} of {count}; give the first: {}",
            no + 1,
            Quoted(file_name(prefix, 0, count))
        ));
    }
    Ok((1..count)
        .map(|no| path.with_file_name(file_name(prefix, no, count)))
        .collect())
}

/// How many parts the file says there are; 0 when it says nothing.
pub(super) fn part_count(gguf: &Gguf) -> Result<u32, Error> {
    let count = gguf.metadata().u32(COUNT_KEY)?.unwrap_or(0);
    if count > u16::MAX.into() {
        return Err(gguf.metadata().error(COUNT_KEY, format!("{count} parts are too many")));
    }
    Ok(count)
}

/// Checks that `part` is number `no` of the same set as `first`.
pub(super) fn check_part(first: &Gguf, part: &Gguf, no: usize) -> Result<(), Error> {
    let (found_no, found_count) = (
        part.metadata().require_u32(NO_KEY)?,
        part.metadata().require_u32(COUNT_KEY)?,
    );
    let count = part_count(first)?;
    if (found_no as usize, found_count) != (no, count) {
        let problem = format!(
            "its keys say part {} of {found_count} where part {} of {count} is wanted",
            u64::from(found_no) + 1,
            no + 1
        );
        return Err(part.error(ErrorKind::Split(problem)));
    }
    Ok(())
}

/// Checks the number of tensors over all parts.
pub(super) fn check_total(gguf: &Gguf) -> Result<(), Error> {
    let found = gguf.tensors.len();
    match gguf.metadata().u64(TENSORS_KEY)? {
        Some(total) if total != found as u64 => {
            let problem = format!("{total} tensors are announced, the parts hold {found}");
            Err(gguf.metadata().error(TENSORS_KEY, problem))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let name = file_name("a-of-b", 1, 12);
        assert_eq!(name, "a-of-b-00002-of-00012.gguf");
        assert_eq!(parse_file_name(&name), Some(("a-of-b", 1, 12)));
    }

    #[test]
    fn other_names_are_no_parts() {
        for name in [
            "a.gguf",
            "a-00000-of-00002.gguf",
            "a-1-of-2.gguf",
            "a-0000+1-of-00002.gguf",
            "a-00001-of-00002",
            "",
        ] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
