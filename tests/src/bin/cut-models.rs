//! Writes the cut models: `cut-models FOLDER [--whole MIB]`.
//!
//! Every model of `sparkinfer_tests::cuts` in the size for a device; with `--whole` also SmolLM2 with all its layers, in
//! parts that travel one by one.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use sparkinfer_gguf::Gguf;
use sparkinfer_tests::assets::SMOLLM2;
use sparkinfer_tests::cuts::{CUTS, Size};
use sparkinfer_tests::recast::Recast;

/// Writes models cut from real ones.
#[derive(Parser)]
struct Arguments {
    /// Where they go
    folder: PathBuf,
    /// Also write SmolLM2 whole, in parts of at most so many MiB
    #[arg(long, value_name = "MIB")]
    whole: Option<u64>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.folder)?;
    for cut in CUTS {
        let path = arguments.folder.join(format!("{}.gguf", cut.name));
        if cut.with(Size::Large, |recast| recast.write_file(&path))?.is_some() {
            println!("{}: {} bytes", path.display(), path.metadata()?.len());
        }
    }
    if let (Some(mib), Some(path)) = (arguments.whole, SMOLLM2.get()) {
        let whole = Gguf::open(path)?;
        Recast::of(&whole)?.write_parts(&arguments.folder.join("smollm2"), mib << 20)?;
    }
    Ok(())
}
