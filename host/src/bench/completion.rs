//! llama.cpp's `llama-completion`: `llama-bench` takes no text, this one does, and tells what its steps took.

use std::ffi::OsString;
use std::path::Path;

/// How the peer is told to decode behind a text, as reports say it.
pub(super) const COMMAND: &str = "llama-completion -f TEXT -n TOKENS+1 --temp 0 --ignore-eos, its eval time";

/// Runs that may lose their times before that counts as a failure.
pub(super) const ATTEMPTS: usize = 8;

/// Tokens by which its prompt may differ from ours, besides a fiftieth: a text that was cut between two tokens need not
/// be read as the same ones, and special tokens in it are read as such.
const NEAR: usize = 8;

/// Its arguments to read the text of `file`, of about `depth` tokens, and to decode `tokens` tokens behind it, greedily and
/// past any end of text. The first one that it writes follows from the prompt; each further one takes a step.
pub(super) fn arguments(file: &Path, depth: usize, tokens: usize) -> Vec<OsString> {
    let room = depth + depth / 50 + NEAR + tokens + 64;
    let mut arguments: Vec<OsString> = vec!["-f".into(), file.into()];
    for (flag, number) in [("-n", tokens + 1), ("-c", room), ("--temp", 0)] {
        arguments.extend([flag.into(), number.to_string().into()]);
    }
    let rest = [
        "--ignore-eos",
        "--no-escape",
        "--no-display-prompt",
        "-no-cnv",
        "--perf",
    ];
    arguments.extend(rest.map(OsString::from));
    arguments
}

/// Tokens a second of the steps, from what it writes to standard error: from each step's start to its logits on the host,
/// the choice of a token left out. None where the times are missing: it ends without waiting for its log.
///
/// # Errors
/// Another number of steps or of tokens before them than was asked for.
pub(super) fn parse(log: &[u8], depth: usize, tokens: usize) -> Result<Option<f64>, String> {
    let log = String::from_utf8_lossy(log);
    let timed = |prompt: bool| {
        let line = |line: &&str| line.contains("eval time =") && line.contains("prompt eval time =") == prompt;
        log.lines().find(line).and_then(time)
    };
    let (Some((_, read)), Some((milliseconds, steps))) = (timed(true), timed(false)) else {
        return Ok(None);
    };
    // The last part of a prompt is a step, too, where it is one token.
    if steps < tokens || steps > tokens + 1 {
        return Err(format!("it took {steps} steps instead of {tokens}"));
    }
    let cached = read + steps - tokens;
    if cached.abs_diff(depth) > NEAR + depth / 50 {
        return Err(format!("it read the text as {cached} tokens instead of {depth}"));
    }
    let rate = 1e3 * steps as f64 / milliseconds;
    if rate.is_finite() && rate > 0.0 {
        Ok(Some(rate))
    } else {
        Err(format!("its steps took {milliseconds} ms"))
    }
}

/// Milliseconds and number of a line like `…eval time =   3.93 ms /   8 runs (…`.
fn time(line: &str) -> Option<(f64, usize)> {
    let (milliseconds, rest) = line.split_once("eval time =")?.1.split_once("ms /")?;
    let count = rest.split_whitespace().next()?;
    Some((milliseconds.trim().parse().ok()?, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = b"0.1 I generate: n_ctx = 4096\n\
        0.2 I common_perf_print:        load time =      53.41 ms\n\
        0.2 I common_perf_print: prompt eval time =     199.59 ms /   816 tokens (    0.24 ms per token)\n\
        0.2 I common_perf_print:        eval time =       4.00 ms /     8 runs   (    0.50 ms per token)\n";

    #[test]
    fn the_rate_is_that_of_the_steps() {
        assert_eq!(parse(LOG, 816, 8), Ok(Some(2000.0)));
        assert_eq!(parse(LOG, 820, 7), Ok(Some(2000.0)));
    }

    #[test]
    fn another_run_than_was_asked_for_is_refused() {
        assert!(parse(LOG, 816, 9).unwrap_err().contains("8 steps instead of 9"));
        assert!(parse(LOG, 816, 6).is_err());
        assert!(parse(LOG, 1000, 8).unwrap_err().contains("816 tokens instead of 1000"));
        assert_eq!(parse(&LOG[..200], 816, 8), Ok(None));
        let zero = String::from_utf8_lossy(LOG).replace("4.00 ms", "0.00 ms");
        assert!(parse(zero.as_bytes(), 816, 8).is_err());
    }

    #[test]
    fn the_text_has_room() {
        let words = arguments(Path::new("t"), 100, 5);
        let place = words.iter().position(|word| word == "-c").unwrap();
        assert_eq!(words[place + 1], "179");
        assert_eq!(words[..4], ["-f", "t", "-n", "6"]);
    }
}
