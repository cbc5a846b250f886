//! Bad situations on a GPU: memory that runs out, several processes, Ctrl-C, a hidden GPU; and whether everything taken
//! is given back.
//!
//! Whatever happens, the program says it in one line, and the GPU's free memory is what it was.

use anyhow::{Context, Result, anyhow, bail, ensure};
use sparkinfer::cuda::{Buffer, Gpu};
use sparkinfer::engine::Engine;
use sparkinfer::gpu::cuda::CudaDevice;
use sparkinfer::gpu::{Backend, GpuEngine, GpuOptions, needs};
use sparkinfer::model::ModelSpec;
use sparkinfer::sample::{SampleOptions, Sampler};
use sparkinfer::synth::{Mix, Preset, Synth, SynthOptions};
use sparkinfer_gguf::Gguf;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// Room for tokens.
const CONTEXT: usize = 256;
/// Tokens generated in each run.
const TOKENS: usize = 12;
/// What the driver may keep of its own, in bytes: the smallest piece that it takes from the device.
const SLACK: u64 = 2 << 20;

/// Where situations are made.
pub struct Place<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// Its number.
    pub number: Option<u32>,
    /// The program `sparkinfer`.
    pub program: PathBuf,
}

/// One situation: a name, and what is tried. It returns a remark.
pub type Situation = (&'static str, fn(&Place<'_>) -> Result<String>);

/// All situations.
pub const SITUATIONS: &[Situation] = &[
    ("situation/100 loads give all memory back", loads),
    ("situation/the prediction is what is taken", predicted),
    ("situation/too little memory for a model", too_little),
    ("situation/memory runs out while a model loads", runs_out_in_load),
    ("situation/memory runs out while text is made", runs_out_in_run),
    ("situation/two processes at once", two_processes),
    ("situation/Ctrl-C in mid text", interrupted),
    ("situation/no GPU to be seen", hidden),
];

/// A small model in memory.
struct Small {
    gguf: Gguf,
    spec: ModelSpec,
}

impl Small {
    fn new() -> Result<Self> {
        let options = SynthOptions {
            preset: Preset::find("small-qwen3moe")?,
            mix: Mix::Q4KM,
            layers: None,
            seed: 5,
            vocabulary: None,
        };
        let gguf = Gguf::from_vec("small-qwen3moe", Synth::new(&options)?.to_vec()?)?;
        let spec = ModelSpec::from_gguf(&gguf)?;
        Ok(Self { gguf, spec })
    }

    fn load<B: Backend>(&self, backend: B, progress: &mut dyn FnMut(u64, u64)) -> Result<GpuEngine<B>> {
        Ok(GpuEngine::load(backend, &self.gguf, &self.spec, CONTEXT, progress)?)
    }

    /// Loads the model, uses it in both ways of choosing tokens and with two sequences, and drops it.
    fn round<B: Backend>(&self, backend: B) -> Result<Vec<u32>> {
        let mut engine = self.load(backend, &mut |_, _| {})?;
        let mut tokens = run(&mut engine, 0.0)?;
        let fork = engine.fork(2)?;
        engine.switch(fork)?;
        tokens.extend(run(&mut engine, 1.0)?);
        Ok(tokens)
    }
}

/// The tokens behind a short prompt.
fn run(engine: &mut dyn Engine, temperature: f32) -> Result<Vec<u32>> {
    let options = SampleOptions {
        temperature,
        seed: 1,
        ..SampleOptions::default()
    };
    let mut tokens = Vec::new();
    engine.generate(&[3, 1, 4, 1, 5], &mut Sampler::new(options), TOKENS, &mut |token| {
        tokens.push(token);
        ControlFlow::Continue(())
    })?;
    Ok(tokens)
}

impl Place<'_> {
    fn free(&self) -> Result<u64> {
        self.gpu.stream().synchronize()?;
        Ok(self.gpu.context().free_bytes()?.0 as u64)
    }

    fn device(&self) -> Result<CudaDevice> {
        Ok(CudaDevice::open(self.number)?)
    }

    /// Takes device memory until no more than `rest` bytes are free.
    fn ballast(&self, rest: u64) -> Result<Vec<Buffer<u8>>> {
        let mut all = Vec::new();
        loop {
            let bytes = self.free()?.saturating_sub(rest).min(1 << 34) as usize;
            if bytes < 4 << 20 {
                return Ok(all);
            }
            // What the driver counts as free it may not give in one piece.
            let Some(buffer) = self.most_of(bytes) else {
                return Ok(all);
            };
            all.push(buffer);
        }
    }

    /// As many bytes as can be had, `bytes` at most and a mebibyte at least.
    fn most_of(&self, mut bytes: usize) -> Option<Buffer<u8>> {
        while bytes >= 1 << 20 {
            match Buffer::uninitialised(self.gpu.context(), bytes) {
                Ok(buffer) => return Some(buffer),
                Err(_) => bytes /= 2,
            }
        }
        None
    }

    /// Whether `before` bytes are free again.
    fn given_back(&self, before: u64) -> Result<String> {
        let after = self.free()?;
        let missing = before.saturating_sub(after);
        ensure!(missing <= SLACK, "{missing} bytes were not given back");
        Ok(format!("{missing} bytes missing"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `generate` on this GPU with the bundled model, and more arguments.
    fn generate(&self, more: &[&str]) -> Command {
        let device = format!("cuda:{}", self.number.unwrap_or(0));
        self.command(&[&["generate", "--device", &device, "--ignore-eos"], more].concat())
    }

    fn spawn(&self, mut command: Command) -> Result<Child> {
        command
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))
    }
}

fn loads(place: &Place<'_>) -> Result<String> {
    let small = Small::new()?;
    let tokens = small.round(place.device()?)?;
    let before = place.free()?;
    for round in 1..=100 {
        let again = small.round(place.device()?)?;
        ensure!(again == tokens, "round {round} chose {again:?}, not {tokens:?}");
    }
    place.given_back(before)
}

/// What a load takes of the device's free memory, beside what was predicted; the driver hands out whole pieces.
fn predicted(place: &Place<'_>) -> Result<String> {
    let small = Small::new()?;
    small.round(place.device()?)?;
    let device = place.device()?;
    let needs = needs(&small.spec, &GpuOptions::practical(CONTEXT), device.multiprocessors())?;
    let before = place.free()?;
    let engine = small.load(device, &mut |_, _| {})?;
    let taken = before - place.free()?;
    drop(engine);
    let verdict = format!("{} bytes predicted, {taken} taken", needs.total());
    let pieces = 8 * SLACK;
    ensure!(
        taken * 100 <= needs.total() * 103 + 100 * pieces && taken * 100 >= needs.total() * 97,
        verdict
    );
    Ok(verdict)
}

/// The error's text, which must be one line, of a load that must fail.
fn refusal<T>(outcome: Result<T>) -> Result<String> {
    let Err(error) = outcome else { bail!("it was loaded") };
    let text = format!("{error:#}");
    ensure!(text.lines().count() == 1, "more than a line: {text}");
    Ok(text)
}

fn too_little(place: &Place<'_>) -> Result<String> {
    let small = Small::new()?;
    small.round(place.device()?)?;
    let before = place.free()?;
    let device = place.device()?;
    let ballast = place.ballast(8 << 20)?;
    let text = refusal(small.load(device, &mut |_, _| {}))?;
    drop(ballast);
    ensure!(text.contains("MiB are needed"), "{text}");
    place.given_back(before).map(|_| text)
}

/// Memory is there when the load begins, and gone once the weights are placed.
fn runs_out_in_load(place: &Place<'_>) -> Result<String> {
    let small = Small::new()?;
    small.round(place.device()?)?;
    let before = place.free()?;
    let mut ballast = Ok(Vec::new());
    let load = small.load(place.device()?, &mut |done, all| {
        if done == all {
            ballast = place.ballast(1 << 20);
        }
    });
    let text = refusal(load)?;
    drop(ballast?);
    ensure!(text.contains("out of GPU memory"), "{text}");
    place.given_back(before)?;
    small.round(place.device()?)?;
    Ok(text)
}

/// Nothing is allocated for a text; a recording for new settings may be refused, in words, and then works again.
fn runs_out_in_run(place: &Place<'_>) -> Result<String> {
    let small = Small::new()?;
    let mut engine = small.load(place.device()?, &mut |_, _| {})?;
    let greedy = run(&mut engine, 0.0)?;
    engine.reset();
    let ballast = place.ballast(0)?;
    ensure!(run(&mut engine, 0.0)? == greedy, "other tokens without free memory");
    engine.reset();
    let sampled = run(&mut engine, 1.0);
    drop(ballast);
    engine.reset();
    let expected = run(&mut engine, 1.0)?;
    match sampled {
        Ok(tokens) => ensure!(tokens == expected, "other sampled tokens without free memory"),
        Err(error) => return Ok(format!("greedy goes on; new settings: {error}")),
    }
    Ok("both go on".into())
}

/// The ids that `generate --json` printed.
fn output_ids(output: &Output) -> Result<Vec<u64>> {
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let ids = answer["output_ids"].as_array().context("no output_ids")?;
    Ok(ids.iter().filter_map(serde_json::Value::as_u64).collect())
}

fn two_processes(place: &Place<'_>) -> Result<String> {
    let arguments = ["--json", "--quiet", "-n", "256", "--prompt", "Emma"];
    let alone = output_ids(&place.spawn(place.generate(&arguments))?.wait_with_output()?)?;
    let before = place.free()?;
    let both = [
        place.spawn(place.generate(&arguments))?,
        place.spawn(place.generate(&arguments))?,
    ];
    for process in both {
        ensure!(
            output_ids(&process.wait_with_output()?)? == alone,
            "other tokens beside another process"
        );
    }
    place.given_back(before)?;
    Ok(format!("{} tokens each", alone.len()))
}

fn interrupted(place: &Place<'_>) -> Result<String> {
    let before = place.free()?;
    let mut process = place.spawn(place.generate(&["-n", "2000", "--prompt", "Emma"]))?;
    let mut first = [0];
    process
        .stdout
        .as_mut()
        .ok_or_else(|| anyhow!("no standard output"))?
        .read_exact(&mut first)?;
    let killed = Command::new("kill")
        .args(["-INT", &process.id().to_string()])
        .status()?;
    ensure!(killed.success(), "the signal could not be sent");
    let output = process.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(130), "{}: {errors}", output.status);
    ensure!(errors.lines().count() == 1, "more than a line: {errors}");
    place.given_back(before)?;
    Ok(errors.trim_end().to_owned())
}

/// Without a visible GPU, asking for one is an error of one line, and not asking for one is the CPU.
fn hidden(place: &Place<'_>) -> Result<String> {
    let hide = |mut command: Command| {
        command.env("CUDA_VISIBLE_DEVICES", "");
        command
    };
    let asked = place.spawn(hide(place.generate(&["-n", "4"])))?.wait_with_output()?;
    let errors = String::from_utf8_lossy(&asked.stderr);
    ensure!(asked.status.code() == Some(1), "{}: {errors}", asked.status);
    ensure!(
        errors.lines().count() == 1 && errors.starts_with("error: "),
        "not one line: {errors}"
    );
    let any = ["generate", "--json", "--quiet", "-n", "4", "--ignore-eos"];
    let automatic = place.spawn(hide(place.command(&any)))?.wait_with_output()?;
    ensure!(output_ids(&automatic)?.len() == 4, "the CPU was not used");
    Ok(errors.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkinfer::gpu::emulated::Emulated;

    #[test]
    fn a_round_in_the_emulator() {
        let small = Small::new().expect("the preset is there");
        let tokens = small.round(Emulated::default()).expect("it runs");
        assert_eq!(tokens.len(), 2 * TOKENS);
    }

    #[test]
    fn a_refusal_is_one_line() {
        assert_eq!(refusal::<()>(Err(anyhow!("no"))).expect("it is one"), "no");
        assert!(refusal::<()>(Err(anyhow!("no\nno"))).is_err());
        assert!(refusal(Ok(())).is_err());
    }
}
