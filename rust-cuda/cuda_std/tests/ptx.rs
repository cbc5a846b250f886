//! The self-tests compiled for GPUs: each operation has become the instruction that its documentation names.

use cuda_builder::{Arch, CudaBuilder, Error, Ptx};
use cuda_std::selftest::{CASES, Case};
use std::path::Path;

/// The PTX of this crate with its self-tests; nothing where there is no compiler for device code.
fn compile() -> Option<Vec<Ptx>> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let builder = CudaBuilder::new(crate_folder)
        .feature("selftest")
        .archs([Arch::Sm80, Arch::Sm90, Arch::Sm120a])
        .target_dir(crate_folder.join("../../target/cuda"));
    match builder.build() {
        Ok(built) => Some(built),
        Err(Error::NoCompiler(reason)) => {
            eprintln!("SKIPPED, nothing was checked: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The text of one kernel, from its name to the brace that closes it.
fn body<'a>(ptx: &'a str, kernel: &str) -> &'a str {
    let start = ptx
        .find(&format!(".entry {kernel}("))
        .unwrap_or_else(|| panic!("{kernel} is not in the PTX"));
    let end = ptx[start..].find("\n}").expect("the kernel ends");
    &ptx[start..start + end]
}

/// What is missing in a kernel that should be there. `a|b` stands for either; what is declared for the
/// whole module begins with `.shared`.
fn missing(ptx: &str, case: &Case) -> Vec<String> {
    let text = body(ptx, case.info.name);
    let found = |wanted: &str| match wanted.starts_with(".shared") {
        true => ptx.contains(wanted),
        false => wanted.split('|').any(|one| text.contains(one)),
    };
    let wanted = case.instructions.iter().filter(|wanted| !found(wanted));
    wanted
        .map(|wanted| format!("{}: no {wanted}", case.info.name))
        .collect()
}

#[test]
fn every_operation_becomes_its_instruction() {
    for ptx in compile().into_iter().flatten() {
        let (major, minor) = ptx.arch.capability();
        let here = CASES.iter().filter(|case| case.since <= 10 * major + minor);
        let missing: Vec<String> = here.flat_map(|case| missing(&ptx.text, case)).collect();
        assert!(missing.is_empty(), "{}:\n{}", ptx.arch, missing.join("\n"));
        nothing_else(&ptx);
    }
}

/// No calls, no local memory, no panics; and without programmatic dependent launch no trace of it.
fn nothing_else(ptx: &Ptx) {
    let unwanted = ["call.uni", "ld.local", "st.local", ".func", "panic", "core..fmt"];
    for word in unwanted {
        assert!(!ptx.text.contains(word), "{}: {word}", ptx.arch);
    }
    assert_eq!(
        ptx.arch != Arch::Sm80,
        ptx.text.contains("griddepcontrol"),
        "{}",
        ptx.arch
    );
}
