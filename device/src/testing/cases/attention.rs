//! A step of attention on random heads, caches and positions, against f64.
//!
//! Pages lie in a shuffled order, and every element of the cache that no token has written is a NaN: a kernel that
//! lets one through fails.

use crate::decode::attention::{
    AttentionBuffers, AttentionInputs, AttentionOutputs, AttentionPlan, AttentionShape, attention, general::general,
};
use crate::decode::{StepState, kv, rope::Pairing};
use crate::rope;
use crate::testing::{Case, Machine, Random, floats, radians, within};
use cuda_std::launch::PreparedLaunch;
use cuda_std::{DevicePtr, F32x2};

/// What varies between steps.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
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
            page_stride: kv::page_elements(self.kv_heads, self.head_dim) + 8,
            least_chunks: 1 + self.position % 2,
            eps: 1e-6,
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            mscale: 1.0 + 0.1 * (self.position % 3) as f32,
            softcap: self.softcap,
        }
    }

    /// A pool of pages; what no token has written is NaN.
    pub(crate) fn pool(&self, table: &[u32], seed: u64, at: impl Fn(u32, u32) -> usize) -> Vec<u16> {
        let stride = self.shape().page_stride;
        let mut pool = vec![0x7e00u16; table.len() * stride as usize];
        let mut random = Random::new(seed);
        for token in 0..self.position {
            for head in 0..self.kv_heads {
                let base = kv::head_base(table[(token / kv::PAGE_TOKENS) as usize], stride, head, self.head_dim);
                for dim in 0..self.head_dim {
                    let value = half::f16::from_f32(random.normal());
                    pool[base + at(token % kv::PAGE_TOKENS, dim)] = value.to_bits();
                }
            }
        }
        pool
    }
}

/// A step with its contents, on the host.
struct Step {
    setting: Setting,
    qkv: Vec<f32>,
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
    frequencies: Vec<F32x2>,
    table: Vec<u32>,
    keys: Vec<u16>,
    values: Vec<u16>,
}

impl Step {
    fn new(setting: Setting, seed: u64) -> Self {
        let pages = kv::pages_of(setting.position + 1);
        let table: Vec<u32> = (0..pages).map(|i| (i + pages / 2) % pages).collect();
        let (dim, rows) = (
            setting.head_dim as usize,
            (setting.heads + 2 * setting.kv_heads) as usize,
        );
        Self {
            qkv: floats(seed, rows * dim, 1.5),
            q_norm: floats(seed + 1, dim, 1.0),
            k_norm: floats(seed + 2, dim, 1.0),
            frequencies: rope::table(&radians(setting.rotated as usize, 1e6)),
            keys: setting.pool(&table, seed + 3, |slot, d| kv::key_at(slot, d, setting.head_dim)),
            values: setting.pool(&table, seed + 4, kv::value_at),
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
            keys: machine.upload(&self.keys)?,
            values: machine.upload(&self.values)?,
            partial: machine.output(workspace)?,
            counters: machine.upload(&vec![0u32; self.setting.kv_heads as usize])?,
            out: machine.output((self.setting.heads * self.setting.head_dim) as usize)?,
        })
    }

    /// Runs `launch` and compares everything that it writes; weights are rounded to f16, 2⁻¹¹ each, with random signs.
    fn check(&self, machine: &mut dyn Machine, b: &AttentionBuffers, launch: &PreparedLaunch) -> Result<f64, String> {
        machine.run(launch)?;
        let want = self.expected();
        let allowed = 5e-4 * want.out.iter().fold(1e-3f64, |m, v| m.max(v.abs()));
        let worst = within("out", &machine.download(b.out, want.out.len())?, &want.out, |_| allowed)?;
        self.check_cache(machine, b, &want)?;
        let counters = machine.download(b.counters, self.setting.kv_heads as usize)?;
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
        let s = &self.setting;
        let (mut keys, mut values) = (self.keys.clone(), self.values.clone());
        let (slot, page) = (
            s.position % kv::PAGE_TOKENS,
            self.table[(s.position / kv::PAGE_TOKENS) as usize],
        );
        for i in 0..s.kv_heads * s.head_dim {
            let (base, dim) = (
                kv::head_base(page, s.shape().page_stride, i / s.head_dim, s.head_dim),
                i % s.head_dim,
            );
            keys[base + kv::key_at(slot, dim, s.head_dim)] = want.key[i as usize];
            values[base + kv::value_at(slot, dim)] = want.value[i as usize];
        }
        // A key goes through f32: it may round to the neighbour.
        let differs = |got: &[u16], want: &[u16], by: u16| got.iter().zip(want).position(|(g, w)| g.abs_diff(*w) > by);
        if let Some(i) = differs(&machine.download(b.keys, keys.len())?, &keys, 1) {
            return Err(format!("element {i} of the keys is not {:#x}", keys[i]));
        }
        if let Some(i) = differs(&machine.download(b.values, values.len())?, &values, 0) {
            return Err(format!("element {i} of the values is not {:#x}", values[i]));
        }
        Ok(())
    }
}

/// The fast kernels on `splits` blocks a key head, of `warps` warps.
pub(crate) fn fast(
    machine: &mut dyn Machine,
    setting: Setting,
    splits: u32,
    warps: u32,
    seed: u64,
) -> Result<f64, String> {
    let plan = AttentionPlan::new(setting.shape(), setting.head_dim, 132)
        .map_err(|e| e.to_string())?
        .with(splits, warps);
    let step = Step::new(setting, seed);
    let buffers = step.upload(machine, plan.workspace_floats())?;
    step.check(machine, &buffers, &attention(&plan, buffers))
}

/// The general kernel.
pub(crate) fn slow(machine: &mut dyn Machine, setting: Setting, seed: u64) -> Result<f64, String> {
    let step = Step::new(setting, seed);
    let buffers = step.upload(machine, 0)?;
    let launch = general(setting.shape(), setting.head_dim, buffers).map_err(|e| e.to_string())?;
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

fn random_fast(machine: &mut dyn Machine, seed: u64, head_dim: u32, wide: bool) -> Result<f64, String> {
    let mut setting = random(seed, head_dim, 8);
    if wide {
        (setting.heads, setting.kv_heads) = (9 + (seed % 8) as u32, 1);
    }
    fast(machine, setting, 1 + (seed % 5) as u32, 1 + (seed % 4) as u32, seed)
}

fn random_slow(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let dim = [64, 80, 96, 128, 256, 512][(seed % 6) as usize];
    let mut setting = random(seed, dim, 4);
    setting.position = setting.position.min(70);
    setting.softcap = [0.0, 5.0][(seed % 2) as usize];
    slow(machine, setting, seed)
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "attention_64",
        run: |m, seed| random_fast(m, seed, 64, false),
    },
    Case {
        name: "attention_128",
        run: |m, seed| random_fast(m, seed, 128, false),
    },
    Case {
        name: "attention_256",
        run: |m, seed| random_fast(m, seed, 256, false),
    },
    Case {
        name: "attention_64_wide",
        run: |m, seed| random_fast(m, seed, 64, true),
    },
    Case {
        name: "attention_128_wide",
        run: |m, seed| random_fast(m, seed, 128, true),
    },
    Case {
        name: "attention_128/4096",
        run: |m, seed| fast(m, Setting::new(32, 4, 128, 4000 + seed as u32), 33, 4, seed),
    },
    Case {
        name: "attention_general",
        run: random_slow,
    },
];
