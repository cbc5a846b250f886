//! Every case in the emulator, under several seeds and orders.

use super::all;
use crate::testing::Emulated;

/// Runs the cases whose names begin so. One test for each kernel file, so that they run side by side.
fn run(prefix: &str, seeds: u64) {
    let cases: Vec<_> = all().into_iter().filter(|case| case.name.starts_with(prefix)).collect();
    assert!(!cases.is_empty(), "no case begins with {prefix}");
    for case in cases {
        for seed in 0..seeds {
            if let Err(error) = (case.run)(&mut Emulated::new(seed), seed) {
                panic!("{}, seed {seed}: {error}", case.name);
            }
        }
    }
}

macro_rules! tests {
    ($($name:ident: $prefix:literal, $seeds:literal;)*) => {
        /// What the tests below select.
        const PREFIXES: &[&str] = &[$($prefix),*];

        $(
            #[test]
            fn $name() {
                run($prefix, $seeds);
            }
        )*
    };
}

tests! {
    argmax: "argmax/", 20;
    attention_64: "attention_64", 12;
    attention_128_f16: "attention_128_f16", 4;
    attention_128_bf16: "attention_128_bf16", 8;
    attention_128_q8_0: "attention_128_q8_0", 4;
    attention_256: "attention_256", 8;
    attention_general: "attention_general", 12;
    decode: "decode_", 12;
    dense: "dense_", 40;
    embed: "embed_", 20;
    gemv: "gemv_", 16;
    gemv_experts: "experts_", 16;
    general: "general_", 20;
    many: "many_", 10;
    mmvq_q4k_tensor: "mmvq_q4k_tensor", 16;
    mmvq_small_tensor: "mmvq_q4_", 12;
    mmvq_small_five_tensor: "mmvq_q5_", 12;
    mmvq_q8_0_tensor: "mmvq_q8_0", 16;
    mmvq_q5k_tensor: "mmvq_q5k", 16;
    mmvq_q2k_tensor: "mmvq_q2k", 16;
    mmvq_q3k_tensor: "mmvq_q3k", 16;
    mmvq_iq4_tensor: "mmvq_iq4", 12;
    mmvq_mxfp4_tensor: "mmvq_mxfp4", 16;
    mmvq_nvfp4_tensor: "mmvq_nvfp4", 16;
    mmvq_q6k_tensor: "mmvq_q6k_tensor", 16;
    mmvq_q4k_dp4a: "mmvq_q4k_dp4a", 16;
    mmvq_q6k_dp4a: "mmvq_q6k_dp4a", 16;
    norm: "norm_", 20;
    prefill_split: "prefill_split", 12;
    prefill_stack: "prefill_stack", 24;
    prefill_gemm: "prefill_gemm", 8;
    prefill_gated_split: "prefill_gated_split", 12;
    prefill_heads: "prefill_heads", 8;
    prefill_matrix: "prefill_matrix", 40;
    prefill_post: "prefill_post", 12;
    prefill_rare: "prefill_rare", 48;
    prefill_route: "prefill_route", 8;
    prefill_experts: "prefill_experts", 8;
    quantize: "quantize_", 20;
    rope: "rope_", 30;
    sample: "sample", 10;
    step: "step/", 5;
    stream: "stream_", 20;
}

#[test]
fn every_case_is_tested_and_named_once() {
    let mut names: Vec<_> = all().iter().map(|case| case.name).collect();
    for name in &names {
        assert!(
            PREFIXES.iter().any(|prefix| name.starts_with(prefix)),
            "no test runs the case {name}"
        );
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
