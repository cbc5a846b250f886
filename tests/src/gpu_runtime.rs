//! The GPU run time itself, tried on a GPU: launches, graphs, memory, copies, timers.

use anyhow::{Result, bail, ensure};
use cuda_std::launch::{Launcher, PreparedLaunch};
use cuda_std::{DevicePtr, F32x2};
use sparkinfer::cuda::{Buffer, Error, Gpu, Graph, Module, Pinned, Staging, bandwidth};
use sparkinfer_device::rope::{self, Heads, rope_neox};
use sparkinfer_device::{stream, testing};
use std::time::Instant;

/// One trial: a name, and what it does. It returns a remark.
pub type Trial = (&'static str, fn(&Gpu) -> Result<String>);

/// All trials.
pub const TRIALS: &[Trial] = &[
    ("runtime/graph replays as eager launches run", agree),
    ("runtime/buffers are accounted and freed", accounted),
    ("runtime/too much memory is refused in words", too_much),
    ("runtime/too much shared memory is refused", too_much_shared),
    ("runtime/staged copies arrive", staged),
    ("runtime/the host sees what a kernel writes", host_visible),
    ("runtime/modules come from the cache", reloaded),
    ("runtime/streaming read", streamed),
];

/// Rotations of a few heads in place, each starting from the last one's result.
struct Chain {
    x: Buffer<f32>,
    _position: Buffer<u32>,
    _table: Buffer<F32x2>,
    launch: PreparedLaunch,
    start: Vec<f32>,
}

impl Chain {
    const HEADS: usize = 32;
    const DIMS: usize = 128;

    fn new(gpu: &Gpu) -> Result<Self> {
        let start = testing::floats(1, Self::HEADS * Self::DIMS, 1.0);
        let radians = testing::radians(Self::DIMS, 1e6);
        let stride = (Self::HEADS * Self::DIMS) as u32;
        let heads = Heads {
            rotary: Self::DIMS as u32,
            head_stride: Self::DIMS as u32,
            token_stride: stride,
            magnitude: 1.0,
        };
        let x = Buffer::from_slice(gpu.stream(), &start)?;
        let position = Buffer::from_slice(gpu.stream(), &[12_345u32])?;
        let table = Buffer::from_slice(gpu.stream(), &rope::table(&radians))?;
        let shape = rope::config(heads, Self::HEADS, 1)?;
        let launch = rope_neox::prepare(shape, x.ptr(), position.ptr(), table.ptr(), heads);
        Ok(Self {
            x,
            _position: position,
            _table: table,
            launch,
            start,
        })
    }

    /// The bits after `run`, from the same start each time.
    fn bits(&mut self, gpu: &Gpu, run: impl FnOnce(&PreparedLaunch) -> Result<(), Error>) -> Result<Vec<u32>> {
        self.x.write(gpu.stream(), 0, &self.start)?;
        run(&self.launch)?;
        Ok(self
            .x
            .to_vec(gpu.stream())?
            .iter()
            .map(|value| value.to_bits())
            .collect())
    }
}

/// Forty rotations: one by one, one by one with dependent launch, and as five replays of a graph of eight.
fn agree(gpu: &Gpu) -> Result<String> {
    const STEPS: usize = 40;
    const NODES: usize = 8;
    let mut chain = Chain::new(gpu)?;
    let many = |launch: &PreparedLaunch, count: usize| (0..count).try_for_each(|_| gpu.launch(launch));
    let plain = |launch: &PreparedLaunch| launch.clone().with_config(launch.config().pdl(false));
    let apart = chain.bits(gpu, |launch| many(&plain(launch), STEPS))?;
    let dependent = chain.bits(gpu, |launch| many(launch, STEPS))?;
    let graph = Graph::capture(gpu.stream(), || many(&chain.launch, NODES))?;
    let replayed = chain.bits(gpu, |_| (0..STEPS / NODES).try_for_each(|_| graph.launch(gpu.stream())))?;
    let verdict = format!(
        "{} nodes; dependent {}, replayed {}",
        graph.nodes(),
        if dependent == apart { "equal" } else { "DIFFERENT" },
        if replayed == apart { "equal" } else { "DIFFERENT" },
    );
    ensure!(
        graph.nodes() == NODES && dependent == apart && replayed == apart,
        verdict
    );
    Ok(verdict)
}

fn accounted(gpu: &Gpu) -> Result<String> {
    let before = gpu.context().allocated_bytes();
    let buffer = Buffer::<f32>::zeroed(gpu.stream(), 1_000_000)?;
    let during = gpu.context().allocated_bytes() - before;
    let zeros = buffer.to_vec(gpu.stream())?.iter().all(|value| *value == 0.0);
    drop(buffer);
    let after = gpu.context().allocated_bytes();
    let verdict = format!("{during} bytes held, {} left, zeros {zeros}", after - before);
    ensure!(during == 4_000_000 && after == before && zeros, verdict);
    Ok(verdict)
}

fn too_much(gpu: &Gpu) -> Result<String> {
    let bytes = gpu.context().device().memory_bytes * 2;
    match Buffer::<u8>::uninitialised(gpu.context(), bytes) {
        Err(error @ Error::OutOfMemory { .. }) => Ok(error.to_string()),
        Err(other) => bail!("another error: {other}"),
        Ok(_) => bail!("{bytes} bytes were given"),
    }
}

fn too_much_shared(gpu: &Gpu) -> Result<String> {
    let chain = Chain::new(gpu)?;
    let shape = chain.launch.config().shared(227 * 1024 + 1024);
    match gpu.launch(&chain.launch.clone().with_config(shape)) {
        Err(error @ (Error::SharedMemory { .. } | Error::Launch(_))) => Ok(error.to_string()),
        Err(other) => bail!("another error: {other}"),
        Ok(()) => bail!("it was launched"),
    }
}

/// Five pieces of growing size through two slots.
fn staged(gpu: &Gpu) -> Result<String> {
    let mut staging = Staging::new(gpu.context())?;
    let data = testing::bytes(2, 15 << 16);
    let target = Buffer::<u8>::zeroed(gpu.stream(), data.len())?;
    let mut start = 0;
    for piece in 1..=5 {
        let bytes = piece << 16;
        let part = &data[start..start + bytes];
        staging.upload(gpu.stream(), target.ptr().add(start), bytes, |slot| {
            slot.copy_from_slice(part);
            Ok::<(), Error>(())
        })?;
        start += bytes;
    }
    ensure!(target.to_vec(gpu.stream())? == data, "the bytes differ");
    Ok(format!("{start} bytes"))
}

fn host_visible(gpu: &Gpu) -> Result<String> {
    let data: Vec<u32> = (0..4096).collect();
    let input = Buffer::from_slice(gpu.stream(), &data)?;
    let sums = Pinned::<u32>::zeroed(gpu.context(), 128)?;
    let source: DevicePtr<u32> = input.ptr();
    gpu.launch(&stream::launch(source.cast(), input.bytes(), 1, 128, sums.ptr())?)?;
    gpu.stream().synchronize()?;
    let total = (0..sums.len()).fold(0u32, |total, index| total.wrapping_add(sums.load(index)));
    let wanted = stream::reference(&data);
    ensure!(total == wanted, "sum {total}, not {wanted}");
    Ok(format!("sum {total}"))
}

fn reloaded(gpu: &Gpu) -> Result<String> {
    let start = Instant::now();
    let module = Module::load(gpu.context())?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    Ok(format!("{} again in {milliseconds:.1} ms", module.embedded().arch))
}

/// The measured bandwidth must be one that a GPU can have: at least a quarter of what the memory's clock allows.
fn streamed(gpu: &Gpu) -> Result<String> {
    let measured = bandwidth::measure(gpu)?;
    let nominal = gpu.context().device().nominal_bandwidth();
    let verdict = format!("{:.0} GB/s of {:.0}", measured / 1e9, nominal.unwrap_or(0.0) / 1e9);
    let plausible = nominal.is_none_or(|nominal| measured > nominal / 4.0 && measured < nominal * 1.05);
    ensure!(plausible, verdict);
    Ok(verdict)
}
