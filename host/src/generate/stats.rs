//! What a generation took, and the one line that says so.

use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::time::Duration;

/// Times and counts of one generation. Loading is not part of any of them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// Seconds to open the model and set up the engine.
    pub load_seconds: f64,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Seconds from the first token read to the prompt's last logits, first sample included.
    pub prompt_seconds: f64,
    /// Tokens sampled, an end-of-text token that ended the text included.
    pub generated_tokens: usize,
    /// Seconds from the first sampled token to the last.
    pub decode_seconds: f64,
}

impl Timings {
    /// Prompt tokens per second; none for a time too short to measure.
    pub fn prompt_rate(&self) -> Option<f64> {
        rate(self.prompt_tokens, self.prompt_seconds)
    }

    /// Tokens per second after the first one; none where there is only one.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.generated_tokens.saturating_sub(1), self.decode_seconds)
    }
}

/// As an object of the fields and the two rates, which are null where they could not be measured.
impl Serialize for Timings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Timings", 7)?;
        object.serialize_field("load_seconds", &self.load_seconds)?;
        object.serialize_field("prompt_tokens", &self.prompt_tokens)?;
        object.serialize_field("prompt_seconds", &self.prompt_seconds)?;
        object.serialize_field("prompt_tokens_per_second", &self.prompt_rate())?;
        object.serialize_field("generated_tokens", &self.generated_tokens)?;
        object.serialize_field("decode_seconds", &self.decode_seconds)?;
        object.serialize_field("decode_tokens_per_second", &self.decode_rate())?;
        object.end()
    }
}

fn rate(tokens: usize, seconds: f64) -> Option<f64> {
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}

/// Everything that the stats line names.
#[derive(Debug, Clone)]
pub struct Stats<'a> {
    /// The model's name and architecture.
    pub model: &'a str,
    /// The device and what it computes with.
    pub device: &'a str,
    /// Times and counts.
    pub timings: Timings,
    /// Bytes of weights and cache.
    pub memory_bytes: u64,
}

impl std::fmt::Display for Stats<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let timings = &self.timings;
        write!(f, "{} | {}", self.model, self.device)?;
        write!(
            f,
            " | prompt {} tokens{}",
            timings.prompt_tokens,
            rate_text(timings.prompt_rate())
        )?;
        write!(f, " | first token {}", duration(timings.prompt_seconds))?;
        write!(
            f,
            " | generated {} tokens{}",
            timings.generated_tokens,
            rate_text(timings.decode_rate())
        )?;
        write!(f, " | memory {}", bytes(self.memory_bytes))
    }
}

fn rate_text(rate: Option<f64>) -> String {
    rate.map_or(String::new(), |rate| format!(" at {rate:.1} tok/s"))
}

fn duration(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    if whole < Duration::from_secs(1) {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{seconds:.2} s")
    }
}

/// A byte count in decimal units, three digits or so.
pub fn bytes(count: u64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let value = count as f64;
    let unit = UNITS.iter().find(|(size, _)| value >= *size);
    unit.map_or_else(
        || format!("{count} B"),
        |(size, name)| format!("{:.2} {name}", value / size),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMINGS: Timings = Timings {
        load_seconds: 0.1,
        prompt_tokens: 14,
        prompt_seconds: 0.028,
        generated_tokens: 129,
        decode_seconds: 0.5,
    };

    #[test]
    fn rates() {
        assert_eq!(TIMINGS.prompt_rate(), Some(500.0));
        assert_eq!(TIMINGS.decode_rate(), Some(256.0));
        assert_eq!(
            Timings {
                generated_tokens: 1,
                ..TIMINGS
            }
            .decode_rate(),
            None
        );
        assert_eq!(Timings::default().prompt_rate(), None);
    }

    #[test]
    fn as_json() {
        let json = serde_json::to_value(TIMINGS).unwrap();
        assert_eq!(
            (&json["prompt_tokens"], &json["decode_tokens_per_second"]),
            (&14.into(), &256.0.into())
        );
        assert!(serde_json::to_value(Timings::default()).unwrap()["prompt_tokens_per_second"].is_null());
    }

    #[test]
    fn the_line() {
        let stats = Stats {
            model: "tiny (qwen3moe)",
            device: "CPU",
            timings: TIMINGS,
            memory_bytes: 10_200_000,
        };
        let expected = "tiny (qwen3moe) | CPU | prompt 14 tokens at 500.0 tok/s | first token 28.0 ms \
                        | generated 129 tokens at 256.0 tok/s | memory 10.20 MB";
        assert_eq!(stats.to_string(), expected);
    }

    #[test]
    fn units() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(98_304), "98.30 kB");
        assert_eq!(bytes(18_600_000_000), "18.60 GB");
        assert_eq!([duration(0.0123), duration(12.345)], ["12.3 ms", "12.35 s"]);
    }
}
