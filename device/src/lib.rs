//! The GPU kernels: compiled to PTX, and to the host for emulation.
//!
//! | module | what |
//! |---|---|
//! | [`layout`] | how weights and activations lie in GPU memory: packing and unpacking |
//! | [`tile`] | what the tensor-core matrix × vector kernels share |
//! | [`mod@format`] | tensor types as in the file, decoded where they are read |
//! | [`decode`] | the fused kernels of a decode step at batch size 1 |
//! | [`dense`] | the same for layers of attention and a gated network, weights of more types |
//! | [`general`] | the unfused kernels of a decode step of any model |
//! | [`prefill`] | the kernels of a prompt, many tokens at a time |
//! | [`norm`], [`rope`], [`embed`], [`mmvq`], [`gemv`], [`argmax`], [`stream`] | the kernels, a file each |
//!
//! A kernel's file says what it computes, what it moves, why it is shaped so, and how it may be launched; its launch
//! helpers and its f64 reference stand below it (host only). `README.md` shows how to add one.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]

pub mod argmax;
pub mod decode;
pub mod dense;
pub mod embed;
pub mod format;
pub mod gemv;
pub mod general;
pub mod layout;
pub mod mmvq;
pub mod norm;
mod num;
pub mod prefill;
pub mod rope;
#[cfg(not(target_arch = "nvptx64"))]
pub mod shape;
pub mod stream;
#[cfg(not(target_arch = "nvptx64"))]
pub mod testing;
pub mod tile;

#[cfg(not(target_arch = "nvptx64"))]
cuda_std::kernels![
    argmax::argmax_blocks,
    argmax::argmax_final,
    embed::embed_bf16,
    embed::embed_f16,
    embed::embed_f32,
    embed::embed_iq4_nl,
    embed::embed_iq4_xs,
    embed::embed_mxfp4,
    embed::embed_nvfp4,
    embed::embed_q2_k,
    embed::embed_q3_k,
    embed::embed_q4_0,
    embed::embed_q4_1,
    embed::embed_q4_k,
    embed::embed_q5_0,
    embed::embed_q5_1,
    embed::embed_q5_k,
    embed::embed_q6_k,
    embed::embed_q8_0,
    gemv::gemv_bf16,
    gemv::gemv_f16,
    gemv::gemv_f32,
    gemv::gemv_iq4_nl,
    gemv::gemv_iq4_xs,
    gemv::gemv_mxfp4,
    gemv::gemv_nvfp4,
    gemv::gemv_q2_k,
    gemv::gemv_q3_k,
    gemv::gemv_q4_0,
    gemv::gemv_q4_1,
    gemv::gemv_q4_k,
    gemv::gemv_q5_0,
    gemv::gemv_q5_1,
    gemv::gemv_q5_k,
    gemv::gemv_q6_k,
    gemv::gemv_q8_0,
    general::best::general_best,
    general::gated::general_gated,
    general::gated::general_gated_wide,
    general::mix::general_mix,
    general::topk::general_topk,
    decode::advance::decode_advance,
    decode::attention::attention_128_bf16,
    decode::attention::attention_128_bf16_wide,
    decode::attention::attention_128_f16,
    decode::attention::attention_128_f16_wide,
    decode::attention::attention_128_q8_0,
    decode::attention::attention_128_q8_0_wide,
    decode::attention::attention_256_bf16,
    decode::attention::attention_256_f16,
    decode::attention::attention_256_q8_0,
    decode::attention::attention_64_bf16,
    decode::attention::attention_64_bf16_wide,
    decode::attention::attention_64_f16,
    decode::attention::attention_64_f16_wide,
    decode::attention::attention_64_q8_0,
    decode::attention::attention_64_q8_0_wide,
    decode::attention::general::attention_general_bf16,
    decode::attention::general::attention_general_f16,
    decode::attention::general::attention_general_q8_0,
    decode::attention::many::attention_many_128_bf16,
    decode::attention::many::attention_many_128_f16,
    decode::attention::many::attention_many_128_q8_0,
    decode::attention::many::attention_many_64_bf16,
    decode::attention::many::attention_many_64_f16,
    decode::attention::many::attention_many_64_q8_0,
    decode::down::decode_down_q4k,
    decode::down::decode_down_q6k,
    decode::gateup::decode_gateup_q4k,
    decode::gateup::decode_gateup_q6k,
    decode::head::decode_head,
    decode::many::advance::many_advance,
    decode::many::down::many_down_q4k,
    decode::many::down::many_down_q6k,
    decode::many::enter::many_enter,
    decode::many::gateup::many_gateup_q4k,
    decode::many::gateup::many_gateup_q6k,
    decode::many::head::many_head,
    decode::many::project::many_project,
    decode::many::qkv::many_qkv,
    decode::many::router::many_router,
    decode::norm_qkv::decode_qkv,
    decode::o_proj::decode_project,
    decode::residual::decode_residual,
    decode::router::decode_router,
    decode::sample::sample_draw,
    decode::sample::sample_tiles,
    dense::gated::dense_gated_q4_0,
    dense::gated::dense_gated_q4_1,
    dense::gated::dense_gated_q4k,
    dense::gated::dense_gated_q5_0,
    dense::gated::dense_gated_q5_1,
    dense::gated::dense_gated_q5k,
    dense::gated::dense_gated_q6k,
    dense::gated::dense_gated_q8_0,
    dense::head::dense_head_q4_0,
    dense::head::dense_head_q4_1,
    dense::head::dense_head_q4k,
    dense::head::dense_head_q5_0,
    dense::head::dense_head_q5_1,
    dense::head::dense_head_q5k,
    dense::head::dense_head_q6k,
    dense::head::dense_head_q8_0,
    dense::project::dense_project_q4_0,
    dense::project::dense_project_q4_1,
    dense::project::dense_project_q4k,
    dense::project::dense_project_q5_0,
    dense::project::dense_project_q5_1,
    dense::project::dense_project_q5k,
    dense::project::dense_project_q6k,
    dense::project::dense_project_q8_0,
    dense::qkv::dense_qkv,
    dense::residual::dense_residual,
    mmvq::dp4a::mmvq_q4k_dp4a,
    mmvq::dp4a::mmvq_q4k_dp4a_2048,
    mmvq::dp4a::mmvq_q6k_dp4a,
    mmvq::dp4a::mmvq_q6k_dp4a_2048,
    mmvq::tensor::mmvq_iq4_nl_tensor,
    mmvq::tensor::mmvq_iq4_xs_tensor,
    mmvq::tensor::mmvq_mxfp4_tensor,
    mmvq::tensor::mmvq_nvfp4_tensor,
    mmvq::tensor::mmvq_q2k_tensor,
    mmvq::tensor::mmvq_q3k_tensor,
    mmvq::tensor::mmvq_q4_0_tensor,
    mmvq::tensor::mmvq_q4_1_tensor,
    mmvq::tensor::mmvq_q4k_tensor,
    mmvq::tensor::mmvq_q5_0_tensor,
    mmvq::tensor::mmvq_q5_1_tensor,
    mmvq::tensor::mmvq_q5k_tensor,
    mmvq::tensor::mmvq_q6k_tensor,
    mmvq::tensor::mmvq_q8_0_tensor,
    norm::norm_f32,
    norm::norm_narrow,
    norm::norm_wide,
    norm::quantize_narrow,
    norm::quantize_wide,
    prefill::append::prefill_append_128_bf16,
    prefill::append::prefill_append_128_f16,
    prefill::append::prefill_append_128_q8_0,
    prefill::append::prefill_append_256_bf16,
    prefill::append::prefill_append_256_f16,
    prefill::append::prefill_append_256_q8_0,
    prefill::append::prefill_append_64_bf16,
    prefill::append::prefill_append_64_f16,
    prefill::append::prefill_append_64_q8_0,
    prefill::attention::prefill_attention_128_bf16,
    prefill::attention::prefill_attention_128_f16,
    prefill::attention::prefill_attention_128_q8_0,
    prefill::attention::prefill_attention_256_bf16,
    prefill::attention::prefill_attention_256_f16,
    prefill::attention::prefill_attention_256_q8_0,
    prefill::attention::prefill_attention_64_bf16,
    prefill::attention::prefill_attention_64_f16,
    prefill::attention::prefill_attention_64_q8_0,
    prefill::combine::prefill_combine,
    prefill::combine::prefill_take_row,
    prefill::down::prefill_down,
    prefill::gated_split::prefill_gated_split,
    prefill::gateup::prefill_gateup,
    prefill::gemm::prefill_gemm,
    prefill::matrix::prefill_matrix_q4_0,
    prefill::matrix::prefill_matrix_q4_1,
    prefill::matrix::prefill_matrix_q4k,
    prefill::matrix::prefill_matrix_q5_0,
    prefill::matrix::prefill_matrix_q5_1,
    prefill::matrix::prefill_matrix_q5k,
    prefill::matrix::prefill_matrix_q6k,
    prefill::matrix::prefill_matrix_q8_0,
    prefill::post::prefill_post,
    prefill::route::prefill_choose,
    prefill::route::prefill_group,
    prefill::router::prefill_router,
    prefill::split::prefill_split,
    rope::rope_neox,
    rope::rope_norm,
    stream::stream_read,
];

#[cfg(test)]
mod list_tests;
