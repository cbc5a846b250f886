//! The device's sampler and the host's choose the same tokens.

use cuda_std::emu::{Buffer, Emulator};
use cuda_std::launch::Launcher;
use sparkinfer::sample::{SampleOptions, Sampler};
use sparkinfer_device::decode::StepState;
use sparkinfer_device::decode::sample::{SampleBuffers, SampleShape, sample};
use sparkinfer_device::testing::floats;

const VOCABULARY: usize = 6000;
const STEPS: u32 = 3;

/// The settings as the kernels take them.
fn shape(options: &SampleOptions) -> SampleShape {
    SampleShape {
        vocabulary: VOCABULARY as u32,
        top_k: options.top_k as u32,
        temperature: options.temperature,
        top_p: options.top_p,
        ln_min_p: if options.min_p > 0.0 {
            options.min_p.ln()
        } else {
            f32::NEG_INFINITY
        },
        repeat_penalty: options.repeat_penalty,
        recent: options.repeat_last_n as u32,
        suppressed: options.suppress.len() as u32,
        seed: [options.seed as u32, (options.seed >> 32) as u32],
    }
}

fn same_tokens(options: SampleOptions) {
    let shape = shape(&options);
    let (state, ring) = (Buffer::zeroed(1), Buffer::zeroed(8));
    let recent = Buffer::from_slice(&vec![u32::MAX; options.repeat_last_n]);
    let (suppressed, lists) = (
        Buffer::from_slice(&options.suppress),
        Buffer::zeroed(shape.list_entries()),
    );
    let mut sampler = Sampler::new(options);
    for step in 0..STEPS {
        let logits = floats(u64::from(step), VOCABULARY, 2.5);
        let on_device = Buffer::from_slice(&logits);
        let buffers = SampleBuffers {
            logits: on_device.ptr(),
            recent: recent.ptr(),
            suppressed: suppressed.ptr(),
            lists: lists.ptr(),
            state: state.ptr(),
            ring: ring.ptr(),
            ring_length: 8,
        };
        for launch in sample(shape, buffers).unwrap() {
            Emulator::new().launch(&launch).unwrap();
        }
        let token = sampler.sample(&logits);
        sampler.accept(token);
        let reached: StepState = state.as_slice()[0];
        assert_eq!(
            (reached.token, reached.step),
            (token, step + 1),
            "{:?}",
            sampler.options()
        );
    }
}

#[test]
fn the_same_tokens_for_the_same_logits_and_seed() {
    let base = SampleOptions {
        temperature: 0.8,
        ..SampleOptions::default()
    };
    for seed in [0, 1, u64::MAX] {
        same_tokens(SampleOptions { seed, ..base.clone() });
        same_tokens(SampleOptions {
            seed,
            temperature: 1.5,
            min_p: 0.0,
            top_p: 1.0,
            top_k: 200,
            ..base.clone()
        });
    }
    same_tokens(SampleOptions {
        repeat_penalty: 1.4,
        suppress: vec![5, 900],
        repeat_last_n: 3,
        ..base.clone()
    });
    same_tokens(SampleOptions {
        temperature: 0.0,
        repeat_penalty: 1.4,
        ..base
    });
}
