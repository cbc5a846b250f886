//! Kernels of the general decode path: any architecture, any tensor type, activations in f32, one operation a launch.
//!
//! | launch | module | reads |
//! |---|---|---|
//! | choice of experts | [`topk`] | the router's logits |
//! | gated activation | [`gated`] | gate, up |
//! | weighted sum of experts | [`mix`] | the experts' results, their weights |
//! | cap of the logits, best tokens | [`best`] | logits |
//!
//! Products are [`gemv`](crate::gemv), norms and residual sums [`norm`](crate::norm), attention
//! [`general`](crate::decode::attention::general) or a fast kernel where one takes the shape. Every kernel here waits
//! before it reads or writes anything: whatever an earlier launch wrote is then visible, and what it read may be
//! overwritten. Each works on a few KB; what it costs is its launch.

pub mod best;
pub mod gated;
pub mod mix;
pub mod topk;
