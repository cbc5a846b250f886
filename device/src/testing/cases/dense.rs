//! The fused kernels of dense layers, against f64 over the very weights: every type of weights, columns that end within a
//! tile.

use crate::decode::advance::advance;
use crate::decode::head::{Best, HeadShape};
use crate::decode::residual::Residual;
use crate::decode::state::{StepState, ring_token};
use crate::dense::apart::Apart;
use crate::dense::gated::{GatedShape, gated, gated_apart};
use crate::dense::head::head;
use crate::dense::project::project;
use crate::dense::qkv::{QkvShape, qkv, qkv_apart};
use crate::dense::residual::{Post, residual};
use crate::dense::{Kind, Matrix};
use crate::general::gated::{Activation, reference};
use crate::layout::{Shape, TileForm};
use crate::testing::tiled::normed;
use crate::testing::{Case, Machine, Random, floats, matrix, rms, within};
use cuda_std::DevicePtr;
use cuda_std::launch::PreparedLaunch;
use sparkinfer_gguf::types::TensorType;

/// Allowed error of a product with 16-bit activations, as a share of the results' size: rounding adds some 7e-5 where a few
/// of 64 columns are large, and the largest of hundreds is four times the usual one.
const PRODUCT: f64 = 5e-4;

/// A matrix in tiles, what its weights are, and its bias.
pub(super) struct Tiled {
    bytes: Vec<u8>,
    values: Vec<f32>,
    bias: Option<Vec<f32>>,
    /// Of a kind, or of a rare type.
    kind: u32,
    shape: Shape,
}

impl Tiled {
    pub(super) fn new(kind: Kind, shape: [usize; 2], seed: u64) -> Result<Self, String> {
        Self::of(kind.ty(), kind as u32, shape, seed)
    }

    /// Of a type whose number kernels know: in tiles, or where it has none as in the file.
    pub(super) fn of(ty: TensorType, kind: u32, [rows, columns]: [usize; 2], seed: u64) -> Result<Self, String> {
        let shape = Shape { rows, columns };
        let file = matrix(ty, seed, rows * columns)?;
        let bytes = match TileForm::of(ty) {
            Some(form) => {
                let mut bytes = vec![0; form.packed_bytes(shape)];
                form.pack(shape, &file.bytes, &mut bytes).map_err(|e| e.to_string())?;
                bytes
            }
            None => file.bytes,
        };
        Ok(Self {
            bytes,
            values: file.values,
            bias: (seed % 3 == 1).then(|| floats(seed + 9, rows.next_multiple_of(16), 0.5)),
            kind,
            shape,
        })
    }

    pub(super) fn rows(&self) -> usize {
        self.shape.rows
    }

    pub(super) fn upload(&self, machine: &mut dyn Machine) -> Result<Matrix, String> {
        let bias = self.bias.as_ref();
        Ok(Matrix {
            tiles: machine.upload(&self.bytes)?,
            bias: bias.map_or(Ok(DevicePtr::null()), |bias| machine.upload(bias))?,
            groups: self.shape.rows.div_ceil(16) as u32,
            scale: DevicePtr::null(),
            kind: self.kind,
        })
    }

    /// The products without the bias, in f64.
    pub(super) fn times(&self, x: &[f64]) -> Vec<f64> {
        let dot = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
        self.values.chunks(self.shape.columns).map(dot).collect()
    }

    pub(super) fn biased(&self, mut y: Vec<f64>) -> Vec<f64> {
        if let Some(bias) = &self.bias {
            y.iter_mut().zip(bias).for_each(|(y, b)| *y += f64::from(*b));
        }
        y
    }
}

pub(super) fn kind(random: &mut Random) -> Kind {
    Kind::ALL[random.below(Kind::ALL.len())]
}

/// Columns of a stream: multiples of 64 that the type's blocks divide.
pub(super) fn columns(kind: Kind, random: &mut Random) -> usize {
    columns_of(kind.ty(), random)
}

/// The same of any type.
pub(super) fn columns_of(ty: TensorType, random: &mut Random) -> usize {
    let step = ty.block_len().max(64);
    let small = [576, 896, 640, 64][random.below(4)];
    if step == 64 && random.below(2) == 0 {
        small
    } else {
        step * (1 + random.below(2304 / step))
    }
}

pub(super) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|v| f64::from(*v)).collect()
}

pub(super) fn run<E: ToString>(machine: &mut dyn Machine, launch: Result<PreparedLaunch, E>) -> Result<(), String> {
    machine.run(&launch.map_err(|e| e.to_string())?)
}

/// Uploads a vector that products read: with zeros behind its end.
fn padded(machine: &mut dyn Machine, x: &[f32]) -> Result<DevicePtr<f32>, String> {
    let mut x = x.to_vec();
    x.resize(x.len().next_multiple_of(256), 0.0);
    machine.upload(&x)
}

fn squares(x: &[f32]) -> Vec<f32> {
    x.chunks(16).map(|x| x.iter().map(|v| v * v).sum()).collect()
}

/// A stream of x that has met `gain`.
fn stream(machine: &mut dyn Machine, x: &[f32], gain: &[f32]) -> Result<Residual, String> {
    let gained: Vec<f32> = x.iter().zip(gain).map(|(x, g)| x * g).collect();
    Ok(Residual {
        x: machine.upload(x)?,
        gained: padded(machine, &gained)?,
        squares: machine.upload(&squares(x))?,
    })
}

/// A stream of x alone, as a launch finds it that writes the rest.
fn bare(machine: &mut dyn Machine, x: DevicePtr<f32>, columns: usize) -> Result<Residual, String> {
    Ok(Residual {
        x,
        gained: machine.output(columns)?,
        squares: machine.output(columns / 16)?,
    })
}

/// Compares a stream with x, within `allowed`, and what goes with it with the very x that it has.
fn left(machine: &mut dyn Machine, s: Residual, gain: &[f32], x: &[f64], allowed: f64) -> Result<f64, String> {
    let got = machine.download(s.x, x.len())?;
    let worst = within("x", &got, x, |_| allowed)?;
    let gained: Vec<f64> = got.iter().zip(gain).map(|(x, g)| f64::from(x * g)).collect();
    within("x times gains", &machine.download(s.gained, x.len())?, &gained, |_| {
        f64::MIN_POSITIVE
    })?;
    let want = wide(&squares(&got));
    let found = machine.download(s.squares, x.len() / 16)?;
    within("squares", &found, &want, |i| 1e-6 * want[i] + 1e-30)?;
    Ok(worst)
}

/// A stream whose last addend is apart, the sum, and the gains behind it.
struct Summed {
    stream: Apart,
    sum: Vec<f64>,
    gain: Vec<f32>,
}

impl Summed {
    fn new(machine: &mut dyn Machine, seed: u64, columns: usize) -> Result<Self, String> {
        let (x, gain) = (floats(seed, columns, 3.0), floats(seed + 1, columns, 0.7));
        let (y, after) = (floats(seed + 2, columns, 5.0), floats(seed + 3, columns, 1.0));
        let normed = normed(&wide(&y), &after, 1e-6);
        Ok(Self {
            stream: Apart {
                x: machine.upload(&x)?,
                post: Post {
                    y: stream(machine, &y, &after)?,
                    gain: machine.upload(&after)?,
                    eps: 1e-6,
                    reserved: 0,
                },
                gain: machine.upload(&gain)?,
                to: machine.output(columns)?,
            },
            sum: x.iter().zip(&normed).map(|(x, y)| f64::from(*x) + y).collect(),
            gain,
        })
    }

    /// Whether the launch left the sum.
    fn check(&self, machine: &mut dyn Machine) -> Result<f64, String> {
        let got = machine.download(self.stream.to, self.sum.len())?;
        within("sum", &got, &self.sum, |_| 1e-5)
    }
}

fn enter(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let columns = 64 * (1 + Random::new(seed).below(20));
    let (x, gain) = (floats(seed, columns, 3.0), floats(seed + 1, columns, 0.7));
    let x_at = machine.upload(&x)?;
    let (s, gain_at) = (bare(machine, x_at, columns)?, machine.upload(&gain)?);
    run(machine, residual(s, gain_at, Post::NONE, columns as u32))?;
    left(machine, s, &gain, &wide(&x), f64::MIN_POSITIVE)
}

fn post(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let columns = 64 * (1 + Random::new(seed).below(50));
    let (x, gain) = (floats(seed, columns, 3.0), floats(seed + 1, columns, 0.7));
    let (y, after) = (floats(seed + 2, columns, 5.0), floats(seed + 3, columns, 1.0));
    let x_at = machine.upload(&x)?;
    let (s, gain_at) = (bare(machine, x_at, columns)?, machine.upload(&gain)?);
    let post = Post {
        y: stream(machine, &y, &after)?,
        gain: machine.upload(&after)?,
        eps: 1e-6,
        reserved: 0,
    };
    run(machine, residual(s, gain_at, post, columns as u32))?;
    let normed = normed(&wide(&y), &after, 1e-6);
    let want: Vec<f64> = x.iter().zip(&normed).map(|(x, y)| f64::from(*x) + y).collect();
    left(machine, s, &gain, &want, 1e-5)
}

fn heads(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    heads_of(machine, seed, false)
}

fn heads_apart(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    heads_of(machine, seed, true)
}

fn heads_of(machine: &mut dyn Machine, seed: u64, apart: bool) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let first = kind(&mut random);
    let columns = columns(first, &mut random);
    let mut parts = Vec::new();
    while parts.len() < 3 {
        let kind = if parts.is_empty() { first } else { kind(&mut random) };
        if columns.is_multiple_of(kind.ty().block_len()) {
            let rows = 16 * (3 + random.below(3));
            parts.push(Tiled::new(kind, [rows, columns], seed + parts.len() as u64)?);
        }
    }
    let total = parts.iter().map(|part| part.shape.rows).sum();
    let out = machine.output(total)?;
    let shape = QkvShape {
        matrices: [
            parts[0].upload(machine)?,
            parts[1].upload(machine)?,
            parts[2].upload(machine)?,
        ],
        columns: columns as u32,
        eps: 1e-6,
    };
    let n = if apart {
        let summed = Summed::new(machine, seed, columns)?;
        run(machine, qkv_apart(summed.stream, out, shape))?;
        summed.check(machine)?;
        normed(&summed.sum, &summed.gain, 1e-6)
    } else {
        let (x, gain) = (floats(seed, columns, 3.0), floats(seed + 1, columns, 0.7));
        let s = stream(machine, &x, &gain)?;
        run(machine, qkv(s, out, shape))?;
        normed(&wide(&x), &gain, 1e-6)
    };
    let products: Vec<f64> = parts.iter().flat_map(|part| part.times(&n)).collect();
    let want: Vec<f64> = parts.iter().flat_map(|part| part.biased(part.times(&n))).collect();
    within("out", &machine.download(out, total)?, &want, |_| {
        PRODUCT * rms(&products)
    })
}

fn projection(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let kind = kind(&mut random);
    let block = kind.ty().block_len();
    // Beyond what waits in shared memory, too.
    let most = [1024, 8192][random.below(2)];
    let columns = block * (1 + random.below(most / block));
    let rows = 16 * (1 + random.below(4));
    let matrix = Tiled::new(kind, [rows, columns], seed)?;
    let (a, x) = (floats(seed + 1, columns, 2.0), floats(seed + 2, rows, 1.0));
    let (apart, plain) = (random.below(3) == 0, random.below(3) == 0);
    let gain = if plain {
        vec![1.0; rows]
    } else {
        floats(seed + 3, rows, 1.0)
    };
    let at = matrix.upload(machine)?;
    let a_at = padded(machine, &a)?;
    let gain_at = if plain {
        DevicePtr::null()
    } else {
        machine.upload(&gain)?
    };
    let (onto, x_at) = if apart {
        (DevicePtr::null(), machine.output(rows)?)
    } else {
        let x_at = machine.upload(&x)?;
        (x_at, x_at)
    };
    let to = bare(machine, x_at, rows)?;
    run(machine, project(a_at, onto, to, gain_at, at, columns as u32))?;
    let product = matrix.times(&wide(&a));
    let allowed = PRODUCT * rms(&product);
    let mut want = matrix.biased(product);
    if !apart {
        want.iter_mut().zip(&x).for_each(|(w, x)| *w += f64::from(*x));
    }
    left(machine, to, &gain, &want, allowed)
}

fn network(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    network_of(machine, seed, false)
}

fn network_apart(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    network_of(machine, seed, true)
}

fn network_of(machine: &mut dyn Machine, seed: u64, apart: bool) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let kind = kind(&mut random);
    let columns = columns(kind, &mut random);
    let least = if apart { columns.div_ceil(256) } else { 1 };
    let rows = 16 * (least + random.below(3));
    let (gate, up) = (
        Tiled::new(kind, [rows, columns], seed)?,
        Tiled::new(kind, [rows, columns], seed + 1)?,
    );
    let activation = [Activation::Silu, Activation::GeluTanh][random.below(2)];
    let h = machine.output(rows)?;
    let shape = GatedShape {
        gate: gate.upload(machine)?,
        up: up.upload(machine)?,
        columns: columns as u32,
        eps: 1e-6,
        activation: activation as u32,
        reserved: 0,
    };
    let n = if apart {
        let summed = Summed::new(machine, seed, columns)?;
        run(machine, gated_apart(summed.stream, h, shape))?;
        summed.check(machine)?;
        normed(&summed.sum, &summed.gain, 1e-6)
    } else {
        let (x, gain) = (floats(seed, columns, 3.0), floats(seed + 1, columns, 0.7));
        let s = stream(machine, &x, &gain)?;
        run(machine, gated(s, h, shape))?;
        normed(&wide(&x), &gain, 1e-6)
    };
    let (g, u) = (gate.times(&n), up.times(&n));
    // The errors of two factors, each as large as the other factor makes it.
    let allowed = PRODUCT * rms(&g) * (3.0 * rms(&u) + 1.0) + PRODUCT * rms(&u) * (3.0 * rms(&g) + 1.0);
    let (g, u) = (gate.biased(g), up.biased(u));
    let want: Vec<f64> = g
        .iter()
        .zip(&u)
        .map(|(g, u)| reference(*g as f32, *u as f32, activation))
        .collect();
    within("h", &machine.download(h, rows)?, &want, |_| allowed)
}

/// The head, and the step's end: the token must be the best of the very logits that came out.
fn logits(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let kind = kind(&mut random);
    let (columns, rows) = (columns(kind, &mut random), 1 + random.below(300));
    let matrix = Tiled::new(kind, [rows, columns], seed)?;
    let (x, gain) = (floats(seed + 1, columns, 2.0), floats(seed + 2, columns, 1.0));
    let softcap = [0.0, 20.0][random.below(2)];
    let shape = HeadShape {
        rows: rows as u32,
        columns: columns as u32,
        eps: 1e-6,
        softcap,
    };
    let blocks = (1 + random.below(9) as u32).min(rows.div_ceil(16) as u32);
    let (s, logits) = (stream(machine, &x, &gain)?, machine.output(rows)?);
    let (at, best) = (matrix.upload(machine)?, machine.output::<Best>(blocks as usize)?);
    run(machine, head(s, logits, best, at, shape, blocks))?;
    let state = machine.upload(&[StepState::default()])?;
    let ring = machine.upload(&[0u64; 2])?;
    run(machine, advance(best, blocks, state, ring, 2))?;
    let got = machine.download(logits, rows)?;
    let likeliest = (0..rows).rev().max_by(|a, b| got[*a].total_cmp(&got[*b])).unwrap_or(0);
    let (token, entry) = (machine.download(state, 1)?[0].token, machine.download(ring, 2)?[0]);
    if token as usize != likeliest || ring_token(entry, 0) != Some(token) {
        return Err(format!(
            "token {token}, ring {entry:#x}; the best logit is {likeliest}'s"
        ));
    }
    let product = matrix.times(&normed(&wide(&x), &gain, 1e-6));
    let allowed = PRODUCT * rms(&product);
    let cap = f64::from(softcap);
    let capped = |v: f64| if softcap == 0.0 { v } else { cap * (v / cap).tanh() };
    let want: Vec<f64> = matrix.biased(product).into_iter().map(capped).collect();
    within("logits", &got, &want, |_| allowed)
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "dense_residual/alone",
        run: enter,
    },
    Case {
        name: "dense_residual/post",
        run: post,
    },
    Case {
        name: "dense_qkv",
        run: heads,
    },
    Case {
        name: "dense_qkv_apart",
        run: heads_apart,
    },
    Case {
        name: "dense_gated_apart",
        run: network_apart,
    },
    Case {
        name: "dense_project",
        run: projection,
    },
    Case {
        name: "dense_gated",
        run: network,
    },
    Case {
        name: "dense_head",
        run: logits,
    },
];
