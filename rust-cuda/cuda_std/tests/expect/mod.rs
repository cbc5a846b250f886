//! What a launch with a mistake must end with.

use cuda_std::emu::{Emulator, Fault, FaultKind};

/// The fault that a launch ends with: of this kind under every order, and in the natural one with these words.
#[track_caller]
pub fn expect(kind: FaultKind, words: &str, launch: impl Fn(&Emulator) -> Result<(), Fault>) -> Fault {
    let mut faults = (0..5).map(|seed| launch(&Emulator::with_seed(seed)).expect_err("a fault"));
    let first = faults.next().expect("some orders");
    assert!(first.to_string().contains(words), "{first}");
    for fault in faults.chain([first.clone()]) {
        assert!(fault.kind == kind, "{fault}");
    }
    first
}
