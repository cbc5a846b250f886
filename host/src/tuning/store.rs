//! Tunings that `sparkinfer tune` found, kept in the user's cache folder.
//!
//! A file belongs to a GPU, the driver and the kernels on it, a model's shape and a type of cache: what it says of
//! anything else is not used. A file that is broken or stale costs one line, never a run.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Tuning;
use crate::cuda::{self, DeviceInfo, cache};
use crate::model::{KvType, ModelSpec};

/// Bytes of a file at most.
const MOST_BYTES: u64 = 64 << 10;

/// What a tuning was found for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The GPU's name.
    pub gpu: String,
    /// Its compute capability, major and minor.
    pub capability: (u32, u32),
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// The driver's build.
    pub driver: String,
    /// The hash of the kernels.
    pub kernels: String,
    /// The hash of the model's shape.
    pub model: String,
    /// Type of the key/value cache.
    pub kv: String,
}

impl Key {
    /// Of the model of `spec` with a cache of type `kv` on `device`, with this program's kernels.
    ///
    /// # Errors
    /// No driver, or no kernels for the device.
    pub fn new(device: &DeviceInfo, spec: &ModelSpec, kv: KvType) -> cuda::Result<Self> {
        let module = cuda::best_for(cuda::MODULES, device, cuda::driver_version()?)?;
        Ok(Self {
            gpu: device.name.clone(),
            capability: device.capability,
            multiprocessors: device.multiprocessors,
            driver: cache::driver_build().trim().to_owned(),
            kernels: format!("{:016x}", module.hash),
            model: format!("{:016x}", shape_hash(spec)),
            kv: kv.name().to_owned(),
        })
    }

    /// The name of the file of all that differ in driver and kernels only.
    fn file_name(&self) -> String {
        let Self {
            gpu,
            capability,
            multiprocessors,
            model,
            kv,
            ..
        } = self;
        let device = format!("{gpu} {capability:?} {multiprocessors}");
        format!("{:016x}-{model}-{kv}.json", cache::fnv1a(device.as_bytes()))
    }

    /// What of `other` is not as here, if anything.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let pairs = [
            ("kernels", self.kernels == other.kernels),
            ("driver", self.driver == other.driver),
            (
                "GPU",
                (&self.gpu, self.capability, self.multiprocessors)
                    == (&other.gpu, other.capability, other.multiprocessors),
            ),
            ("model", self.model == other.model),
            ("cache", self.kv == other.kv),
        ];
        pairs.into_iter().find(|(_, same)| !same).map(|(what, _)| what)
    }
}

/// A hash of everything that a model's description says but its name: its shape, its types, its tensors' names.
fn shape_hash(spec: &ModelSpec) -> u64 {
    let nameless = ModelSpec {
        name: None,
        ..spec.clone()
    };
    cache::fnv1a(format!("{nameless:?}").as_bytes())
}

/// A file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// What it was found for; a file that is given by hand needs none.
    #[serde(default)]
    pub key: Option<Key>,
    /// The model that it was found with, for people.
    #[serde(default)]
    pub model: String,
    /// The choices; those not named are the rules'.
    pub tuning: Tuning,
}

/// The folder of the user's tunings; none where the user has no cache folder.
pub fn folder() -> Option<PathBuf> {
    cache::folder("tuning")
}

/// Reads a file that somebody names.
///
/// # Errors
/// What is wrong with it, naming the file.
pub fn read(path: &Path) -> Result<Stored, String> {
    let wrong = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(|error| wrong(&error))?;
    file.take(MOST_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| wrong(&error))?;
    let stored: Stored = serde_json::from_str(&text).map_err(|error| wrong(&format_args!("no tuning: {error}")))?;
    stored.tuning.check().map_err(|error| wrong(&error))?;
    Ok(stored)
}

/// What `folder` has for `key`, if anything.
///
/// # Errors
/// A file that is broken, or of another driver or other kernels.
pub fn load(folder: &Path, key: &Key) -> Result<Option<Tuning>, String> {
    let path = folder.join(key.file_name());
    if !path.exists() {
        return Ok(None);
    }
    let stored = read(&path)?;
    let stale = match &stored.key {
        Some(other) => key.difference(other),
        None => Some("key"),
    };
    match stale {
        None => Ok(Some(stored.tuning)),
        Some(what) => Err(format!(
            "{}: its {what} is not this one's; run sparkinfer tune again",
            path.display()
        )),
    }
}

/// Keeps a tuning in `folder`, and says where.
///
/// # Errors
/// The system's.
pub fn keep(folder: &Path, key: Key, model: &str, tuning: Tuning) -> std::io::Result<PathBuf> {
    let path = folder.join(key.file_name());
    fs::create_dir_all(folder)?;
    write(&path, Some(key), model, tuning)?;
    Ok(path)
}

/// Writes a tuning to a file, under another name first, so that a reader never sees a part.
///
/// # Errors
/// The system's.
pub fn write(path: &Path, key: Option<Key>, model: &str, tuning: Tuning) -> std::io::Result<()> {
    let stored = Stored {
        key,
        model: model.to_owned(),
        tuning,
    };
    let part = path.with_extension(format!("part{}", std::process::id()));
    let text = serde_json::to_string_pretty(&stored)? + "\n";
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn key() -> Key {
        Key {
            gpu: "Some GPU".into(),
            capability: (9, 0),
            multiprocessors: 7,
            driver: "580".into(),
            kernels: "00ff".into(),
            model: "0011".into(),
            kv: "f16".into(),
        }
    }

    const FOUND: Tuning = Tuning {
        attention_splits: 16,
        attention_warps: 4,
        attention_least_chunks: 2,
        head_blocks: 3,
        row_blocks: 9,
        tile_warps: 24,
        graph_steps: 2,
        prompt_chunk: 256,
        shortest_chunk: 6,
    };

    #[test]
    fn what_is_kept_is_found_for_the_same_key_only() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("tuning");
        assert_eq!(load(&folder, &key()), Ok(None));
        keep(&folder, key(), "a model", FOUND).unwrap();
        assert_eq!(load(&folder, &key()), Ok(Some(FOUND)));
        for other in [
            Key {
                gpu: "Other GPU".into(),
                ..key()
            },
            Key {
                multiprocessors: 8,
                ..key()
            },
            Key {
                model: "0012".into(),
                ..key()
            },
            Key {
                kv: "q8_0".into(),
                ..key()
            },
        ] {
            assert_eq!(load(&folder, &other), Ok(None), "{other:?}");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn other_kernels_and_drivers_make_it_stale() {
        let folder = tempfile::tempdir().unwrap();
        keep(folder.path(), key(), "", FOUND).unwrap();
        let newer = Key {
            kernels: "0100".into(),
            ..key()
        };
        let error = load(folder.path(), &newer).unwrap_err();
        assert!(
            error.ends_with("its kernels is not this one's; run sparkinfer tune again"),
            "{error}"
        );
        let driver = Key {
            driver: "590".into(),
            ..key()
        };
        assert!(load(folder.path(), &driver).unwrap_err().contains("driver"));
    }

    #[test]
    fn broken_files_are_told_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = keep(folder.path(), key(), "", FOUND).unwrap();
        let sound = fs::read_to_string(&path).unwrap();
        let hostile = [
            String::new(),
            "null".into(),
            "[".repeat(100_000),
            "{\"tuning\": {\"attention_splits\": -1}}".into(),
            "{\"tuning\": {\"attention_splits\": 1e99}}".into(),
            "{\"tuning\": {\"blocks\": 1}}".into(),
            "{\"tuning\": {}}".into(),
            sound[..sound.len() / 2].to_owned(),
            sound.replace("\"graph_steps\": 2", "\"graph_steps\": 4000000000"),
            sound.replace("\"model\": \"0011\"", "\"model\": \"0012\""),
        ];
        for text in hostile {
            fs::write(&path, &text).unwrap();
            let error = load(folder.path(), &key()).unwrap_err();
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(error.contains(".json: "), "{error}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(load(folder.path(), &key()).is_err());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(load(folder.path(), &key()).is_err());
    }

    #[test]
    fn a_file_by_hand_needs_nothing_but_choices() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.json");
        fs::write(&path, "{\"tuning\": {\"head_blocks\": 2}}").unwrap();
        let expected = Tuning {
            head_blocks: 2,
            ..Tuning::default()
        };
        assert_eq!(read(&path).unwrap().tuning, expected);
        let missing = read(&folder.path().join("none.json")).unwrap_err();
        assert!(missing.contains("none.json: "), "{missing}");
    }
}
