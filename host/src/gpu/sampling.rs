//! The device's sampler beside the host's: which settings it takes, and what it must know before it draws.

use cuda_std::DevicePtr;
use cuda_std::launch::PreparedLaunch;
use sparkinfer_device::decode::sample::{SampleBuffers, SampleShape, sample};

use super::backend::{Backend, DeviceError, Memory, Result};
use super::buffers::Buffers;
use crate::sample::{SampleOptions, Sampler};

/// Recent tokens, and suppressed ones, at most: more are left to the host's sampler.
const LISTED: usize = 1024;

/// Who chooses the tokens of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Chooser {
    /// The device takes the highest logit.
    Argmax,
    /// The device's sampler, with these settings.
    Device(SampleShape),
    /// The host's sampler: the device's does not take the settings.
    Host,
}

impl Chooser {
    /// Who chooses as `options` say among `vocabulary` tokens.
    pub(super) fn of(options: &SampleOptions, vocabulary: usize) -> Self {
        match shape(options, vocabulary) {
            _ if options.is_argmax() => Self::Argmax,
            Some(shape) => Self::Device(shape),
            None => Self::Host,
        }
    }
}

/// The settings as the kernels take them; none if they do not.
fn shape(options: &SampleOptions, vocabulary: usize) -> Option<SampleShape> {
    let recent = if options.penalises() { options.repeat_last_n } else { 0 };
    if recent > LISTED || options.suppress.len() > LISTED {
        return None;
    }
    let shape = SampleShape {
        vocabulary: vocabulary as u32,
        top_k: if options.greedy() {
            1
        } else {
            u32::try_from(options.top_k).ok()?
        },
        temperature: options.temperature,
        top_p: options.top_p,
        ln_min_p: if options.min_p > 0.0 {
            options.min_p.ln()
        } else {
            f32::NEG_INFINITY
        },
        repeat_penalty: options.repeat_penalty,
        recent: recent as u32,
        suppressed: options.suppress.len() as u32,
        seed: [options.seed as u32, (options.seed >> 32) as u32],
    };
    shape.check().is_ok().then_some(shape)
}

/// Memory of the device's sampler.
pub(super) struct DeviceSampler {
    recent: DevicePtr<u32>,
    suppressed: DevicePtr<u32>,
    lists: DevicePtr<u64>,
    _memory: Box<dyn Memory>,
}

impl DeviceSampler {
    /// Bytes that it takes for `vocabulary` tokens.
    pub(super) fn bytes(vocabulary: usize) -> usize {
        2 * 4 * LISTED + 8 * SampleShape::most_list_entries(vocabulary as u32)
    }

    /// Allocates its memory.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn allocate<B: Backend>(backend: &B, vocabulary: usize) -> Result<Self> {
        let memory = backend.allocate(Self::bytes(vocabulary))?;
        let at = |offset: usize| memory.address() + offset as u64;
        Ok(Self {
            recent: DevicePtr::from_raw(at(0)),
            suppressed: DevicePtr::from_raw(at(4 * LISTED)),
            lists: DevicePtr::from_raw(at(8 * LISTED)),
            _memory: memory,
        })
    }

    /// The launches behind the head that end a step with a token chosen as `shape` says.
    ///
    /// # Errors
    /// Settings that the kernels do not take.
    pub(super) fn launches(&self, shape: SampleShape, b: &Buffers) -> Result<[PreparedLaunch; 2]> {
        let buffers = SampleBuffers {
            logits: b.logits,
            recent: self.recent,
            suppressed: self.suppressed,
            lists: self.lists,
            state: b.step.state,
            ring: b.ring,
            ring_length: b.ring_length,
        };
        sample(shape, buffers).map_err(DeviceError::new)
    }

    /// Tells the device what `sampler` knows, where the token that it took last stands at `position`.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn begin<B: Backend>(&self, backend: &B, sampler: &Sampler, position: usize) -> Result<()> {
        let options = sampler.options();
        if options.penalises() {
            let recent = by_position(&sampler.recent().collect::<Vec<_>>(), options.repeat_last_n, position);
            backend.write(self.recent.as_raw(), bytemuck::cast_slice(&recent))?;
        }
        if !options.suppress.is_empty() {
            backend.write(self.suppressed.as_raw(), bytemuck::cast_slice(&options.suppress))?;
        }
        Ok(())
    }
}

/// The tokens of `recent`, oldest first and the last one at `position`, as the kernels keep them: the token at position
/// p in place p modulo `places`, so that the next one displaces the oldest.
fn by_position(recent: &[u32], places: usize, position: usize) -> Vec<u32> {
    let mut ring = vec![u32::MAX; places];
    for (age, &token) in recent.iter().rev().take(places).enumerate() {
        ring[(position % places + places - age) % places] = token;
    }
    ring
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_tokens_lie_where_the_next_displaces_the_oldest() {
        assert_eq!(by_position(&[7, 8, 9], 3, 4), [8, 9, 7]);
        assert_eq!(by_position(&[7, 8], 4, 0), [8, u32::MAX, u32::MAX, 7]);
        assert_eq!(by_position(&[], 2, 9), [u32::MAX; 2]);
    }

    #[test]
    fn settings_choose_the_sampler() {
        let of = |options: SampleOptions| Chooser::of(&options, 4096);
        let warm = SampleOptions {
            temperature: 0.7,
            ..SampleOptions::default()
        };
        assert_eq!(of(SampleOptions::default()), Chooser::Argmax);
        assert!(matches!(of(warm.clone()), Chooser::Device(shape) if shape.top_k == 40));
        for host in [
            SampleOptions {
                top_k: 0,
                ..warm.clone()
            },
            SampleOptions {
                top_k: 257,
                ..warm.clone()
            },
            SampleOptions {
                suppress: vec![0; LISTED + 1],
                ..warm
            },
        ] {
            assert_eq!(of(host), Chooser::Host);
        }
        let penalised = SampleOptions {
            repeat_penalty: 1.5,
            top_k: 0,
            ..SampleOptions::default()
        };
        assert!(matches!(of(penalised), Chooser::Device(shape) if (shape.top_k, shape.recent) == (1, 64)));
    }
}
