//! Matrix times activations: the bulk of all work.

use super::inputs::Inputs;
use super::pool::Pool;
use super::simd::{GROUP, SUPER, dot_rows};
use super::weights::{Kernel, Weight};

/// Multiplications that make a task worth handing to another thread.
const TASK: usize = 1 << 16;
/// Rows that are dequantised together: as many as stay near while all tokens pass them.
const FLOAT_ROWS: usize = 16;
/// Columns of a matrix that are turned into rows together: a cache line of each row.
const BAND: usize = 16;

/// `out[row][i] = (W · inputs[tokens[i]])[row] · scale + bias[row]` for one matrix.
pub(super) struct Product<'a> {
    pub(super) weight: &'a Weight<'a>,
    /// Which of the weight's matrices.
    pub(super) expert: usize,
    pub(super) inputs: &'a Inputs<'a>,
    /// Rows of `inputs`.
    pub(super) tokens: &'a [u32],
    /// `[weight.rows][tokens.len()]`.
    pub(super) out: &'a mut [f32],
}

/// Some rows of a product.
struct Task<'a> {
    weight: &'a Weight<'a>,
    expert: usize,
    inputs: &'a Inputs<'a>,
    tokens: &'a [u32],
    first_row: usize,
    out: &'a mut [f32],
}

/// Computes all products, which may run side by side.
pub(super) fn run(pool: &Pool, products: Vec<Product>) {
    let work: usize = products.iter().map(|p| p.out.len() * p.weight.cols).sum();
    let task_work = (work / (4 * pool.threads())).max(TASK);
    let tasks = products
        .into_iter()
        .flat_map(|product| split(product, task_work))
        .collect();
    pool.each(tasks, |task: Task| task.run(pool));
}

/// Cuts a product into ranges of rows of about `work` multiplications.
fn split<'a>(product: Product<'a>, work: usize) -> impl Iterator<Item = Task<'a>> {
    let Product {
        weight,
        expert,
        inputs,
        tokens,
        out,
    } = product;
    let rows = (work / (weight.cols * tokens.len()).max(1)).max(1);
    let chunks = out.chunks_mut((rows * tokens.len()).max(1)).enumerate();
    chunks.map(move |(i, out)| Task {
        weight,
        expert,
        inputs,
        tokens,
        first_row: i * rows,
        out,
    })
}

impl Task<'_> {
    fn run(self, pool: &Pool) {
        let Task {
            weight, inputs, tokens, ..
        } = self;
        let bytes = weight.rows_of(self.expert, self.first_row, self.out.len() / tokens.len());
        match weight.kernel {
            Kernel::Float => float_rows(pool, weight, bytes, inputs.values, tokens, self.out),
            Kernel::Super(ty) => {
                ty.rows(pool.level, bytes, &inputs.supers, weight.cols / SUPER, tokens, self.out);
            }
            Kernel::Group(ty) => {
                ty.rows(pool.level, bytes, &inputs.groups, weight.cols / GROUP, tokens, self.out);
            }
        }
        self.finish();
    }

    /// Applies scale and bias.
    fn finish(self) {
        let scale = self.weight.scale(self.expert);
        if scale != 1.0 {
            self.out.iter_mut().for_each(|out| *out *= scale);
        }
        let bias = self.weight.bias.iter().skip(self.first_row);
        for (out, bias) in self.out.chunks_mut(self.tokens.len()).zip(bias) {
            out.iter_mut().for_each(|out| *out += bias);
        }
    }
}

/// A few rows dequantised, then multiplied with every token's f32 activations.
fn float_rows(pool: &Pool, weight: &Weight, bytes: &[u8], values: &[f32], tokens: &[u32], out: &mut [f32]) {
    let mut rows = vec![0.0; FLOAT_ROWS * weight.cols];
    let pieces = bytes.chunks(FLOAT_ROWS * weight.row_bytes);
    for (bytes, out) in pieces.zip(out.chunks_mut(FLOAT_ROWS * tokens.len())) {
        let rows = &mut rows[..bytes.len() / weight.row_bytes * weight.cols];
        weight.dequantize(bytes, rows);
        dot_rows(pool.level, rows, weight.cols, values, tokens, out);
    }
}

/// `[rows][columns]` to `[columns][rows]`.
pub(super) fn transpose(pool: &Pool, values: Vec<f32>, columns: usize) -> Vec<f32> {
    let rows = values.len() / columns.max(1);
    transpose_each(pool, values, rows, &[columns])
}

/// Turns matrices, which follow each other in `values`, from `[rows][columns]` to `[columns][rows]`. They have equal
/// `rows` and `columns` of their own.
pub(super) fn transpose_each(pool: &Pool, values: Vec<f32>, rows: usize, columns: &[usize]) -> Vec<f32> {
    if rows <= 1 || columns.iter().all(|columns| *columns <= 1) {
        return values;
    }
    let mut out = vec![0.0; values.len()];
    let (mut values, mut rest) = (&values[..], &mut out[..]);
    let mut bands = Vec::new();
    for &columns in columns {
        let (matrix, turned);
        (matrix, values) = values.split_at(rows * columns);
        (turned, rest) = rest.split_at_mut(rows * columns);
        let pieces = turned.chunks_mut(BAND * rows).enumerate();
        bands.extend(pieces.map(|(i, out)| Band {
            matrix,
            columns,
            first: i * BAND,
            out,
        }));
    }
    pool.each(bands, |band| band.turn(rows));
    out
}

/// Some columns of a matrix, which become rows of `out`.
struct Band<'a> {
    matrix: &'a [f32],
    columns: usize,
    first: usize,
    out: &'a mut [f32],
}

impl Band<'_> {
    fn turn(self, rows: usize) {
        for (r, row) in self.matrix.chunks_exact(self.columns).enumerate() {
            for (out, value) in self.out.chunks_exact_mut(rows).zip(&row[self.first..]) {
                out[r] = *value;
            }
        }
    }
}
