//! The documents keep their word: every test that SEMANTICS.md names exists, its promises are
//! numbered without gaps, and every relative link in every Markdown file leads somewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Folders that hold built, fetched or generated files.
const NOT_OURS: [&str; 9] = [
    "target",
    ".git",
    "node_modules",
    ".venv",
    ".venv-train",
    ".venv-wheel",
    ".venv-docs",
    "generated",
    "corpus",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below `folder` whose names end in `.extension`, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (kind, path) = (entry.file_type().unwrap(), entry.path());
            if kind.is_dir() {
                if !NOT_OURS.iter().any(|name| entry.file_name() == *name) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|of| of == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no *.{extension} below {}", folder.display());
    found
}

/// Names of the functions marked `#[test]`, also inside `proptest!`.
fn tests_in(source: &str) -> BTreeSet<&str> {
    let mut tests = BTreeSet::new();
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" {
            marked = true;
        } else if let Some(function) = line.strip_prefix("fn ")
            && std::mem::take(&mut marked)
        {
            let end = function.find(|c: char| !c.is_alphanumeric() && c != '_');
            tests.insert(&function[..end.unwrap_or(function.len())]);
        }
    }
    tests
}

/// Lines of a Markdown text with what is a code block blanked out.
fn prose(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let lines = text.lines().map(|line| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return "";
        }
        if fenced { "" } else { line }
    });
    lines.collect()
}

/// Texts between single backticks.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A heading's anchor, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// Targets of `[text](target)` that are neither on the web nor inside code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in prose(text).join("\n").split("\n\n") {
        let outside_code: String = paragraph.split('`').step_by(2).collect::<Vec<_>>().join("code");
        for after in outside_code.split("](").skip(1) {
            let target = after.split(')').next().unwrap_or_default();
            if !["https://", "http://", "mailto:"].iter().any(|web| target.starts_with(web)) {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// One promise of SEMANTICS.md: `**Section 7.** text`, up to the next promise, heading or list of
/// limits.
struct Promise<'a> {
    heading: &'a str,
    section: &'a str,
    number: usize,
    text: String,
}

fn promises(text: &str) -> Vec<Promise<'_>> {
    let mut promises: Vec<Promise> = Vec::new();
    let (mut heading, mut open) = ("", false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            (heading, open) = (name, false);
        } else if line.starts_with('#') {
            open = false;
        } else if let Some(bold) = line.strip_prefix("**") {
            let parts = bold.split_once(".**").and_then(|(label, rest)| {
                let (section, number) = label.rsplit_once(' ')?;
                Some((section, number.parse().ok()?, rest))
            });
            let (section, number, rest) =
                parts.unwrap_or_else(|| panic!("{line:?} is bold and begins no promise"));
            promises.push(Promise { heading, section, number, text: rest.to_owned() });
            open = true;
        } else if open {
            let text = &mut promises.last_mut().expect("one is open").text;
            text.push('\n');
            text.push_str(line);
        }
    }
    promises
}

/// Renamed or moved tests once left SEMANTICS.md naming tests that no longer existed.
#[test]
fn every_test_that_a_document_names_exists() {
    let repository = repository();
    let sources: BTreeMap<PathBuf, String> = files(&repository.join("crates"), "rs")
        .into_iter()
        .map(|path| (path.strip_prefix(repository.join("crates")).unwrap().to_owned(), read(&path)))
        .collect();
    let mut wrong = Vec::new();
    let mut named = 0;
    for document in files(&repository, "md") {
        let text = read(&document);
        for span in code_spans(&text) {
            let Some((path, test)) = span.split_once(".rs::") else { continue };
            let path = PathBuf::from(format!("{path}.rs"));
            named += 1;
            if sources.get(&path).is_some_and(|source| tests_in(source).contains(test)) {
                continue;
            }
            let elsewhere = sources.iter().filter(|(_, source)| tests_in(source).contains(test));
            let elsewhere: Vec<_> = elsewhere.map(|(path, _)| path.display().to_string()).collect();
            let document = document.strip_prefix(&repository).unwrap().display();
            wrong.push(format!("{document}: no test {span}; tests of that name: {elsewhere:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(named > 100, "{named} tests are named: they are not found in the documents any more");
}

/// Promises are referred to as `Mount 12`: sections are unique, and numbers have no gaps.
#[test]
fn promises_are_numbered_within_their_section() {
    let text = read(&repository().join("SEMANTICS.md"));
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    let mut order = Vec::new();
    for promise in promises(&text) {
        let label = format!("{} {}", promise.section, promise.number);
        assert_eq!(promise.heading, promise.section, "{label} stands under {}", promise.heading);
        let before = last.insert(promise.section, promise.number).unwrap_or(0);
        assert_eq!(promise.number, before + 1, "{label} follows number {before}");
        if order.last() != Some(&promise.section) {
            order.push(promise.section);
        }
    }
    assert_eq!(order.len(), last.len(), "a section stands in two places: {order:?}");
    assert!(last.values().sum::<usize>() > 60, "{last:?}");
}

#[test]
fn every_promise_names_its_test_or_says_why_there_is_none() {
    let text = read(&repository().join("SEMANTICS.md"));
    for promise in promises(&text) {
        let tested = code_spans(&promise.text).any(|span| span.contains(".rs::"));
        let lines = promise.text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let excused = lines.contains("not tested because");
        assert!(
            tested || excused,
            "{} {} names no test and gives no reason",
            promise.section,
            promise.number
        );
    }
}

#[test]
fn every_relative_link_leads_somewhere() {
    let repository = repository();
    let mut wrong = Vec::new();
    let mut followed = 0;
    for document in files(&repository, "md") {
        let text = read(&document);
        for link in links(&text) {
            followed += 1;
            let (path, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => document.clone(),
                path => document.parent().expect("a file has one").join(path),
            };
            let lost = !target.exists()
                || !fragment.is_empty()
                    && target.extension().is_some_and(|of| of == "md")
                    && !anchors(&read(&target)).contains(fragment);
            if lost {
                let document = document.strip_prefix(&repository).unwrap();
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "these links lead nowhere:\n{}", wrong.join("\n"));
    assert!(followed > 20, "{followed} links: they are not found in the documents any more");
}

/// Comments and messages say `SEMANTICS.md, "Record"`: a section of that name has to be there.
#[test]
fn sections_that_sources_name_exist() {
    let repository = repository();
    let text = read(&repository.join("SEMANTICS.md"));
    let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
    let sections: BTreeSet<&str> = headings.collect();
    for path in files(&repository.join("crates"), "rs") {
        if path.ends_with(file!()) {
            continue;
        }
        for after in read(&path).replace('\\', "").split("SEMANTICS.md, \"").skip(1) {
            let section = after.split('"').next().unwrap_or_default();
            assert!(sections.contains(section), "{}: no section {section:?}", path.display());
        }
    }
}
