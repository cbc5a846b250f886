//! Opening good and bad files.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::test_support::mutate::{Mutator, Tally};
use crate::test_support::{RawGguf, hostile};
use crate::{GgufWriter, TensorType};

/// The bundled model.
fn tiny() -> Gguf {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-qwen3moe-q4_k_m.gguf");
    Gguf::open(path).expect("the bundled model")
}

#[test]
fn bundled_model_opens() {
    let gguf = tiny();
    let metadata = gguf.metadata();
    assert_eq!(metadata.require_str("general.architecture").as_deref(), Ok("qwen3moe"));
    assert_eq!(metadata.require_u32("qwen3moe.block_count"), Ok(4));
    assert_eq!(
        metadata.require_strings("tokenizer.ggml.tokens").map(|s| s.count()),
        Ok(4096)
    );
    let down = gguf.require_tensor("blk.2.ffn_down_exps.weight").expect("tensor");
    assert_eq!((down.ty, down.shape()), (crate::TensorType::Q6_K, &[256, 256, 16][..]));
    assert_eq!((down.rows(), down.row_bytes()), (4096, 210));
    for tensor in gguf.tensors() {
        assert!(tensor.dequantize().expect("values").iter().all(|v| v.is_finite()));
    }
}

#[test]
fn getters_name_file_and_key() {
    let gguf = tiny();
    let error = gguf
        .metadata()
        .require_u32("general.architecture")
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("tiny-qwen3moe-q4_k_m.gguf: key 'general.architecture': must be an integer from 0 to 2^32 - 1, but is a string"), "{error}");
    let error = gguf.metadata().require_u32("no.such").unwrap_err().to_string();
    assert!(error.ends_with("key 'no.such': is missing"), "{error}");
    assert_eq!(gguf.metadata().u32("no.such"), Ok(None));
}

#[test]
fn hostile_files_are_refused_with_their_messages() {
    let cases = hostile::cases();
    assert!(cases.len() >= 40, "{}", cases.len());
    let names: std::collections::HashSet<_> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len());
    let wrong: Vec<String> = cases.into_iter().filter_map(unexpected).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with the outcome of a case, if anything.
fn unexpected(case: hostile::Case) -> Option<String> {
    let expected = format!("f: {}", case.message);
    match Gguf::from_vec("f", case.bytes) {
        Ok(_) => Some(format!("{} was accepted", case.name)),
        Err(error) if error.to_string() == expected => None,
        Err(error) => Some(format!("{}: {error}\n    instead of {expected}", case.name)),
    }
}

#[test]
fn mutated_files_never_panic() {
    let mut mutator = Mutator::new(7).expect("base files");
    let mut tally = Tally::default();
    (0..20_000).for_each(|_| tally.try_file(mutator.next_file()));
    assert_eq!(tally.opened + tally.refused, 20_000);
    assert!(
        tally.opened > 2_000 && tally.refused > 2_000 && tally.rows > 10_000,
        "{tally:?}"
    );
}

#[test]
fn gaps_order_and_odd_alignments_are_accepted() {
    let file = RawGguf::default()
        .u32("general.alignment", 1)
        .tensor("b", &[1], 0, 9)
        .tensor("a", &[2], 0, 0);
    let file = RawGguf {
        alignment: 1,
        ..file.data(13)
    };
    let gguf = Gguf::from_vec("f", file.bytes()).expect("file");
    assert_eq!(gguf.require_tensor("b").expect("b").data, [9, 10, 11, 12]);
    assert_eq!(gguf.require_tensor("a").expect("a").data, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn version_2_and_files_without_tensors_are_accepted() {
    let file = RawGguf {
        version: 2,
        ..RawGguf::default()
    }
    .text("k", "v");
    let gguf = Gguf::from_vec("f", file.header()).expect("file");
    assert_eq!(
        (gguf.version(), gguf.metadata().str("k"), gguf.tensors().len()),
        (2, Ok(Some("v")), 0)
    );
}

/// A folder, and a function that writes a file into it.
fn folder() -> (tempfile::TempDir, impl Fn(&str, &[u8]) -> PathBuf) {
    let dir = tempfile::tempdir().expect("folder");
    let root = dir.path().to_owned();
    (dir, move |name: &str, bytes: &[u8]| {
        fs::write(root.join(name), bytes).expect("written");
        root.join(name)
    })
}

/// The message for a path, without the folder.
fn message(path: &std::path::Path) -> String {
    let text = Gguf::open(path).expect_err("refused").to_string();
    text.replace(&format!("{}/", path.parent().expect("folder").display()), "")
}

#[test]
fn paths_that_cannot_be_read() {
    let (dir, write) = folder();
    assert_eq!(message(&dir.path().join("none.gguf")), "none.gguf: no such file");
    assert_eq!(message(&write("empty.gguf", b"")), "empty.gguf: the file is empty");
    fs::create_dir(dir.path().join("dir")).expect("folder");
    assert_eq!(message(&dir.path().join("dir")), "dir: is a directory, not a GGUF file");
    assert_eq!(
        Gguf::open("/dev/null").err().map(|e| e.to_string()).as_deref(),
        Some("/dev/null: is not a regular file")
    );
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("socket");
    assert_eq!(message(&socket), "socket: is not a regular file");
}

/// A part of a split file with one tensor.
fn part(no: u16, count: u16, total: i32, tensor: &str) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    writer
        .set("split.no", no)
        .set("split.count", count)
        .set("split.tensors.count", total);
    writer.tensor(tensor, TensorType::F32, &[4]).expect("tensor");
    writer.to_vec(|_, out| out.write_all(&[0; 16])).expect("bytes")
}

#[test]
fn broken_sets_are_refused() {
    let second_of = |second: Option<Vec<u8>>, total| {
        let (_dir, write) = folder();
        let first = write("m-00001-of-00002.gguf", &part(0, 2, total, "a"));
        second.map(|bytes| write("m-00002-of-00002.gguf", &bytes));
        message(&first)
    };
    assert_eq!(second_of(None, 2), "m-00002-of-00002.gguf: no such file");
    assert_eq!(
        second_of(Some(part(0, 2, 2, "b")), 2),
        "m-00002-of-00002.gguf: its keys say part 1 of 2 where part 2 of 2 is wanted"
    );
    assert_eq!(
        second_of(Some(part(1, 3, 2, "b")), 2),
        "m-00002-of-00002.gguf: its keys say part 2 of 3 where part 2 of 2 is wanted"
    );
    assert_eq!(
        second_of(Some(part(1, 2, 2, "a")), 2),
        "m-00002-of-00002.gguf: tensor 'a': occurs twice"
    );
    assert_eq!(
        second_of(Some(part(1, 2, 2, "b")), 3),
        "m-00001-of-00002.gguf: key 'split.tensors.count': 3 tensors are announced, the parts hold 2"
    );
    assert_eq!(
        second_of(Some(RawGguf::default().bytes()), 2),
        "m-00002-of-00002.gguf: key 'split.no': is missing"
    );
}

#[test]
fn parts_under_wrong_names_are_refused() {
    let (_dir, write) = folder();
    let renamed = write("model.gguf", &part(0, 2, 2, "a"));
    assert_eq!(
        message(&renamed),
        "model.gguf: part 1 of 2 must be named <name>-00001-of-00002.gguf"
    );
    let wrong = write("m-00001-of-00003.gguf", &part(0, 2, 2, "a"));
    assert_eq!(
        message(&wrong),
        "m-00001-of-00003.gguf: its keys say part 1 of 2, its name says otherwise"
    );
    let second = write("m-00002-of-00002.gguf", &part(1, 2, 2, "b"));
    assert_eq!(
        message(&second),
        "m-00002-of-00002.gguf: this is part 2 of 2; give the first: 'm-00001-of-00002.gguf'"
    );
}

#[test]
fn per_layer_values() {
    let mut writer = GgufWriter::new();
    writer
        .set("one", 7u32)
        .set("three", &[1i32, 2, 3][..])
        .set("negative", &[1i32, -2, 3][..])
        .set("text", "x");
    let gguf = Gguf::from_vec("f", writer.to_vec(|_, _| Ok(())).expect("bytes")).expect("file");
    let m = gguf.metadata();
    assert_eq!(m.per_layer::<u32>("one", 3), Ok(Some(vec![7, 7, 7])));
    assert_eq!(m.per_layer::<u32>("three", 3), Ok(Some(vec![1, 2, 3])));
    assert_eq!(m.per_layer::<u32>("none", 3), Ok(None));
    let text = |key: &str, layers| m.per_layer::<u32>(key, layers).unwrap_err().to_string();
    assert_eq!(text("three", 2), "f: key 'three': has 3 elements for 2 layers");
    assert_eq!(
        text("negative", 3),
        "f: key 'negative': element 1 must be an integer from 0 to 2^32 - 1, but is the i32 -2"
    );
    assert_eq!(
        text("text", 3),
        "f: key 'text': must be an integer from 0 to 2^32 - 1, but is a string"
    );
    assert_eq!(
        text("one", usize::MAX),
        "f: key 'one': 18446744073709551615 layers are too many"
    );
}
