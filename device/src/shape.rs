//! Launch shapes that a kernel does not take, in words.

use std::fmt;

/// A launch that a kernel's contract does not allow: which kernel, what was asked, what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError {
    kernel: &'static str,
    rule: String,
}

impl ShapeError {
    /// A refusal by `kernel`; `rule` says what was found and what is allowed.
    pub fn new(kernel: &'static str, rule: String) -> Self {
        Self { kernel, rule }
    }
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kernel, self.rule)
    }
}

impl std::error::Error for ShapeError {}

/// `columns`, when it is a positive multiple of `of`.
///
/// # Errors
/// Otherwise.
pub fn multiple(kernel: &'static str, columns: usize, of: usize) -> Result<u32, ShapeError> {
    if columns == 0 || !columns.is_multiple_of(of) {
        let rule = format!("rows of {columns} columns; it takes positive multiples of {of}");
        return Err(ShapeError::new(kernel, rule));
    }
    count(kernel, "columns", columns)
}

/// Whether an output's rows of `stride` floats have room for `rows` rows of a matrix from `first` on.
///
/// # Errors
/// Otherwise.
pub fn room(kernel: &'static str, rows: u32, first: u32, stride: u32) -> Result<(), ShapeError> {
    if first + rows > stride {
        let rule = format!("{rows} rows from {first} on in rows of {stride}");
        return Err(ShapeError::new(kernel, rule));
    }
    Ok(())
}

/// `n` as a kernel takes it: at least 1, at most 2³¹ − 1.
///
/// # Errors
/// Otherwise.
pub fn count(kernel: &'static str, what: &str, n: usize) -> Result<u32, ShapeError> {
    match u32::try_from(n) {
        Ok(n) if n > 0 && n <= i32::MAX as u32 => Ok(n),
        _ => Err(ShapeError::new(
            kernel,
            format!("{n} {what}; it takes 1 to {}", i32::MAX),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_is_taken() {
        assert_eq!(multiple("k", 512, 256), Ok(512));
        let odd = multiple("k", 100, 256).unwrap_err().to_string();
        assert_eq!(odd, "k: rows of 100 columns; it takes positive multiples of 256");
        assert_eq!(
            count("k", "rows", 0).unwrap_err().to_string(),
            "k: 0 rows; it takes 1 to 2147483647"
        );
    }
}
