//! Checks on lines of text: how many, and what they must not say.

use super::Problem;
use super::files::SourceFile;

const LONGEST_FILE: usize = 800;

/// Words that no file may contain, and why. The words are put together from halves, so that this file passes.
const FORBIDDEN: [(&str, &str); 11] = [
    (concat!("TO", "DO"), "finish it, or file an issue"),
    (concat!("FIX", "ME"), "finish it, or file an issue"),
    (concat!("/wo", "rk/"), ABSOLUTE),
    (concat!("/ho", "me/"), ABSOLUTE),
    (concat!("/ro", "ot/"), ABSOLUTE),
    (concat!("/tm", "p/"), ABSOLUTE),
    (concat!("../", "shared"), ALONE),
    (concat!("../", "lab"), ALONE),
    (concat!("pypi", ".org"), REGISTRY),
    (concat!("files.python", "hosted.org"), REGISTRY),
    (concat!("static.crates", ".io"), REGISTRY),
];

const ABSOLUTE: &str = "no absolute paths: make it relative, or ask for it";
const ALONE: &str = "the project stands alone: nothing outside the repository can be referred to";
const REGISTRY: &str = "name the package, not the registry's host";

/// Every file's length and words.
pub fn check(files: &[SourceFile], tables: &[String]) -> Vec<Problem> {
    let lengths = files
        .iter()
        .filter(|file| is_code(file))
        .filter_map(|file| too_long(file, tables));
    let words = files.iter().flat_map(words);
    let stale = tables
        .iter()
        .filter(|table| !files.iter().any(|file| file.path == **table));
    let stale =
        stale.map(|table| Problem::new("xtask/tidy-tables.txt", format!("lists {table}, which does not exist")));
    lengths.chain(words).chain(stale).collect()
}

fn is_code(file: &SourceFile) -> bool {
    !file.path.ends_with(".md") && !file.path.ends_with(".txt")
}

fn too_long(file: &SourceFile, tables: &[String]) -> Option<Problem> {
    let lines = file.text.lines().count();
    let allowed = lines <= LONGEST_FILE || tables.contains(&file.path);
    (!allowed).then(|| {
        Problem::new(
            &file.path,
            format!("{lines} lines, over {LONGEST_FILE}: split it by idea"),
        )
    })
}

fn words(file: &SourceFile) -> Vec<Problem> {
    let lines = file.text.lines().enumerate();
    let hits = lines.flat_map(|(index, line)| {
        let said = FORBIDDEN.iter().filter(move |(word, _)| line.contains(word));
        said.map(move |(word, why)| Problem::at(&file.path, index + 1, format!("{word}: {why}")))
    });
    hits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: impl Into<String>) -> SourceFile {
        SourceFile {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn words_are_found_with_their_line() {
        let text = format!("fine\n// {} later\nlet p = \"{}x\";\n", FORBIDDEN[0].0, FORBIDDEN[2].0);
        let places: Vec<_> = words(&file("a.rs", text))
            .into_iter()
            .map(|problem| problem.place)
            .collect();
        assert_eq!(places, ["a.rs:2", "a.rs:3"]);
    }

    #[test]
    fn long_files_need_to_be_listed() {
        let files = [
            file("a.rs", "x\n".repeat(801)),
            file("b.rs", "x\n".repeat(800)),
            file("c.md", "x\n".repeat(801)),
        ];
        let found = check(&files, &[]);
        assert_eq!(
            found.iter().map(|problem| problem.place.as_str()).collect::<Vec<_>>(),
            ["a.rs"]
        );
        assert_eq!(check(&files, &["a.rs".to_owned()]), []);
        assert_eq!(check(&files, &["a.rs".to_owned(), "gone.rs".to_owned()]).len(), 1);
    }
}
