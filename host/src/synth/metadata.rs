//! The keys of a synthetic model.

use sparkinfer_gguf::{GgufWriter, MetaValue};

use super::{Mix, Preset};

/// Sets all keys but the tokenizer's.
pub(super) fn set(writer: &mut GgufWriter, preset: &Preset, mix: Mix) {
    writer.set("general.architecture", preset.arch);
    writer.set("general.name", format!("synthetic-{}", preset.name));
    writer
        .set("general.file_type", mix.file_type())
        .set("general.quantization_version", 2u32);
    let mut key = |suffix: &str, value: MetaValue| {
        writer.set(&format!("{}.{suffix}", preset.arch), value);
    };
    key("block_count", preset.layers.into());
    key("context_length", preset.context.into());
    key("embedding_length", preset.width.into());
    key("feed_forward_length", preset.ffn.into());
    key("vocab_size", preset.vocab.into());
    key("attention.head_count", preset.heads.into());
    key("attention.head_count_kv", preset.kv_heads.into());
    key("attention.key_length", preset.head_dim.into());
    key("attention.value_length", preset.head_dim.into());
    key("attention.layer_norm_rms_epsilon", preset.eps.into());
    key("rope.freq_base", preset.rope_base.into());
    key("rope.dimension_count", preset.head_dim.into());
    if preset.parts.sliding_window > 0 {
        key("attention.sliding_window", preset.parts.sliding_window.into());
    }
    if let Some(experts) = &preset.experts {
        key("expert_count", experts.count.into());
        key("expert_used_count", experts.used.into());
        key("expert_feed_forward_length", experts.width.into());
    }
}
