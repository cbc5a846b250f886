//! Which type each tensor gets: the mixes that llama.cpp's quantiser makes.

use sparkinfer_gguf::TensorType;

use super::tensors::{Planned, Role};
use super::{Preset, SynthError};

/// A named choice of tensor types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the names are the format's own
pub enum Mix {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q4_0,
    Q4KM,
    Q5KM,
    Q6K,
    /// All matrices but the output's in this type, as with the quantiser's `--pure`; so the next three.
    Q2K,
    Q3K,
    Iq4Nl,
    Iq4Xs,
    /// Experts in MXFP4, everything else in Q8_0.
    Mxfp4Moe,
    /// Matrices of the layers in NVFP4 with their second scales, embedding and output in Q8_0.
    Nvfp4,
}

impl Mix {
    /// Every mix.
    pub const ALL: [Self; 14] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4KM,
        Self::Q5KM,
        Self::Q6K,
        Self::Q2K,
        Self::Q3K,
        Self::Iq4Nl,
        Self::Iq4Xs,
        Self::Mxfp4Moe,
        Self::Nvfp4,
    ];

    /// The mix of this name (`"q4_k_m"`), case-insensitive.
    ///
    /// # Errors
    /// There is none; the message lists them.
    pub fn find(name: &str) -> Result<Self, SynthError> {
        let found = Self::ALL.into_iter().find(|mix| mix.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| SynthError::UnknownMix {
            name: name.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4KM => "q4_k_m",
            Self::Q5KM => "q5_k_m",
            Self::Q6K => "q6_k",
            Self::Q2K => "q2_k",
            Self::Q3K => "q3_k",
            Self::Iq4Nl => "iq4_nl",
            Self::Iq4Xs => "iq4_xs",
            Self::Mxfp4Moe => "mxfp4_moe",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// The value of `general.file_type`.
    pub const fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q8_0 => 7,
            Self::Q2K => 10,
            Self::Q3K => 11,
            Self::Q4KM => 15,
            Self::Q5KM => 17,
            Self::Q6K => 18,
            Self::Iq4Nl => 25,
            Self::Iq4Xs => 30,
            Self::Bf16 => 32,
            Self::Mxfp4Moe => 38,
            Self::Nvfp4 => 39,
        }
    }

    /// Whether all matrices of the layers have one type.
    const fn is_pure(self) -> bool {
        matches!(self, Self::Q4_0 | Self::Q2K | Self::Q3K | Self::Iq4Nl | Self::Iq4Xs)
    }

    /// The type of most matrices.
    const fn base(self) -> TensorType {
        match self {
            Self::F32 => TensorType::F32,
            Self::F16 => TensorType::F16,
            Self::Bf16 => TensorType::BF16,
            Self::Q8_0 | Self::Mxfp4Moe => TensorType::Q8_0,
            Self::Q4_0 => TensorType::Q4_0,
            Self::Q4KM => TensorType::Q4_K,
            Self::Q5KM => TensorType::Q5_K,
            Self::Q6K => TensorType::Q6_K,
            Self::Q2K => TensorType::Q2_K,
            Self::Q3K => TensorType::Q3_K,
            Self::Iq4Nl => TensorType::IQ4_NL,
            Self::Iq4Xs => TensorType::IQ4_XS,
            Self::Nvfp4 => TensorType::NVFP4,
        }
    }

    /// The type of a tensor.
    pub(super) fn tensor_type(self, tensor: &Planned, preset: &Preset) -> TensorType {
        let wanted = match tensor.role {
            Role::Exact => return TensorType::F32,
            _ if matches!(self, Self::F32 | Self::F16 | Self::Bf16 | Self::Q8_0) => self.base(),
            Role::Embedding | Role::Output if self == Self::Nvfp4 => TensorType::Q8_0,
            _ if self == Self::Nvfp4 => self.base(),
            _ if self == Self::Mxfp4Moe && tensor.shape.len() == 3 => TensorType::MXFP4,
            _ if self == Self::Mxfp4Moe => self.base(),
            Role::Output => TensorType::Q6_K,
            Role::Embedding if preset.tied => TensorType::Q6_K,
            _ if self.is_pure() => self.base(),
            role => self.k_mix(role, tensor.layer, preset),
        };
        fitting(wanted, tensor)
    }

    /// The "M" mixes: six bits for the values and the down matrices of some layers.
    fn k_mix(self, role: Role, layer: u32, preset: &Preset) -> TensorType {
        let eight_experts = preset.experts.as_ref().is_some_and(|experts| experts.count == 8);
        match role {
            Role::Key | Role::Value if eight_experts => TensorType::Q8_0,
            Role::AttentionOutput if eight_experts && self != Self::Q6K => TensorType::Q5_K,
            Role::Value | Role::Down if more_bits(layer, preset.layers) => TensorType::Q6_K,
            _ => self.base(),
        }
    }
}

/// Layers that get more bits: the first and the last eighth, and every third between.
fn more_bits(layer: u32, layers: u32) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// The wanted type, or the one that takes its place where rows are no multiple of its block.
fn fitting(wanted: TensorType, tensor: &Planned) -> TensorType {
    let fits = |ty: TensorType| tensor.shape[0].is_multiple_of(ty.block_len() as u64);
    let substitute = match wanted {
        _ if fits(wanted) => return wanted,
        TensorType::Q4_K => TensorType::Q5_0,
        TensorType::Q5_K => TensorType::Q5_1,
        TensorType::Q2_K | TensorType::Q3_K | TensorType::IQ4_XS => TensorType::IQ4_NL,
        _ => TensorType::Q8_0,
    };
    if fits(substitute) { substitute } else { TensorType::F16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_with_more_bits() {
        let layers = |n| (0..n).filter(|&i| more_bits(i, n)).collect::<Vec<_>>();
        assert_eq!(layers(48).len(), 24);
        assert_eq!(
            layers(40),
            [0, 1, 2, 3, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 35, 36, 37, 38, 39]
        );
        assert_eq!(layers(4), [2, 3]);
    }

    #[test]
    fn names_are_found() {
        for mix in Mix::ALL {
            assert_eq!(Mix::find(&mix.name().to_uppercase()).ok(), Some(mix));
        }
        let error = Mix::find("q7").unwrap_err().to_string();
        assert_eq!(
            error,
            "no quantisation mix is called 'q7'; there are f32, f16, bf16, q8_0, q4_0, q4_k_m, q5_k_m, q6_k, q2_k, q3_k, iq4_nl, iq4_xs, mxfp4_moe, nvfp4"
        );
    }
}
