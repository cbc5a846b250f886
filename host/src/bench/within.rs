//! Other programs, which may hang: run to their end within a time.

use std::io::{self, ErrorKind, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Runs a program, as [`Command::output`] does; one that has not ended within `limit` is killed.
///
/// # Errors
/// A program that cannot be run; [`ErrorKind::TimedOut`] for one that was killed.
pub fn output_within(command: &mut Command, limit: Duration) -> io::Result<Output> {
    command.stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let status = wait(&mut child, limit)?;
    Ok(Output {
        status,
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    })
}

/// Reads to the end, beside the caller: who waits for a program whose output nobody takes waits for ever.
fn read(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is what there is to show.
        let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
        bytes
    })
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            let problem = format!(
                "not done within {} s, stopped: give it more with --peer-limit",
                limit.as_secs()
            );
            return Err(io::Error::new(ErrorKind::TimedOut, problem));
        }
        thread::sleep(LOOK);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> io::Result<Output> {
        output_within(Command::new("sh").args(["-c", script]), limit)
    }

    #[test]
    fn what_ends_in_time_is_told_whole() {
        let script = "cat; echo out; i=0; while [ $i -lt 9000 ]; do echo 0123456789 >&2; i=$((i+1)); done; exit 3";
        let output = shell(script, Duration::from_secs(60)).unwrap();
        assert_eq!((output.stdout, output.stderr.len()), (b"out\n".to_vec(), 99_000));
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn what_hangs_is_stopped() {
        let start = Instant::now();
        let error = shell("exec sleep 60", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("--peer-limit"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
