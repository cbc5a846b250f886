//! One jump per driver function, assembled into the program, and the table that the jumps go through.
//!
//! Every name of [`names`](crate::names) becomes a hidden symbol whose body jumps to the address in its own slot of the
//! table. The slots stand in the order of [`NAMES`] and start out pointing at `no_driver`;
//! [`fill`] replaces them once the driver is open.

/// What every entry point answers while no driver is open: `CUDA_ERROR_NOT_INITIALIZED`.
#[unsafe(no_mangle)]
extern "C" fn cuda_link_no_driver() -> u32 {
    3
}

/// What an entry point answers that the open driver does not have: `CUDA_ERROR_NOT_SUPPORTED`.
extern "C" fn not_in_this_driver() -> u32 {
    801
}

/// One slot of the table: reserved data, followed by the code that jumps through it (x86-64).
#[cfg(any(target_arch = "x86_64", test))]
macro_rules! x86_64_stub {
    ($name:ident) => {
        concat!(
            ".pushsection .data.cuda_link,\"aw\",@progbits\n",
            ".Lslot_",
            stringify!($name),
            ": .quad cuda_link_no_driver\n",
            ".popsection\n",
            ".globl ",
            stringify!($name),
            "\n.hidden ",
            stringify!($name),
            "\n",
            ".type ",
            stringify!($name),
            ",@function\n",
            stringify!($name),
            ": jmpq *.Lslot_",
            stringify!($name),
            "(%rip)\n",
        )
    };
}

/// The same for 64-bit Arm; `x16` is the register that the calling convention leaves to such jumps.
#[cfg(any(target_arch = "aarch64", test))]
macro_rules! aarch64_stub {
    ($name:ident) => {
        concat!(
            ".pushsection .data.cuda_link,\"aw\",@progbits\n",
            ".Lslot_",
            stringify!($name),
            ": .quad cuda_link_no_driver\n",
            ".popsection\n",
            ".globl ",
            stringify!($name),
            "\n.hidden ",
            stringify!($name),
            "\n",
            ".type ",
            stringify!($name),
            ",@function\n",
            stringify!($name),
            ": adrp x16, .Lslot_",
            stringify!($name),
            "\n",
            "ldr x16, [x16, :lo12:.Lslot_",
            stringify!($name),
            "]\nbr x16\n",
        )
    };
}

/// Opens the table: its label, aligned for 8-byte slots.
macro_rules! prologue {
    () => {
        ".pushsection .data.cuda_link,\"aw\",@progbits\n.balign 8\n.globl CUDA_LINK_TABLE\n.hidden CUDA_LINK_TABLE\nCUDA_LINK_TABLE:\n.popsection\n.text\n.balign 16\n"
    };
}

macro_rules! define_names {
    ($($name:ident)*) => {
        /// The functions of the table, in the order of its slots.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}
with_driver_symbols!(define_names);

#[cfg(target_arch = "x86_64")]
macro_rules! assemble {
    ($($name:ident)*) => {
        core::arch::global_asm!(prologue!(), $(x86_64_stub!($name)),*, options(att_syntax));
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! assemble {
    ($($name:ident)*) => {
        core::arch::global_asm!(prologue!(), $(aarch64_stub!($name)),*);
    };
}
with_driver_symbols!(assemble);

unsafe extern "C" {
    static mut CUDA_LINK_TABLE: [*const (); NAMES.len()];
}

/// Points each slot at what `find` returns for its name; names that it does not know answer "not supported".
/// Returns how many were found.
///
/// # Safety
/// No other thread may be inside a driver call, and what `find` returns must be the driver's function of that name.
pub(crate) unsafe fn fill(find: impl Fn(&str) -> Option<*const ()>) -> usize {
    // SAFETY: the table is the array that the assembly above defines, one slot a name; the caller keeps others out.
    let table = unsafe { (&raw mut CUDA_LINK_TABLE).as_mut_unchecked() };
    let mut found = 0;
    for (slot, name) in table.iter_mut().zip(NAMES) {
        let address = find(name);
        found += usize::from(address.is_some());
        *slot = address.unwrap_or(not_in_this_driver as *const ());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::NAMES;
    use std::collections::BTreeSet;
    use std::process::Command;

    macro_rules! text_of_both {
        ($($name:ident)*) => {
            const X86_64: &str = concat!(prologue!(), $(x86_64_stub!($name)),*);
            const AARCH64: &str = concat!(prologue!(), $(aarch64_stub!($name)),*);
        };
    }
    with_driver_symbols!(text_of_both);

    #[test]
    fn names_are_unique() {
        let set: BTreeSet<_> = NAMES.iter().collect();
        assert_eq!(set.len(), NAMES.len());
    }

    /// The folder of `cust_raw` in the registry, as cargo reports it.
    fn cust_raw_source() -> String {
        // Packages for other systems need not have been fetched.
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--offline"])
            .args(["--filter-platform", &platform, "--manifest-path", manifest])
            .output()
            .expect("cargo runs");
        let text = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
        let metadata: serde_json::Value = serde_json::from_str(&text).expect("cargo writes JSON");
        let packages = metadata["packages"].as_array().expect("a list of packages");
        let package = packages
            .iter()
            .find(|p| p["name"] == "cust_raw")
            .expect("cust_raw is a dependency");
        let manifest = package["manifest_path"].as_str().expect("a path");
        let source = std::path::Path::new(manifest).with_file_name("src/cuda.rs");
        std::fs::read_to_string(source).expect("cust_raw's bindings are readable")
    }

    #[test]
    fn every_function_of_cust_raw_is_defined() {
        let source = cust_raw_source();
        let declared: BTreeSet<&str> = source
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("pub fn cu"))
            .filter_map(|rest| rest.split_once('('))
            .map(|(name, _)| name)
            .collect();
        assert!(declared.len() > 300, "only {} declarations found", declared.len());
        let defined: BTreeSet<&str> = NAMES.iter().filter_map(|name| name.strip_prefix("cu")).collect();
        let missing: Vec<_> = declared.difference(&defined).collect();
        assert!(missing.is_empty(), "add to names.rs, with cu in front: {missing:?}");
    }

    /// The assemblers that may be installed for a target.
    fn assemblers(triple: &str) -> [Command; 2] {
        let mut llvm = Command::new("llvm-mc");
        llvm.args([&format!("--triple={triple}"), "--filetype=obj"]);
        [llvm, Command::new(format!("{triple}-as"))]
    }

    /// Assembles `text`; `None` where no assembler for that target is installed.
    fn assembles(text: &str, triple: &str) -> Option<Result<(), String>> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (source, object) = (folder.path().join("stubs.s"), folder.path().join("stubs.o"));
        std::fs::write(&source, text).expect("the folder is writable");
        let mut runs = assemblers(triple).into_iter();
        let output = runs.find_map(|mut run| run.arg("-o").arg(&object).arg(&source).output().ok())?;
        if !output.status.success() {
            return Some(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        assert!(std::fs::metadata(&object).expect("an object").len() as usize > 8 * NAMES.len());
        Some(Ok(()))
    }

    #[test]
    fn both_architectures_assemble() {
        for (text, triple) in [(X86_64, "x86_64-linux-gnu"), (AARCH64, "aarch64-linux-gnu")] {
            match assembles(text, triple) {
                Some(outcome) => outcome.expect("it is valid assembly"),
                None => eprintln!("SKIPPED: no assembler for {triple} (llvm-mc, {triple}-as): stubs not assembled"),
            }
        }
        let wrong = AARCH64.replacen("br x16", "br x99", 1);
        let refused = assembles(&wrong, "aarch64-linux-gnu").is_none_or(|outcome| outcome.is_err());
        assert!(refused, "a register that does not exist was assembled");
    }
}
