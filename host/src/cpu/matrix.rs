//! A single matrix, multiplied as the engine does it: for benchmarks and comparisons.

use sparkinfer_gguf::Gguf;

use super::engine::{Numerics, OpenError};
use super::inputs::Inputs;
use super::pool::Pool;
use super::product::{Product, run};
use super::weights::Weight;
use crate::model::Linear;

/// A matrix of a file, and threads to multiply it with.
pub struct CpuMatrix<'m> {
    weight: Weight<'m>,
    pool: Pool,
}

impl<'m> CpuMatrix<'m> {
    /// The matrix that `linear` describes, of which only the first expert is used; `threads` as in
    /// [`CpuOptions`](super::CpuOptions).
    ///
    /// # Errors
    /// A `gguf` that does not hold the matrix, or no threads.
    pub fn new(gguf: &'m Gguf, linear: &Linear, numerics: Numerics, threads: usize) -> Result<Self, OpenError> {
        let pool = Pool::new(threads).map_err(|error| OpenError::Threads { threads, error })?;
        let weight = Weight::load(gguf, linear, numerics)?;
        Ok(Self { weight, pool })
    }

    /// `out[rows][tokens]` for inputs `x[tokens][cols]`; `out` has as many columns as `x` has rows.
    pub fn multiply(&self, x: &[f32], out: &mut [f32]) {
        let tokens: Vec<u32> = (0..(x.len() / self.weight.cols) as u32).collect();
        let inputs = Inputs::new(&self.pool, x, &[&self.weight]);
        let product = Product {
            weight: &self.weight,
            expert: 0,
            inputs: &inputs,
            tokens: &tokens,
            out,
        };
        self.pool.enter(|| run(&self.pool, vec![product]));
    }
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    use super::*;
    use crate::load::Model;
    use sparkinfer_gguf::dequant::dequantize_row;

    #[test]
    fn a_product_is_that_of_the_values() {
        let model = Model::open(None).unwrap();
        let linear = &model.spec.output;
        let matrix = &linear.matrix;
        let x: Vec<f32> = (0..matrix.cols).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut out = vec![0.0; matrix.rows];
        CpuMatrix::new(&model.gguf, linear, Numerics::Reference, 1)
            .unwrap()
            .multiply(&x, &mut out);
        let mut row = vec![0.0; matrix.cols];
        let data = matrix.data(&model.gguf).unwrap();
        dequantize_row(
            matrix.ty,
            &data[5 * matrix.row_bytes()..][..matrix.row_bytes()],
            &mut row,
        )
        .unwrap();
        let expected: f64 = row.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
        assert!(
            (f64::from(out[5]) - expected).abs() < 1e-4 * expected.abs().max(1.0),
            "{} {expected}",
            out[5]
        );
    }
}
