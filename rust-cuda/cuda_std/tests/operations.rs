//! Every device operation in the emulator, under several orders of blocks, warps and lanes.

use cuda_std::emu::{Buffer, Emulator, Fault};
use cuda_std::launch::Launcher;
use cuda_std::selftest::{CASES, THREADS, input};

#[test]
fn every_operation_computes_what_it_must_in_any_order() {
    let mut failures = Vec::new();
    for case in CASES {
        for words in (1..=4).map(input) {
            let ran = Emulator::under_orders(6, |emulator| {
                let (x, y) = (Buffer::from_slice(&words), Buffer::poisoned(THREADS * 8));
                emulator
                    .launch(&case.launch(x.ptr(), y.ptr()))
                    .map_err(|fault: Fault| fault.to_string())?;
                y.check_written().map_err(|unwritten| unwritten.to_string())?;
                case.check(&words, y.as_slice())
                    .map_err(|mismatch| format!("{mismatch:?}"))
            });
            failures.extend(ran.err().map(|error| format!("{}: {error}", case.info.name)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_kernel_says_what_it_does() {
    for case in CASES {
        assert!(
            !case.info.doc.is_empty() && case.info.file.ends_with(".rs"),
            "{:?}",
            case.info
        );
        assert_eq!(case.info.params.len(), 2);
        assert_eq!(case.info.params[0].type_name, "*const u32");
    }
}
