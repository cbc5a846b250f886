//! Loops over registers.
//!
//! LLVM splits arrays into registers before it unrolls loops, so that `while i < R { a[i] … }` leaves
//! the array in local memory. [`unroll!`](crate::unroll!) writes the body once for each index, as a constant.

/// Repeats a block for each constant index: `unroll!(for I in 0..N { a[I] += b[I]; })`.
///
/// `I` is a `const usize`; `N` is a literal, a constant, a const parameter or a `{ block }` of them, at
/// most 32. The block is pasted as it stands: `break` and `continue` belong to the loop around it.
#[macro_export]
macro_rules! unroll {
    (for $i:ident in 0..1 $body:block) => { $crate::unroll!(@each $i $body 0) };
    (for $i:ident in 0..2 $body:block) => { $crate::unroll!(@each $i $body 0 1) };
    (for $i:ident in 0..3 $body:block) => { $crate::unroll!(@each $i $body 0 1 2) };
    (for $i:ident in 0..4 $body:block) => { $crate::unroll!(@each $i $body 0 1 2 3) };
    (for $i:ident in 0..5 $body:block) => { $crate::unroll!(@each $i $body 0 1 2 3 4) };
    (for $i:ident in 0..6 $body:block) => { $crate::unroll!(@each $i $body 0 1 2 3 4 5) };
    (for $i:ident in 0..7 $body:block) => { $crate::unroll!(@each $i $body 0 1 2 3 4 5 6) };
    (for $i:ident in 0..8 $body:block) => { $crate::unroll!(@each $i $body 0 1 2 3 4 5 6 7) };
    (for $i:ident in 0..16 $body:block) => { $crate::unroll!(@each $i $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    (for $i:ident in 0..$n:tt $body:block) => {{
        const { assert!($n <= 32, "unroll! repeats at most 32 times") };
        $crate::unroll!(@below $n, $i $body 0 1 2 3);
        if $n > 4 { $crate::unroll!(@below $n, $i $body 4 5 6 7); }
        if $n > 8 { $crate::unroll!(@below $n, $i $body 8 9 10 11 12 13 14 15); }
        if $n > 16 { $crate::unroll!(@below $n, $i $body 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31); }
    }};
    (@each $i:ident $body:block $($index:literal)*) => {{ $({ #[allow(dead_code)] const $i: usize = $index; $body })* }};
    (@below $n:tt, $i:ident $body:block $($index:literal)*) => {{
        $({ const $i: usize = $index; if $i < $n $body })*
    }};
}

pub use crate::unroll;

macro_rules! hidden {
    ($($(#[$doc:meta])* $name:ident, $text:literal $(, $pure:ident)?;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        pub fn $name(number: u32) -> u32 {
            on! { ptx {
                let mut number = number;
                // SAFETY: no instruction.
                unsafe { core::arch::asm!($text, n = inout(reg32) number, options($($pure,)? nomem, nostack, preserves_flags)) };
                number
            } emu { number } }
        }
    )*};
}

hidden! {
    /// The same number, of which the compiler knows nothing any more: a loop that steps to `rolled(i + 1)` stays a loop.
    /// LLVM repeats the body of short loops, and code that runs once is slow to fetch.
    rolled, "// {n}", pure;
    /// [`rolled`], also for the assembler, which repeats the bodies of loops that it makes out: four times what runs once
    /// then lies between what comes before it and what comes behind. Where a loop goes round often its repetitions are worth
    /// having.
    stepped, ".pragma \"nounroll\"; // {n}", pure;
    /// The same number, made where this stands: a loop that uses it does not keep what follows from it in registers.
    remade, "// {n}";
}

#[cfg(test)]
mod tests {
    fn sum<const N: usize>(values: [u32; 32]) -> u32 {
        let mut total = 0;
        unroll!(for I in 0..N {
            total += values[I];
        });
        total
    }

    #[test]
    fn each_index_comes_once() {
        let values = core::array::from_fn(|i| 1 << i);
        assert_eq!(sum::<0>(values), 0);
        assert_eq!(sum::<3>(values), 0b111);
        assert_eq!(sum::<8>(values), 0xff);
        assert_eq!(sum::<17>(values), 0x1_ffff);
        assert_eq!(sum::<32>(values), u32::MAX);
        let mut seen = [0; 4];
        unroll!(for I in 0..4 {
            seen[I] += I;
        });
        assert_eq!(seen, [0, 1, 2, 3]);
    }
}
