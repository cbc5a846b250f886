//! Words as four bytes: dot products (`dp4a`), and choosing bytes (`prmt`).

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

/// `prmt.b32`: byte i of the result is the byte of `a` (0…3) or `b` (4…7) that the i-th nibble of `selector` names; with
/// the nibble's top bit set, eight copies of that byte's sign.
#[inline(always)]
#[must_use]
pub fn permute_bytes(a: u32, b: u32, selector: u32) -> u32 {
    on! { ptx {
        // SAFETY: a pure instruction on registers.
        unsafe { crate::llvm::prmt(a as i32, b as i32, selector as i32) as u32 }
    } emu {
        let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
        let byte = |i: u32| {
            let nibble = selector >> (4 * i) & 15;
            let byte = bytes[nibble as usize & 7];
            let byte = if nibble & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 };
            u32::from(byte) << (8 * i)
        };
        (0..4).map(byte).sum()
    } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_chosen_by_nibbles() {
        let (a, b) = (0x8321_4365, 0x0fed_cba9);
        assert_eq!(permute_bytes(a, b, 0x3210), a);
        assert_eq!(permute_bytes(a, b, 0x7654), b);
        assert_eq!(permute_bytes(a, b, 0x0040), 0x6565_a965);
        assert_eq!(permute_bytes(a, b, 0x0b51), 0x65ff_cb43);
    }

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
