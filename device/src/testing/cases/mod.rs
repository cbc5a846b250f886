//! The cases of all kernels of this crate.

mod argmax;
mod embed;
mod gemv;
mod mmvq;
mod norm;
mod rope;
mod stream;

use super::Case;

/// Every case.
pub fn all() -> Vec<Case> {
    [
        argmax::CASES,
        embed::CASES,
        gemv::CASES,
        mmvq::CASES,
        norm::CASES,
        rope::CASES,
        stream::CASES,
    ]
    .concat()
}

#[cfg(test)]
mod tests;
