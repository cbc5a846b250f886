//! The cases of all kernels of this crate.

mod argmax;
pub(crate) mod attention;
mod decode;
mod dense;
mod embed;
mod gemv;
mod general;
mod layer;
mod many;
mod mmvq;
mod norm;
mod prefill;
mod prompt;
mod rope;
mod sample;
mod stream;

use super::Case;

/// Every case.
pub fn all() -> Vec<Case> {
    [
        argmax::CASES,
        attention::CASES,
        decode::CASES,
        dense::CASES,
        embed::CASES,
        gemv::CASES,
        general::CASES,
        layer::CASES,
        many::CASES,
        mmvq::CASES,
        norm::CASES,
        prefill::CASES,
        prompt::CASES,
        rope::CASES,
        sample::CASES,
        stream::CASES,
    ]
    .concat()
}

#[cfg(test)]
mod tests;
