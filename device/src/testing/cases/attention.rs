//! A step of attention on random heads, caches and positions, against f64.
//!
//! Pages lie in a shuffled order, and every value of the cache that no token has written is a NaN: a kernel that lets one
//! through fails.

use crate::decode::attention::{
    AttentionBuffers, AttentionInputs, AttentionOutputs, AttentionPlan, AttentionShape, Parts, attention,
    general::general,
};
use crate::decode::kv::{self, Cell, KvFormat, Pool};
use crate::decode::{StepState, rope::Pairing};
use crate::rope;
use crate::testing::{Case, Machine, Random, floats, radians, within};
use cuda_std::launch::PreparedLaunch;
use cuda_std::{DevicePtr, F32x2};

/// What varies between steps.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub format: KvFormat,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub position: u32,
    pub window: u32,
    pub normed: bool,
    pub pairing: Pairing,
    pub rotated: u32,
    pub softcap: f32,
}

impl Setting {
    pub(crate) const fn new(heads: u32, kv_heads: u32, head_dim: u32, position: u32) -> Self {
        let pairing = Pairing::Halves;
        let (window, normed, softcap) = (0, true, 0.0);
        Self {
            format: KvFormat::F16,
            heads,
            kv_heads,
            head_dim,
            position,
            window,
            normed,
            pairing,
            rotated: head_dim,
            softcap,
        }
    }

    pub(crate) fn shape(&self) -> AttentionShape {
        AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            rotated: self.rotated,
            pairing: self.pairing as u32,
            window: self.window,
            page_bytes: self.format.page_bytes(self.kv_heads, self.head_dim) + 16,
            least_chunks: 1 + self.position % 2,
            eps: 1e-6,
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            mscale: 1.0 + 0.1 * (self.position % 3) as f32,
            softcap: self.softcap,
        }
    }

    /// The cell of `kv_head` at `position`.
    pub(crate) fn cell(table: &[u32], position: u32, kv_head: u32) -> Cell {
        Cell {
            page: table[(position / kv::PAGE_TOKENS) as usize],
            slot: position % kv::PAGE_TOKENS,
            kv_head,
        }
    }

    /// A pool of keys or values; what no token has written is NaN.
    pub(crate) fn pool(&self, table: &[u32], keys: bool, seed: u64) -> Pool {
        let page_bytes = self.shape().page_bytes;
        let mut pool = Pool {
            format: self.format,
            head_dim: self.head_dim,
            page_bytes,
            keys,
            bytes: vec![0xff; table.len() * page_bytes as usize],
        };
        let mut random = Random::new(seed);
        for position in 0..self.position {
            for head in 0..self.kv_heads {
                let values: Vec<f32> = (0..self.head_dim).map(|_| random.normal()).collect();
                pool.put(Self::cell(table, position, head), &values);
            }
        }
        pool
    }
}

/// The same pools, but for the cells of `written`: those hold nearly the values that they hold in `want`.
pub(crate) fn same_pool(got: &[u8], want: &Pool, before: &[u8], written: &[Cell]) -> Result<(), String> {
    let what = if want.keys { "keys" } else { "values" };
    let mut rest = vec![true; got.len()];
    let stored = Pool {
        bytes: got.to_vec(),
        ..want.clone()
    };
    for &cell in written {
        want.bytes_of(cell).into_iter().for_each(|byte| rest[byte] = false);
        let values: Vec<f32> = (0..want.head_dim).map(|dim| want.get(cell, dim)).collect();
        let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        for (dim, value) in (0..).zip(values) {
            // A key goes through f32: it may round to the neighbour. A value does not.
            let allowed = match (want.keys, want.format) {
                (false, _) => 0.0,
                (true, KvFormat::F16) => value.abs() / 1000.0,
                (true, KvFormat::Bf16) => value.abs() / 120.0,
                (true, KvFormat::Q8_0) => largest / 120.0,
            };
            let got = stored.get(cell, dim);
            let far = (got - value).abs();
            if far.is_nan() || far > allowed + 1e-7 {
                return Err(format!("{what}: dim {dim} of {cell:?} is {got}, not {value}"));
            }
        }
    }
    match (0..got.len()).find(|&byte| rest[byte] && got[byte] != before[byte]) {
        Some(byte) => Err(format!("{what}: byte {byte} has changed, and belongs to no new token")),
        None => Ok(()),
    }
}

/// The pages of a sequence: in order, all of them elsewhere, or the first and the last one exchanged.
fn page_table(pages: u32, seed: u64) -> Vec<u32> {
    let mut table: Vec<u32> = (0..pages).collect();
    match seed % 3 {
        0 => {}
        1 => table.rotate_left(pages as usize / 2),
        _ => table.swap(0, pages as usize - 1),
    }
    table
}

/// A step with its contents, on the host.
struct Step {
    setting: Setting,
    qkv: Vec<f32>,
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
    frequencies: Vec<F32x2>,
    table: Vec<u32>,
    keys: Pool,
    values: Pool,
}

impl Step {
    fn new(setting: Setting, seed: u64) -> Self {
        let pages = kv::pages_of(setting.position + 1);
        let table = page_table(pages, seed);
        let (dim, rows) = (
            setting.head_dim as usize,
            (setting.heads + 2 * setting.kv_heads) as usize,
        );
        Self {
            qkv: floats(seed, rows * dim, 1.5),
            q_norm: floats(seed + 1, dim, 1.0),
            k_norm: floats(seed + 2, dim, 1.0),
            frequencies: rope::table(&radians(setting.rotated as usize, 1e6)),
            keys: setting.pool(&table, true, seed + 3),
            values: setting.pool(&table, false, seed + 4),
            table,
            setting,
        }
    }

    fn expected(&self) -> AttentionOutputs {
        AttentionInputs {
            shape: self.setting.shape(),
            head_dim: self.setting.head_dim as usize,
            position: self.setting.position,
            qkv: &self.qkv,
            norms: self.setting.normed.then_some((&self.q_norm, &self.k_norm)),
            frequencies: &self.frequencies,
            table: &self.table,
            keys: &self.keys,
            values: &self.values,
        }
        .run()
    }

    fn upload(&self, machine: &mut dyn Machine, workspace: usize) -> Result<AttentionBuffers, String> {
        let normed = self.setting.normed;
        let mut norm = |w: &[f32]| {
            if normed {
                machine.upload(w)
            } else {
                Ok(DevicePtr::null())
            }
        };
        let (q_norm, k_norm) = (norm(&self.q_norm)?, norm(&self.k_norm)?);
        let state = StepState {
            position: self.setting.position,
            ..StepState::default()
        };
        Ok(AttentionBuffers {
            qkv: machine.upload(&self.qkv)?,
            q_norm,
            k_norm,
            frequencies: machine.upload(&self.frequencies)?,
            state: machine.upload(&[state])?,
            table: machine.upload(&self.table)?,
            keys: machine.upload(&self.keys.bytes)?,
            values: machine.upload(&self.values.bytes)?,
            partial: machine.output(workspace)?,
            counters: machine.upload(&vec![0u32; self.setting.heads as usize])?,
            out: machine.output((self.setting.heads * self.setting.head_dim) as usize)?,
        })
    }

    /// Runs `launch` and compares everything that it writes; weights are rounded to f16, 2⁻¹¹ each, with random signs.
    fn check(&self, machine: &mut dyn Machine, b: &AttentionBuffers, launch: &PreparedLaunch) -> Result<f64, String> {
        self.check_parts(machine, b, launch, None)
    }

    /// The same where the output is left in that many parts.
    fn check_parts(
        &self,
        machine: &mut dyn Machine,
        b: &AttentionBuffers,
        launch: &PreparedLaunch,
        parts: Option<(Parts, u32)>,
    ) -> Result<f64, String> {
        machine.run(launch)?;
        let want = self.expected();
        let allowed = 5e-4 * want.out.iter().fold(1e-3f64, |m, v| m.max(v.abs()));
        let out = match parts {
            Some((parts, count)) => merged(machine, &parts, count)?,
            None => machine.download(b.out, want.out.len())?,
        };
        let worst = within("out", &out, &want.out, |_| allowed)?;
        self.check_cache(machine, b, &want)?;
        let counters = machine.download(b.counters, self.setting.heads as usize)?;
        if counters.iter().any(|&c| c != 0) {
            return Err(format!("counters are left at {counters:?}"));
        }
        Ok(worst)
    }

    /// The new token is in the cache, and nothing else has changed there.
    fn check_cache(
        &self,
        machine: &mut dyn Machine,
        b: &AttentionBuffers,
        want: &AttentionOutputs,
    ) -> Result<(), String> {
        let (s, dim) = (&self.setting, self.setting.head_dim as usize);
        let cells: Vec<Cell> = (0..s.kv_heads)
            .map(|head| Setting::cell(&self.table, s.position, head))
            .collect();
        for (pool, new, at) in [(&self.keys, &want.key, b.keys), (&self.values, &want.value, b.values)] {
            let mut expected = pool.clone();
            cells
                .iter()
                .zip(new.chunks(dim))
                .for_each(|(cell, values)| expected.put(*cell, values));
            let got = machine.download(at, pool.bytes.len())?;
            same_pool(&got, &expected, &pool.bytes, &cells)?;
        }
        Ok(())
    }
}

/// The output that `count` parts make.
pub(super) fn merged(machine: &mut dyn Machine, parts: &Parts, count: u32) -> Result<Vec<f32>, String> {
    let (heads, dim, count) = (parts.heads as usize, 1 << parts.dim_bits, count as usize);
    let behind = (parts.marks.as_raw() - parts.rows.as_raw()) as usize / 4;
    let rows = machine.download(parts.rows, behind + 2 * count * heads)?;
    let one = |i: usize| {
        let mark = |part: usize| &rows[behind + 2 * (part * heads + i / dim)..];
        let max = (0..count).fold(f32::NEG_INFINITY, |max, part| max.max(mark(part)[0]));
        let factor = |part: usize| f64::from(mark(part)[0] - max).exp2();
        let sum: f64 = (0..count).map(|part| factor(part) * f64::from(mark(part)[1])).sum();
        let row = |part: usize| f64::from(rows[part * heads * dim + i]);
        ((0..count).map(|part| factor(part) * row(part)).sum::<f64>() / sum) as f32
    };
    Ok((0..heads * dim).map(one).collect())
}

/// The fast kernels on `splits` blocks a key head, of `warps` warps.
pub(crate) fn fast(
    machine: &mut dyn Machine,
    setting: Setting,
    splits: u32,
    warps: u32,
    seed: u64,
) -> Result<f64, String> {
    let plan = AttentionPlan::new(setting.shape(), setting.format, setting.head_dim, 132)
        .map_err(|e| e.to_string())?
        .with(splits, warps);
    let step = Step::new(setting, seed);
    let buffers = step.upload(machine, plan.workspace_floats())?;
    let worst = step.check(machine, &buffers, &attention(&plan, buffers))?;
    if !machine.clusters() {
        return Ok(worst);
    }
    let clustered = step.upload(machine, plan.workspace_floats())?;
    let other = step.check(machine, &clustered, &attention(&plan.clustered(true), clustered))?;
    Ok(worst.max(other).max(in_parts(machine, &step, &plan, seed)?))
}

/// The same in several clusters of as many splits each, at most eight; as few as fill the caches that are emulated.
fn in_parts(machine: &mut dyn Machine, step: &Step, plan: &AttentionPlan, seed: u64) -> Result<f64, String> {
    let plan = plan.in_parts(2 + (seed % 3) as u32, plan.splits.max(2));
    // What is left unwritten is no number.
    let buffers = AttentionBuffers {
        partial: machine.upload(&vec![f32::NAN; plan.workspace_floats()])?,
        ..step.upload(machine, 0)?
    };
    let Some(parts) = plan.parts_in(buffers.partial) else {
        return Ok(0.0);
    };
    step.check_parts(
        machine,
        &buffers,
        &attention(&plan, buffers),
        Some((parts, plan.parts())),
    )
}

/// The general kernel.
pub(crate) fn slow(machine: &mut dyn Machine, setting: Setting, seed: u64) -> Result<f64, String> {
    let step = Step::new(setting, seed);
    let buffers = step.upload(machine, 0)?;
    let launch = general(setting.shape(), setting.format, setting.head_dim, buffers).map_err(|e| e.to_string())?;
    step.check(machine, &buffers, &launch)
}

/// A setting with everything random but the head dim; `groups` query heads a key head at most.
fn random(seed: u64, head_dim: u32, groups: usize) -> Setting {
    let mut random = Random::new(seed);
    let mut below = |n: usize| random.below(n) as u32;
    let (kv_heads, group) = (1 + below(3), 1 + below(groups));
    let mut setting = Setting::new(kv_heads * group, kv_heads, head_dim, below(300));
    setting.window = [0, 0, 1 + below(100)][below(3) as usize];
    setting.normed = below(3) > 0;
    setting.pairing = [Pairing::Halves, Pairing::Neighbours][below(2) as usize];
    setting.rotated = [head_dim, head_dim, head_dim / 2][below(3) as usize];
    setting
}

fn random_fast(
    machine: &mut dyn Machine,
    seed: u64,
    format: KvFormat,
    head_dim: u32,
    wide: bool,
) -> Result<f64, String> {
    let mut setting = random(seed, head_dim, 8);
    setting.format = format;
    if wide {
        (setting.heads, setting.kv_heads) = (9 + (seed % 8) as u32, 1);
    }
    fast(machine, setting, 1 + (seed % 5) as u32, 1 + (seed % 4) as u32, seed)
}

fn random_slow(machine: &mut dyn Machine, seed: u64, format: KvFormat) -> Result<f64, String> {
    let dim = match format {
        KvFormat::Q8_0 => [64, 96, 160, 128, 256, 512][(seed % 6) as usize],
        _ => [64, 80, 88, 128, 256, 512][(seed % 6) as usize],
    };
    let mut setting = random(seed, dim, 4);
    setting.format = format;
    setting.position = setting.position.min(70);
    setting.softcap = [0.0, 5.0][(seed % 2) as usize];
    slow(machine, setting, seed)
}

/// Qwen3-30B-A3B's heads behind some 4,000 tokens.
fn deep(machine: &mut dyn Machine, seed: u64, format: KvFormat) -> Result<f64, String> {
    let setting = Setting {
        format,
        ..Setting::new(32, 4, 128, 4000 + seed as u32)
    };
    fast(machine, setting, 40, 4, seed)
}

macro_rules! cases {
    ($($name:literal, $function:ident($($arguments:expr),*);)*) => {
        pub(super) const CASES: &[Case] = &[$(Case { name: $name, run: |m, seed| $function(m, seed, $($arguments),*) }),*];
    };
}

cases! {
    "attention_64_f16", random_fast(KvFormat::F16, 64, false);
    "attention_64_bf16", random_fast(KvFormat::Bf16, 64, false);
    "attention_64_q8_0", random_fast(KvFormat::Q8_0, 64, false);
    "attention_128_f16", random_fast(KvFormat::F16, 128, false);
    "attention_128_bf16", random_fast(KvFormat::Bf16, 128, false);
    "attention_128_q8_0", random_fast(KvFormat::Q8_0, 128, false);
    "attention_256_f16", random_fast(KvFormat::F16, 256, false);
    "attention_256_bf16", random_fast(KvFormat::Bf16, 256, false);
    "attention_256_q8_0", random_fast(KvFormat::Q8_0, 256, false);
    "attention_64_f16_wide", random_fast(KvFormat::F16, 64, true);
    "attention_64_bf16_wide", random_fast(KvFormat::Bf16, 64, true);
    "attention_64_q8_0_wide", random_fast(KvFormat::Q8_0, 64, true);
    "attention_128_f16_wide", random_fast(KvFormat::F16, 128, true);
    "attention_128_bf16_wide", random_fast(KvFormat::Bf16, 128, true);
    "attention_128_q8_0_wide", random_fast(KvFormat::Q8_0, 128, true);
    "attention_128_f16/4096", deep(KvFormat::F16);
    "attention_128_q8_0/4096", deep(KvFormat::Q8_0);
    "attention_general_f16", random_slow(KvFormat::F16);
    "attention_general_bf16", random_slow(KvFormat::Bf16);
    "attention_general_q8_0", random_slow(KvFormat::Q8_0);
}
