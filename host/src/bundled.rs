//! The tiny model inside the binary.

/// The bytes of the bundled GGUF file, 32-byte aligned as its tensors want it; none where the feature
/// `bundled-model` is off.
pub fn model() -> Option<&'static [u8]> {
    embedded::MODEL
}

#[cfg(feature = "bundled-model")]
mod embedded {
    /// Gives the bytes an alignment that `include_bytes!` alone does not.
    #[repr(C, align(32))]
    struct Aligned<T: ?Sized>(T);

    static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../../models/tiny-qwen3moe-q4_k_m.gguf"));

    pub const MODEL: Option<&[u8]> = Some(&FILE.0);
}

#[cfg(not(feature = "bundled-model"))]
mod embedded {
    pub const MODEL: Option<&[u8]> = None;
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    #[test]
    fn is_an_aligned_gguf() {
        let bytes = super::model().unwrap();
        assert!(bytes.starts_with(b"GGUF"));
        assert_eq!(bytes.as_ptr().align_offset(32), 0);
    }
}
