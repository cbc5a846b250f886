//! The kernel list against the sources.

use std::collections::BTreeSet;
use std::path::Path;

fn sources(folder: &Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

/// Kernels of one file above its tests: functions under `#[kernel]`, and the names that a `kernels!` macro of the file gives
/// them: before `=`, or before what they say of themselves.
fn kernels(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let (mut attribute, mut macro_body) = (false, false);
    let lines = source.lines().take_while(|line| *line != "#[cfg(test)]");
    for line in lines.map(str::trim) {
        attribute |= line.starts_with("#[kernel");
        if let Some(rest) = line
            .strip_prefix("pub unsafe fn ")
            .filter(|_| std::mem::take(&mut attribute))
        {
            names.extend(
                rest.split('(')
                    .next()
                    .filter(|name| !name.starts_with('$'))
                    .map(String::from),
            );
        }
        macro_body = line.ends_with("kernels! {") || macro_body && line != "}";
        let listed = macro_body && !line.starts_with("//");
        let name = line.split_once(" = ").or_else(|| line.split_once(" \""));
        names.extend(name.filter(|_| listed).map(|(name, _)| name.to_owned()));
    }
    names
}

#[test]
fn every_kernel_is_listed_once() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let written: BTreeSet<String> = files.iter().flat_map(|source| kernels(source)).collect();
    let listed: BTreeSet<String> = crate::KERNELS.iter().map(|kernel| kernel.name.to_owned()).collect();
    assert_eq!(written, listed);
    assert_eq!(crate::KERNELS.len(), listed.len());
}

#[test]
fn every_kernel_says_what_it_computes_and_may_be_launched_early() {
    for kernel in crate::KERNELS {
        assert!(
            kernel.doc.len() > 8 && kernel.doc.ends_with('.'),
            "{kernel:?}: {:?}",
            kernel.doc
        );
        assert!(kernel.pdl || kernel.name == "stream_read", "{kernel:?} never waits");
    }
}
