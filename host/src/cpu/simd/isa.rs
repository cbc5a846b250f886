//! The integer instructions that a compiler does not find by itself.

use sparkinfer_gguf::blocks::F16;

/// `[f(0), f(1), …]`, as [`std::array::from_fn`], whose loop is not inlined and so would be compiled for
/// any machine.
#[inline(always)]
pub(super) fn array<T: Copy + Default, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut out = [T::default(); N];
    for (i, out) in out.iter_mut().enumerate() {
        *out = f(i);
    }
    out
}

/// Lanes of floats, on every machine: what a lane sums is part of the result.
pub(super) const LANES: usize = 16;

/// Which instructions this machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cpu) struct Level {
    avx2: bool,
    avx512: bool,
}

impl Level {
    /// Instructions that every machine has.
    #[cfg(test)]
    pub(in crate::cpu) fn portable() -> Self {
        Level {
            avx2: false,
            avx512: false,
        }
    }

    /// All levels of this machine.
    #[cfg(test)]
    pub(in crate::cpu) fn all() -> Vec<Self> {
        let best = Self::best();
        let avx2 = Level { avx512: false, ..best };
        vec![Self::portable(), avx2, best]
    }

    /// The best that this machine has.
    pub(in crate::cpu) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        #[cfg(not(target_arch = "x86_64"))]
        let avx2 = false;
        #[cfg(target_arch = "x86_64")]
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq");
        #[cfg(not(target_arch = "x86_64"))]
        let avx512 = false;
        Level { avx2, avx512 }
    }

    /// Whether AVX2, FMA and F16C may be used. Only ever true where they were detected.
    pub(in crate::cpu) fn has_avx2(self) -> bool {
        self.avx2
    }

    /// Whether AVX-512 F, VL, BW and DQ may be used, too. Only ever true where they were detected.
    pub(in crate::cpu) fn has_avx512(self) -> bool {
        self.avx512
    }

    /// For people.
    pub(in crate::cpu) fn name(self) -> &'static str {
        match self {
            Level { avx512: true, .. } => "AVX-512",
            Level { avx2: true, .. } => "AVX2",
            _ => "portable",
        }
    }
}

/// Products of floats in [`LANES`] lanes, and of bytes, summed in eight lanes; lane l takes the values 4l to 4l + 3 of 32.
pub(in crate::cpu) trait Isa {
    /// [`LANES`] floats.
    type Floats: Copy;

    /// Rows that [`super::tile`] takes together: as many as the registers hold the sums of.
    const ROWS: usize;

    /// Floats from memory.
    fn load(values: &[f32; LANES]) -> Self::Floats;

    /// The same float in all lanes.
    fn splat(value: f32) -> Self::Floats;

    /// `a · b + c`, rounded once.
    fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    /// The lanes.
    fn lanes(values: Self::Floats) -> [f32; LANES];

    /// Eight 32-bit sums.
    type Lanes: Copy;

    /// Eight zeros.
    fn zero() -> Self::Lanes;

    /// `lanes[l] += s[2l] · (q₀a₀ + q₁a₁) + s[2l+1] · (q₂a₂ + q₃a₃)` with q and a from 4l on.
    /// A sum of two products must fit in 16 bits: q at most 127.
    fn add_scaled(lanes: Self::Lanes, q: &[u8; 32], a: &[i8; 32], s: &[i16; 16]) -> Self::Lanes;

    /// `lanes[l] += x[2l] · y[2l] + x[2l+1] · y[2l+1]`.
    fn add_pairs(lanes: Self::Lanes, x: &[i16; 16], y: &[i16; 16]) -> Self::Lanes;

    /// `Σ q[4l + i] · a[4l + i]` for signed q; a at least −127.
    fn dot(q: &[i8; 32], a: &[i8; 32]) -> Self::Lanes;

    /// The lanes as floats, rounded to nearest.
    fn to_f32(lanes: Self::Lanes) -> [f32; 8];

    /// The value of a half.
    fn half(value: F16) -> f32;

    /// The values of eight halves.
    fn halves(bits: &[u16; 8]) -> [f32; 8];
}

/// Plain Rust.
pub(in crate::cpu) struct Portable;

impl Isa for Portable {
    type Floats = [f32; LANES];
    type Lanes = [i32; 8];

    const ROWS: usize = 1;

    #[inline(always)]
    fn load(values: &[f32; LANES]) -> [f32; LANES] {
        *values
    }

    #[inline(always)]
    fn splat(value: f32) -> [f32; LANES] {
        [value; LANES]
    }

    #[inline(always)]
    fn mul_add(a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        array(|l| a[l].mul_add(b[l], c[l]))
    }

    #[inline(always)]
    fn lanes(values: [f32; LANES]) -> [f32; LANES] {
        values
    }

    #[inline(always)]
    fn zero() -> [i32; 8] {
        [0; 8]
    }

    #[inline(always)]
    fn add_scaled(mut lanes: [i32; 8], q: &[u8; 32], a: &[i8; 32], s: &[i16; 16]) -> [i32; 8] {
        let product = |i: usize| i32::from(q[i]) * i32::from(a[i]);
        for (l, lane) in lanes.iter_mut().enumerate() {
            let first = product(4 * l) + product(4 * l + 1);
            let second = product(4 * l + 2) + product(4 * l + 3);
            *lane += i32::from(s[2 * l]) * first + i32::from(s[2 * l + 1]) * second;
        }
        lanes
    }

    #[inline(always)]
    fn add_pairs(mut lanes: [i32; 8], x: &[i16; 16], y: &[i16; 16]) -> [i32; 8] {
        let product = |i: usize| i32::from(x[i]) * i32::from(y[i]);
        for (l, lane) in lanes.iter_mut().enumerate() {
            *lane += product(2 * l) + product(2 * l + 1);
        }
        lanes
    }

    #[inline(always)]
    fn dot(q: &[i8; 32], a: &[i8; 32]) -> [i32; 8] {
        array(|l| (4 * l..4 * l + 4).map(|i| i32::from(q[i]) * i32::from(a[i])).sum())
    }

    #[inline(always)]
    fn to_f32(lanes: [i32; 8]) -> [f32; 8] {
        array(|l| lanes[l] as f32)
    }

    #[inline(always)]
    fn half(value: F16) -> f32 {
        half::f16::from_bits(value.to_bits()).to_f32_const()
    }

    #[inline(always)]
    fn halves(bits: &[u16; 8]) -> [f32; 8] {
        array(|i| half::f16::from_bits(bits[i]).to_f32_const())
    }
}

/// AVX2. Its functions must only be called, inlined, from functions that have the feature: `dispatch!`
/// makes sure of it.
#[cfg(target_arch = "x86_64")]
pub(in crate::cpu) struct Avx2;

/// The same, and floats in registers of 512 bits. Its functions must only be called, inlined, from functions that have
/// the features: `dispatch!` makes sure of it.
#[cfg(target_arch = "x86_64")]
pub(in crate::cpu) struct Avx512;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Avx2, Avx512, F16, Isa, LANES};
    use std::arch::x86_64::*;

    /// Any 32 bytes as a vector.
    #[inline(always)]
    fn load<T>(values: &T) -> __m256i {
        const { assert!(size_of::<T>() == 32) };
        // SAFETY: the reference covers the 32 bytes that are read; unaligned loads are allowed, and
        // `dispatch!` has checked for AVX2.
        unsafe { _mm256_loadu_si256(std::ptr::from_ref(values).cast()) }
    }

    impl Isa for Avx2 {
        type Floats = [__m256; 2];
        type Lanes = __m256i;

        const ROWS: usize = 2;

        #[inline(always)]
        fn load(values: &[f32; LANES]) -> [__m256; 2] {
            let first = values.as_ptr();
            // SAFETY: the reference covers the 64 bytes that are read; `dispatch!` has checked for AVX2.
            unsafe { [_mm256_loadu_ps(first), _mm256_loadu_ps(first.add(8))] }
        }

        #[inline(always)]
        fn splat(value: f32) -> [__m256; 2] {
            // SAFETY: `dispatch!` has checked for AVX2.
            unsafe { [_mm256_set1_ps(value); 2] }
        }

        #[inline(always)]
        fn mul_add(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
            // SAFETY: `dispatch!` has checked for FMA.
            unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
        }

        #[inline(always)]
        fn lanes(values: [__m256; 2]) -> [f32; LANES] {
            // SAFETY: both types are 64 bytes of floats.
            unsafe { std::mem::transmute(values) }
        }

        #[inline(always)]
        fn zero() -> __m256i {
            // SAFETY: `dispatch!` has checked for AVX2.
            unsafe { _mm256_setzero_si256() }
        }

        #[inline(always)]
        fn add_scaled(lanes: __m256i, q: &[u8; 32], a: &[i8; 32], s: &[i16; 16]) -> __m256i {
            // SAFETY: `dispatch!` has checked for AVX2.
            unsafe {
                let pairs = _mm256_maddubs_epi16(load(q), load(a));
                _mm256_add_epi32(lanes, _mm256_madd_epi16(pairs, load(s)))
            }
        }

        #[inline(always)]
        fn add_pairs(lanes: __m256i, x: &[i16; 16], y: &[i16; 16]) -> __m256i {
            // SAFETY: `dispatch!` has checked for AVX2.
            unsafe { _mm256_add_epi32(lanes, _mm256_madd_epi16(load(x), load(y))) }
        }

        #[inline(always)]
        fn dot(q: &[i8; 32], a: &[i8; 32]) -> __m256i {
            // SAFETY: `dispatch!` has checked for AVX2.
            unsafe {
                // |q| as unsigned (128 for −128) times a with q's sign: pairs stay below 2^15.
                let q = load(q);
                let signed = _mm256_sign_epi8(load(a), q);
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), signed);
                _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
            }
        }

        #[inline(always)]
        fn to_f32(lanes: __m256i) -> [f32; 8] {
            // SAFETY: `dispatch!` has checked for AVX2; both types are 32 bytes of floats.
            unsafe { std::mem::transmute(_mm256_cvtepi32_ps(lanes)) }
        }

        #[inline(always)]
        fn half(value: F16) -> f32 {
            // SAFETY: `dispatch!` has checked for F16C.
            unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(value.to_bits())))) }
        }

        #[inline(always)]
        fn halves(bits: &[u16; 8]) -> [f32; 8] {
            // SAFETY: `dispatch!` has checked for F16C; the load is of the reference's 16 bytes, and both types
            // of the result are 32 bytes of floats.
            unsafe { std::mem::transmute(_mm256_cvtph_ps(_mm_loadu_si128(std::ptr::from_ref(bits).cast()))) }
        }
    }

    impl Isa for Avx512 {
        type Floats = __m512;
        type Lanes = __m256i;

        const ROWS: usize = 4;

        #[inline(always)]
        fn load(values: &[f32; LANES]) -> __m512 {
            // SAFETY: the reference covers the 64 bytes that are read; `dispatch!` has checked for AVX-512.
            unsafe { _mm512_loadu_ps(values.as_ptr()) }
        }

        #[inline(always)]
        fn splat(value: f32) -> __m512 {
            // SAFETY: `dispatch!` has checked for AVX-512.
            unsafe { _mm512_set1_ps(value) }
        }

        #[inline(always)]
        fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: `dispatch!` has checked for AVX-512.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        fn lanes(values: __m512) -> [f32; LANES] {
            // SAFETY: both types are 64 bytes of floats.
            unsafe { std::mem::transmute(values) }
        }

        #[inline(always)]
        fn zero() -> __m256i {
            Avx2::zero()
        }

        #[inline(always)]
        fn add_scaled(lanes: __m256i, q: &[u8; 32], a: &[i8; 32], s: &[i16; 16]) -> __m256i {
            Avx2::add_scaled(lanes, q, a, s)
        }

        #[inline(always)]
        fn add_pairs(lanes: __m256i, x: &[i16; 16], y: &[i16; 16]) -> __m256i {
            Avx2::add_pairs(lanes, x, y)
        }

        #[inline(always)]
        fn dot(q: &[i8; 32], a: &[i8; 32]) -> __m256i {
            Avx2::dot(q, a)
        }

        #[inline(always)]
        fn to_f32(lanes: __m256i) -> [f32; 8] {
            Avx2::to_f32(lanes)
        }

        #[inline(always)]
        fn half(value: F16) -> f32 {
            Avx2::half(value)
        }

        #[inline(always)]
        fn halves(bits: &[u16; 8]) -> [f32; 8] {
            Avx2::halves(bits)
        }
    }
}
