//! Build scripts: compile, compress, write the table that the program includes, tell cargo what to watch.

use crate::builder::EXPLICIT_COMPILER;
use crate::{CudaBuilder, Error, NoCompiler, Ptx, compiler};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

impl CudaBuilder {
    /// Compiles and writes `OUT_DIR/file_name`, to be included where a type
    /// `EmbeddedPtx { arch: &str, ptx_version: u32, bytes: usize, hash: u64, deflated: &[u8] }` is in scope. It
    /// defines
    ///
    /// - `MODULES: &[EmbeddedPtx]`, one an architecture: `bytes` is the length of the PTX, `deflated` the PTX in zlib
    ///   form, `hash` its 64-bit FNV-1a hash;
    /// - `DEVICE_COMPILER: Result<&str, &str>`: what made them, or why there are none.
    ///
    /// Cargo is told to run the script again when a source of the device crate changes. Without a compiler for
    /// device code the build goes on, with one warning that names the command that mends it.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::NoCompiler`].
    pub fn embed(&self, file_name: &str) -> Result<(), Error> {
        let out = std::env::var_os("OUT_DIR").map(PathBuf::from);
        let out = out.ok_or_else(|| Error::Setup("embed is for build scripts: OUT_DIR is not set".into()))?;
        println!("cargo:rerun-if-env-changed={EXPLICIT_COMPILER}");
        println!("cargo:rerun-if-changed=build.rs");
        let table = match self.build() {
            Ok(built) => {
                watch(built.iter().flat_map(|ptx| ptx.sources.iter().cloned()));
                watch([self.path.join("Cargo.toml")]);
                table_of(&built, &out)?
            }
            Err(Error::NoCompiler(missing)) => {
                println!("cargo:warning=built without GPU kernels: {missing}");
                watch(compiler::witnesses());
                table_without(&missing)
            }
            Err(error) => {
                watch([self.path.clone()]);
                return Err(error);
            }
        };
        write(&out.join(file_name), table.as_bytes())
    }
}

/// Has cargo run the script again when one of these files changes.
fn watch(files: impl IntoIterator<Item = PathBuf>) {
    let files: BTreeSet<_> = files.into_iter().collect();
    for file in files {
        println!("cargo:rerun-if-changed={}", file.display());
    }
}

/// The table's source, with the compressed PTX in files beside it.
fn table_of(built: &[Ptx], out: &Path) -> Result<String, Error> {
    let mut rows = String::new();
    for ptx in built {
        let file = out.join(format!("{}.ptx.z", ptx.arch));
        write(
            &file,
            &miniz_oxide::deflate::compress_to_vec_zlib(ptx.text.as_bytes(), 9),
        )?;
        let (arch, version, bytes, hash) = (
            ptx.arch,
            ptx.arch.ptx_version(),
            ptx.text.len(),
            fnv1a(ptx.text.as_bytes()),
        );
        // Writing to a String cannot fail.
        let _ = writeln!(
            rows,
            "    EmbeddedPtx {{ arch: \"{arch}\", ptx_version: {version}, bytes: {bytes}, hash: {hash:#018x}, deflated: include_bytes!({:?}) }},",
            file.display().to_string()
        );
    }
    let compiler = built.first().map_or("", |ptx| ptx.compiler.as_str());
    Ok(table(&rows, &format!("Ok({compiler:?})")))
}

/// The table of a build without kernels.
fn table_without(missing: &NoCompiler) -> String {
    table("", &format!("Err({:?})", missing.to_string()))
}

fn table(rows: &str, compiler: &str) -> String {
    format!(
        "/// The kernels, one module an architecture.\npub static MODULES: &[EmbeddedPtx] = &[\n{rows}];\n\
         /// The compiler that made them, or why there are none.\npub const DEVICE_COMPILER: ::core::result::Result<&str, &str> = {compiler};\n"
    )
}

/// Writes the file unless it already says that, so that nothing is compiled again for nothing.
fn write(file: &Path, bytes: &[u8]) -> Result<(), Error> {
    if std::fs::read(file).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    std::fs::write(file, bytes).map_err(Error::file(file))
}

/// The 64-bit FNV-1a hash.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::{fnv1a, table_of, table_without};
    use crate::{Arch, NoCompiler, Ptx};

    #[test]
    fn hashes_are_those_of_fnv_1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn the_table_holds_what_inflates_to_the_ptx() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = ".version 8.0\n".repeat(100);
        let file = folder.path().join("k.s");
        let ptx = Ptx {
            arch: Arch::Sm90,
            text: text.clone(),
            file,
            sources: vec![],
            compiler: "rustc \"x\"".into(),
        };
        let table = table_of(&[ptx], folder.path()).expect("the folder is writable");
        assert!(
            table.contains("arch: \"sm_90\", ptx_version: 81, bytes: 1300"),
            "{table}"
        );
        assert!(table.contains("Ok(\"rustc \\\"x\\\"\")"), "{table}");
        let deflated = std::fs::read(folder.path().join("sm_90.ptx.z")).expect("it was written");
        assert!(deflated.len() < 100);
        assert_eq!(
            miniz_oxide::inflate::decompress_to_vec_zlib(&deflated).expect("it is zlib"),
            text.as_bytes()
        );
    }

    #[test]
    fn a_build_without_a_compiler_says_why() {
        let missing = NoCompiler {
            tried: vec![("rustc".into(), "too old".into())],
            remedy: "get another",
        };
        let table = table_without(&missing);
        assert!(
            table.contains("= &[\n];") && table.contains("Err(\"no Rust compiler"),
            "{table}"
        );
        assert!(table.contains("too old") && table.contains("get another"));
    }
}
