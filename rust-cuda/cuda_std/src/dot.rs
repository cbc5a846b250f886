//! Dot products of four bytes: `dp4a`.

macro_rules! dot {
    ($($(#[$doc:meta])* $name:ident, $intrinsic:ident, $a:ty, $b:ty;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        pub fn $name(a: u32, b: u32, c: i32) -> i32 {
            on! { ptx {
                // SAFETY: a pure instruction on registers.
                unsafe { crate::llvm::$intrinsic(a as i32, b as i32, c) }
            } emu {
                let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
                (0..4).fold(c, |sum, i| sum.wrapping_add(a[i] as $a as i32 * (b[i] as $b as i32)))
            } }
        }
    )*};
}

dot! {
    /// `dp4a.s32.s32`: c + Σ aᵢ·bᵢ over four signed bytes each, wrapping.
    dp4a_ss, dp4a_ss, i8, i8;
    /// `dp4a.u32.u32`: c + Σ aᵢ·bᵢ over four unsigned bytes each, wrapping.
    dp4a_uu, dp4a_uu, u8, u8;
    /// `dp4a.s32.u32`: signed bytes of a, unsigned bytes of b.
    dp4a_su, dp4a_su, i8, u8;
    /// `dp4a.u32.s32`: unsigned bytes of a, signed bytes of b.
    dp4a_us, dp4a_us, u8, i8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_each_operands_own() {
        let (a, b) = (0xff_80_7f_02, 0x01_ff_80_fe);
        assert_eq!(dp4a_ss(a, b, 5), 5 + -1 + 128 - 127 * 128 - 4);
        assert_eq!(dp4a_uu(a, b, 5), 5 + 255 + 128 * 255 + 127 * 128 + 2 * 254);
        assert_eq!(dp4a_su(a, b, 5), 5 + -1 - 128 * 255 + 127 * 128 + 2 * 254);
        assert_eq!(dp4a_us(a, b, 5), 5 + 255 - 128 - 127 * 128 - 4);
        assert_eq!(dp4a_uu(1, 1, i32::MAX), i32::MIN);
    }
}
