//! Tensor cores: `mma.sync` and `ldmatrix`, by the whole warp.
//!
//! Where the elements of a tile lie, with g = lane / 4 and t = lane % 4 (PTX manual, "Matrix
//! fragments"):
//!
//! | tile | register | elements, lowest first |
//! |---|---|---|
//! | A 16×16 (16 bit) | a0, a1, a2, a3 | row g, g+8, g, g+8; columns 2t, 2t+1, from a2 on 8 further |
//! | B 16×8 (16 bit) | b0, b1 | rows 2t, 2t+1, for b1 8 further; column g |
//! | A 16×32 (8 bit) | a0, a1, a2, a3 | row g, g+8, g, g+8; columns 4t … 4t+3, from a2 on 16 further |
//! | B 32×8 (8 bit) | b0, b1 | rows 4t … 4t+3, for b1 16 further; column g |
//! | C, D 16×8 (32 bit) | c0, c1, c2, c3 | row g twice, then g+8; columns 2t, 2t+1 |
//!
//! Integer products are exact and wrap at 32 bits. Float products are exact; the order and rounding
//! of their sum is the hardware's, and the emulator's is one rounding of the exact sum.

macro_rules! integer {
    ($($(#[$doc:meta])* $name:ident, $intrinsic:ident, $kind:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        #[track_caller]
        pub fn $name(a: [u32; 4], b: [u32; 2], c: [i32; 4]) -> [i32; 4] {
            on! { ptx {
                // SAFETY: exchanges registers; convergence is the caller's contract.
                let d = unsafe {
                    crate::llvm::$intrinsic(a[0] as i32, a[1] as i32, a[2] as i32, a[3] as i32, b[0] as i32, b[1] as i32, c[0], c[1], c[2], c[3])
                };
                [d.0, d.1, d.2, d.3]
            } emu {
                let c = c.map(|c| c as u32);
                crate::emu::collective_all(crate::emu::Collective::$kind, &[a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], c[2], c[3]]).map(|d| d as i32)
            } }
        }
    )*};
}

integer! {
    /// `mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32`: D = A·B + C with signed bytes.
    m16n8k32_s8, mma_s8, MmaS8;
    /// `mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32`: unsigned bytes in A, signed bytes in B.
    m16n8k32_u8_s8, mma_u8_s8, MmaU8S8;
}

/// `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`: D = A·B + C; a register of A or B holds two bf16.
#[inline(always)]
#[must_use]
#[track_caller]
pub fn m16n8k16_bf16(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    on! { ptx {
        // SAFETY: exchanges registers; convergence is the caller's contract.
        let d = unsafe {
            crate::llvm::mma_bf16(a[0] as i32, a[1] as i32, a[2] as i32, a[3] as i32, b[0] as i32, b[1] as i32, c[0], c[1], c[2], c[3])
        };
        [d.0, d.1, d.2, d.3]
    } emu { emulate_float(crate::emu::Collective::MmaBf16, a, b, c) } }
}

/// `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`: D = A·B + C; a register of A or B holds two f16.
#[inline(always)]
#[must_use]
#[track_caller]
pub fn m16n8k16_f16(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    on! { ptx {
        // The intrinsic takes vectors of f16, which rustc passes to no function on this target, so
        // this one is `asm!`: volatile, which keeps LLVM from moving it, but not convergent. Call it
        // where control flow is the same for the whole warp; the PTX gate counts the copies.
        let (d0, d1, d2, d3): (f32, f32, f32, f32);
        // SAFETY: exchanges registers; convergence is the caller's contract.
        unsafe {
            core::arch::asm!(
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{d0}, {d1}, {d2}, {d3}}}, {{{a0}, {a1}, {a2}, {a3}}}, {{{b0}, {b1}}}, {{{c0}, {c1}, {c2}, {c3}}};",
                d0 = out(reg32) d0, d1 = out(reg32) d1, d2 = out(reg32) d2, d3 = out(reg32) d3,
                a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
                b0 = in(reg32) b[0], b1 = in(reg32) b[1],
                c0 = in(reg32) c[0], c1 = in(reg32) c[1], c2 = in(reg32) c[2], c3 = in(reg32) c[3],
                options(nostack)
            )
        };
        [d0, d1, d2, d3]
    } emu { emulate_float(crate::emu::Collective::MmaF16, a, b, c) } }
}

#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
fn emulate_float(kind: crate::emu::Collective, a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    let c = c.map(f32::to_bits);
    crate::emu::collective_all(kind, &[a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], c[2], c[3]]).map(f32::from_bits)
}

/// The generic address of a shared one, which the `ldmatrix` intrinsics take: `cvta.shared`.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn generic(address: u32) -> *const u8 {
    let pointer: *const u8;
    // SAFETY: converts an address.
    unsafe {
        core::arch::asm!("{{ .reg .u64 wide; cvt.u64.u32 wide, {a}; cvta.shared.u64 {p}, wide; }}", p = out(reg64) pointer, a = in(reg32) address, options(pure, nomem, nostack))
    };
    pointer
}

macro_rules! ldmatrix {
    ($($(#[$doc:meta])* $name:ident -> $n:literal, $intrinsic:ident, $trans:literal, |$m:ident| $unpack:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        #[track_caller]
        pub fn $name(row: u32) -> [u32; $n] {
            on! { ptx {
                // SAFETY: reads shared memory; convergence is the caller's contract.
                let $m = unsafe { crate::llvm::$intrinsic(generic(row)) };
                $unpack
            } emu { crate::emu::load_matrices::<$n>(row, $trans) } }
        }
    )*};
}

ldmatrix! {
    /// `ldmatrix.sync.aligned.m8n8.x1.shared.b16`: an 8×8 matrix of 16-bit elements. Lanes 0 … 7 give
    /// the shared addresses of its rows (16 bytes each, aligned); lane 4r + c gets columns 2c and 2c+1 of row r.
    load_matrix_x1 -> 1, ldmatrix_x1, false, |m| [m as u32];
    /// `ldmatrix….x2`: two matrices; lanes 8 … 15 give the rows of the second.
    load_matrix_x2 -> 2, ldmatrix_x2, false, |m| [m.0 as u32, m.1 as u32];
    /// `ldmatrix….x4`: four matrices; lanes 8i … 8i+7 give the rows of matrix i.
    load_matrix_x4 -> 4, ldmatrix_x4, false, |m| [m.0 as u32, m.1 as u32, m.2 as u32, m.3 as u32];
    /// `ldmatrix….x1.trans`: transposed on the way: lane 4c + r gets rows 2r and 2r+1 of column c.
    load_matrix_x1_trans -> 1, ldmatrix_x1_trans, true, |m| [m as u32];
    /// `ldmatrix….x2.trans`: two matrices, transposed.
    load_matrix_x2_trans -> 2, ldmatrix_x2_trans, true, |m| [m.0 as u32, m.1 as u32];
    /// `ldmatrix….x4.trans`: four matrices, transposed.
    load_matrix_x4_trans -> 4, ldmatrix_x4_trans, true, |m| [m.0 as u32, m.1 as u32, m.2 as u32, m.3 as u32];
}
