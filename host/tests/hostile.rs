//! Broken files: one line, exit code 1, whatever is wrong with the container.

mod common;

use common::refused;
use sparkinfer_gguf::test_support::hostile;

#[test]
fn every_broken_container_is_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    for case in hostile::cases() {
        let path = folder.path().join(format!("{}.gguf", case.name));
        std::fs::write(&path, &case.bytes).expect("a file can be written");
        let path = path.to_str().expect("the path is UTF-8");
        // only a set of files can be opened by its path
        if case.name == "split-from-memory" {
            refused(&["inspect", path], &["split.no"]);
            continue;
        }
        refused(&["inspect", path], &[&format!("{path}: {}", case.message)]);
        refused(&["generate", "--model", path, "--prompt", "x"], &[&case.message]);
    }
}
