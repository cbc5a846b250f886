//! What is in a GGUF file, as data and as text.

mod memory;
mod model;
mod text;

pub use memory::{Gpu, GpuMemory};
pub use model::{Experts, ModelReport};

use crate::model::{KvType, ModelSpec};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use sparkinfer_gguf::{Gguf, TensorType, TensorView, Value};

/// Elements of an array that a report shows; the rest is counted.
const SHOWN_ELEMENTS: usize = 8;

/// Everything that `sparkinfer inspect` says. As JSON it is an object with these fields; as text (`Display`) tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The file, or the first of a split model.
    pub file: String,
    /// GGUF version.
    pub version: u32,
    /// Files that the model is split into.
    pub files: usize,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Values in all tensors.
    pub parameters: u64,
    /// Bits of tensor data per parameter.
    pub bits_per_weight: f64,
    /// The model in the file, if it can be run.
    pub model: Option<ModelReport>,
    /// Why it cannot.
    pub problem: Option<String>,
    /// What the model will take of a GPU's memory, if the GPU's kernels take it.
    pub gpu_memory: Option<GpuMemory>,
    /// Key to value. An array is an object with `type`, `length` and its first elements.
    pub metadata: Map<String, Json>,
    /// How the tensor data divides among the types, the largest share first.
    pub mix: Vec<Share>,
    /// All tensors, in the file's order.
    pub tensors: Vec<Tensor>,
}

/// The tensors of one type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// Type name.
    #[serde(rename = "type")]
    pub ty: &'static str,
    /// Number of tensors.
    pub tensors: usize,
    /// Values in them.
    pub parameters: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tensor {
    /// Name.
    pub name: String,
    /// Type name.
    #[serde(rename = "type")]
    pub ty: &'static str,
    /// Dimensions, the contiguous one first.
    pub shape: Vec<u64>,
    /// Bytes.
    pub bytes: u64,
}

impl Report {
    /// Reads a file's header; tensor data is not touched. The memory is that of a run with room for `context` tokens
    /// (4,096 if not given) in a cache of type `kv`.
    pub fn new(gguf: &Gguf, context: Option<usize>, kv: KvType) -> Self {
        let spec = ModelSpec::from_gguf(gguf);
        let parameters = gguf.tensors().map(|tensor| tensor.elements() as u64).sum();
        let bytes: u64 = gguf.tensors().map(|tensor| tensor.data.len() as u64).sum();
        Self {
            file: gguf.label().to_owned(),
            version: gguf.version(),
            files: gguf.file_count(),
            file_bytes: gguf.file_bytes(),
            parameters,
            bits_per_weight: if parameters == 0 {
                0.0
            } else {
                bytes as f64 * 8.0 / parameters as f64
            },
            problem: spec.as_ref().err().map(ToString::to_string),
            gpu_memory: spec
                .as_ref()
                .ok()
                .and_then(|spec| GpuMemory::new(spec, context, kv).ok()),
            model: spec.ok().map(|spec| ModelReport::new(&spec, kv)),
            metadata: gguf
                .metadata()
                .iter()
                .map(|(key, value)| (key.to_owned(), json_of(&value)))
                .collect(),
            mix: mix(gguf),
            tensors: gguf.tensors().map(tensor).collect(),
        }
    }
}

fn tensor(view: TensorView<'_>) -> Tensor {
    let shape = view.shape().to_vec();
    Tensor {
        name: view.name.to_owned(),
        ty: view.ty.name(),
        shape,
        bytes: view.data.len() as u64,
    }
}

fn mix(gguf: &Gguf) -> Vec<Share> {
    let mut shares: Vec<Share> = TensorType::all().filter_map(|ty| share(gguf, ty)).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}

fn share(gguf: &Gguf, ty: TensorType) -> Option<Share> {
    let mut share = Share {
        ty: ty.name(),
        tensors: 0,
        parameters: 0,
        bytes: 0,
    };
    for tensor in gguf.tensors().filter(|tensor| tensor.ty == ty) {
        share.tensors += 1;
        share.parameters += tensor.elements() as u64;
        share.bytes += tensor.data.len() as u64;
    }
    (share.tensors > 0).then_some(share)
}

fn json_of(value: &Value<'_>) -> Json {
    match value {
        Value::Bool(value) => json!(value),
        Value::Str(bytes) => json!(String::from_utf8_lossy(bytes)),
        Value::Array(array) => {
            let first: Vec<Json> = array
                .iter()
                .take(SHOWN_ELEMENTS)
                .map(|element| json_of(&element))
                .collect();
            json!({ "type": array.kind().name(), "length": array.len(), "first": first })
        }
        // As f32 prints itself: through f64 0.1 would become 0.10000000149011612.
        Value::F32(value) => value.to_string().parse().map_or(Json::Null, |value: f64| json!(value)),
        Value::F64(value) => json!(value),
        Value::U64(value) => json!(value),
        integer => json!(integer.integer().and_then(|value| i64::try_from(value).ok())),
    }
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    use super::*;

    fn report() -> Report {
        Report::new(
            &Gguf::from_bytes(crate::bundled::model().unwrap()).unwrap(),
            None,
            KvType::F16,
        )
    }

    #[test]
    fn the_bundled_model_in_numbers() {
        let report = report();
        assert_eq!(report.parameters, 16_272_640);
        assert_eq!(report.file_bytes, 10_197_248);
        assert!(
            (report.bits_per_weight - 4.95).abs() < 0.01,
            "{}",
            report.bits_per_weight
        );
        assert_eq!(
            report.mix.iter().map(|share| share.tensors).sum::<usize>(),
            report.tensors.len()
        );
        assert_eq!(report.mix[0].ty, "Q4_K");
        assert_eq!(
            (report.model.map(|model| model.layers), report.problem),
            (Some(4), None)
        );
    }

    #[test]
    fn metadata_keeps_its_kinds_and_cuts_arrays() {
        let metadata = report().metadata;
        assert_eq!(metadata["general.architecture"], "qwen3moe");
        assert_eq!(metadata["qwen3moe.block_count"], 4);
        assert_eq!(metadata["qwen3moe.rope.freq_base"], 1_000_000.0);
        let tokens = &metadata["tokenizer.ggml.tokens"];
        assert_eq!((&tokens["type"], &tokens["length"]), (&json!("str"), &json!(4096)));
        assert_eq!(tokens["first"].as_array().unwrap().len(), SHOWN_ELEMENTS);
    }

    #[test]
    fn floats_are_short() {
        assert_eq!(json_of(&Value::F32(0.1)).to_string(), "0.1");
        assert_eq!(json_of(&Value::F32(f32::NAN)), Json::Null);
        assert_eq!(json_of(&Value::U64(u64::MAX)).to_string(), u64::MAX.to_string());
    }
}
