//! The two forms of an operation, side by side.

/// `on! { ptx { … } emu { … } }`: the first block where PTX is compiled, the second on the host.
#[cfg(target_arch = "nvptx64")]
macro_rules! on {
    (ptx $ptx:block emu $emu:block) => {
        $ptx
    };
}

/// `on! { ptx { … } emu { … } }`: the first block where PTX is compiled, the second on the host.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! on {
    (ptx $ptx:block emu $emu:block) => {
        $emu
    };
}
