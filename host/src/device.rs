//! Which device to compute on.

use crate::cuda;
use std::fmt;
use std::str::FromStr;

/// A choice of device, as `--device` takes it: `auto`, `cpu`, `cuda` or `cuda:N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The first usable GPU, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU of this number, in the driver's order.
    Cuda(u32),
}

impl DeviceChoice {
    /// Whether it means the CPU on this machine.
    pub fn is_cpu(self) -> bool {
        match self {
            Self::Cpu => true,
            Self::Auto => cuda::select(None).is_err(),
            Self::Cuda(_) => false,
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "cuda" => Ok(Self::Cuda(0)),
            Some(("cuda", number)) => number
                .parse()
                .map(Self::Cuda)
                .map_err(|_| format!("{number} is no GPU's number")),
            _ => Err("expected auto, cpu, cuda or cuda:N".to_owned()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_parses_and_prints() {
        for (text, choice) in [
            ("auto", DeviceChoice::Auto),
            ("cpu", DeviceChoice::Cpu),
            ("cuda:3", DeviceChoice::Cuda(3)),
        ] {
            assert_eq!(text.parse(), Ok(choice));
            assert_eq!(choice.to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0"] {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text}");
        }
    }
}
