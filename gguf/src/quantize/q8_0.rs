//! Q8_0: the largest magnitude becomes 127.

use super::{Quantize, inverse, nearest};
use crate::blocks::{BlockQ8_0, F16};

impl Quantize for BlockQ8_0 {
    fn quantize(values: &[f32]) -> Self {
        let largest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let d = largest / 127.0;
        let inverse = inverse(d);
        let mut qs = [0; 32];
        for (q, v) in qs.iter_mut().zip(values) {
            *q = nearest(v * inverse, -127, 127) as i8;
        }
        Self {
            d: F16::from_f32(d),
            qs,
        }
    }
}
