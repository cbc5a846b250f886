//! Marks of when blocks of a layer's launches come where: what `decode_chain --timeline` shows.

use cuda_std::timeline;

/// Launches with marks, in the order of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Launch {
    /// Norm, q, k and v.
    Qkv,
    /// Attention.
    Attention,
    /// The output projection.
    Project,
    /// Gate and up.
    GateUp,
    /// Down.
    Down,
}

/// Points of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Point {
    /// It begins.
    Start,
    /// Before the wait, with all done that can be.
    Ready,
    /// Behind the wait.
    Waited,
    /// What depends on the launch before is there.
    Input,
    /// The weights, or keys and values, are there.
    Weights,
    /// The block's warps have met.
    Met,
    /// It has ended.
    End,
}

impl Launch {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Qkv, Self::Attention, Self::Project, Self::GateUp, Self::Down];

    /// The block is at `point`.
    #[inline(always)]
    pub(crate) fn is_at(self, point: Point) {
        timeline::mark(self as u32, point as u32);
    }
}

impl Point {
    /// All of them, in the order in which they are come to.
    pub const ALL: [Self; 7] = [
        Self::Start,
        Self::Ready,
        Self::Waited,
        Self::Input,
        Self::Weights,
        Self::Met,
        Self::End,
    ];
}
