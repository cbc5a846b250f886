//! Kernel cases: random inputs from a seed, a launch, the f64 reference, a tolerance.

use super::Machine;

/// One way of testing a kernel. The same cases run in the emulator and on a GPU.
#[derive(Clone, Copy)]
pub struct Case {
    /// What is tested, as `kernel/variant`.
    pub name: &'static str,
    /// Runs it with shapes and inputs that follow from the seed.
    ///
    /// Gives the worst error, as a share of what is allowed; fails in words when it is over 1, or when the machine does.
    pub run: fn(&mut dyn Machine, u64) -> Result<f64, String>,
}

/// The worst error of `got` against `want`, as a share of `allowed(i)`.
///
/// # Errors
/// When one is larger than allowed, or a NaN stands where none is wanted (or none where one is): names the first.
pub fn within(what: &str, got: &[f32], want: &[f64], allowed: impl Fn(usize) -> f64) -> Result<f64, String> {
    if got.len() != want.len() {
        return Err(format!("{what}: {} values where {} are wanted", got.len(), want.len()));
    }
    let mut worst = 0f64;
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        if got.is_nan() && want.is_nan() {
            continue;
        }
        let share = (f64::from(*got) - want).abs() / allowed(i);
        if share.is_nan() || share > 1.0 {
            return Err(format!(
                "{what}[{i}] is {got:e}, not {want:e}: {share:.2} times the error allowed"
            ));
        }
        worst = worst.max(share);
    }
    Ok(worst)
}

/// The root mean square of `v`: the scale that errors of sums are measured with.
pub fn rms(v: &[f64]) -> f64 {
    (v.iter().map(|v| v * v).sum::<f64>() / v.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shares_of_what_is_allowed() {
        assert_eq!(within("y", &[1.5, f32::NAN], &[1.0, f64::NAN], |_| 1.0), Ok(0.5));
        assert!(
            within("y", &[3.0], &[1.0], |_| 1.0)
                .unwrap_err()
                .starts_with("y[0] is 3e0, not 1e0: 2.00")
        );
        assert!(within("y", &[f32::NAN], &[1.0], |_| 1.0).is_err());
        assert!(within("y", &[1.0], &[], |_| 1.0).is_err());
    }
}
