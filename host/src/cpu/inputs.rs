//! Activations that are about to be multiplied with weights.

use super::pool::Pool;
use super::simd::{GROUP, Group, SUPER, Super, quantize_groups, quantize_supers};
use super::weights::{Kernel, Weight};

/// Rows of activations, in every form that the weights ask for.
pub(super) struct Inputs<'a> {
    /// `[rows][cols]`.
    pub(super) values: &'a [f32],
    /// `[rows][cols / 256]`, or empty.
    pub(super) supers: Vec<Super>,
    /// `[rows][cols / 32]`, or empty.
    pub(super) groups: Vec<Group>,
}

impl<'a> Inputs<'a> {
    /// Prepares `values` for products with `weights`, which have equal `cols`.
    pub(super) fn new(pool: &Pool, values: &'a [f32], weights: &[&Weight]) -> Self {
        let mut inputs = Inputs {
            values,
            supers: Vec::new(),
            groups: Vec::new(),
        };
        let uses = |kind: fn(Kernel) -> bool| weights.iter().any(|weight| kind(weight.kernel));
        if uses(|kernel| matches!(kernel, Kernel::Super(_))) {
            inputs.supers.reserve_exact(values.len() / SUPER);
            quantize_supers(pool.level, values, &mut inputs.supers);
        }
        if uses(|kernel| matches!(kernel, Kernel::Group(_))) {
            inputs.groups.reserve_exact(values.len() / GROUP);
            quantize_groups(pool.level, values, &mut inputs.groups);
        }
        inputs
    }
}
