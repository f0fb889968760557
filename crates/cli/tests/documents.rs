//! The documents keep their word: each promise of SEMANTICS.md is named at a test or says why it is
//! not tested, promises are numbered without gaps, commands have the output that a page shows, and
//! every relative link in every Markdown file leads somewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
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

/// A comment above a test: `// Promises: Mount 12, Traces 3.`, in Python with `#`.
struct Mark {
    line: usize,
    promises: Vec<String>,
    above_test: bool,
}

fn marks(source: &str, python: bool) -> Vec<Mark> {
    let (comment, test) = if python { ("#", "def test_") } else { ("//", "#[test]") };
    let mut marks = Vec::new();
    let mut lines = (1..).zip(source.lines().map(str::trim)).peekable();
    while let Some((line, text)) = lines.next() {
        let text = text.strip_prefix(comment).unwrap_or_default();
        let Some(names) = text.strip_prefix(" Promises: ") else { continue };
        let mut names = names.to_owned();
        while !names.ends_with('.')
            && let Some((_, more)) = lines.next_if(|(_, more)| more.starts_with(comment))
        {
            names.push_str(more.trim_start_matches(comment));
        }
        let promises = names.trim_end_matches('.').split(',').map(|name| name.trim().to_owned());
        let promises = promises.collect();
        let above_test = lines.peek().is_some_and(|(_, next)| next.starts_with(test));
        marks.push(Mark { line, promises, above_test });
    }
    marks
}

/// Faults of the promises in `semantics`, and of the comments in `sources`: names and texts of
/// files.
fn faults(semantics: &str, sources: &[(String, String)]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut tested: BTreeMap<String, bool> = BTreeMap::new();
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for Promise { heading, section, number, text } in promises(semantics) {
        let label = format!("{section} {number}");
        if heading != section {
            faults.push(format!("{label} stands under the heading {heading}"));
        }
        let before = last.insert(section, number).unwrap_or(0);
        if number != before + 1 {
            faults.push(format!("{label} follows number {before} of its section"));
        }
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        tested.insert(label, text.contains("not tested because"));
    }
    for (name, source) in sources {
        for mark in marks(source, name.ends_with(".py")) {
            if !mark.above_test {
                faults.push(format!("{name}:{}: this comment stands above no test", mark.line));
            }
            for promise in mark.promises {
                match tested.get_mut(&promise) {
                    Some(tested) => *tested |= mark.above_test,
                    None => faults.push(format!("{name}:{}: no promise {promise:?}", mark.line)),
                }
            }
        }
    }
    for (label, _) in tested.iter().filter(|(_, tested)| !**tested) {
        faults.push(format!(
            "{label} is named at no test (`// Promises: {label}.` above it), and does not say \
             \"not tested because\""
        ));
    }
    faults
}

#[test]
fn every_promise_is_named_at_a_test_or_says_why_there_is_none() {
    let repository = repository();
    let mut paths = files(&repository.join("crates"), "rs");
    paths.extend(files(&repository, "py"));
    let name = |path: &Path| path.strip_prefix(&repository).unwrap().display().to_string();
    let sources: Vec<_> = paths.iter().map(|path| (name(path), read(path))).collect();
    let semantics = read(&repository.join("SEMANTICS.md"));
    let faults = faults(&semantics, &sources);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let promises = promises(&semantics).len();
    assert!(promises > 60, "{promises} promises: they are not found in SEMANTICS.md any more");
}

#[test]
fn each_fault_of_promises_and_comments_is_found() {
    let text = "## Mount\n**Mount 1.** Kept.\n**Mount 2.** Kept. Not tested\nbecause it rains.\n";
    let rust = |comment: &str| ("a.rs".to_owned(), format!("{comment}\n#[test]\nfn kept() {{}}"));
    let good = rust("// Promises: Mount 1.");
    let wrapped = rust("// Promises: Mount 1,\n// Mount 2.");
    let python = ("a.py".to_owned(), "# Promises: Mount 1.\ndef test_kept():".to_owned());
    for source in [&good, &wrapped, &python] {
        assert_eq!(faults(text, std::slice::from_ref(source)), [""; 0]);
    }

    let untested = "Mount 1 is named at no test (`// Promises: Mount 1.` above it), and does not \
                    say \"not tested because\"";
    assert_eq!(faults(text, &[]), [untested]);
    let above_none = ("a.rs".to_owned(), "\n// Promises: Mount 1.\n\n#[test]".to_owned());
    let nothing_below = "a.rs:2: this comment stands above no test";
    assert_eq!(faults(text, &[above_none]), [nothing_below, untested]);
    let unknown = rust("// Promises: Mount 1, Mount 3.");
    assert_eq!(faults(text, &[unknown]), ["a.rs:1: no promise \"Mount 3\""]);

    let good = [good];
    let gap = text.replace("Mount 2", "Mount 3");
    assert_eq!(faults(&gap, &good), ["Mount 3 follows number 1 of its section"]);
    let twice = text.replace("Mount 2", "Mount 1");
    assert_eq!(faults(&twice, &good), ["Mount 1 follows number 1 of its section"]);
    let moved = text.replace("**Mount 2", "## Tune\n**Mount 2");
    assert_eq!(faults(&moved, &good), ["Mount 2 stands under the heading Tune"]);
}

/// Commands of a page, `    $ …`, each with the lines that the page shows below it.
fn shown(page: &str) -> Vec<(String, Vec<&str>)> {
    let mut shown = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("    $ ") else { continue };
        let mut command = command.to_owned();
        while command.ends_with(['\\', '|'])
            && let Some(more) = lines.next()
        {
            command = format!("{} {}", command.trim_end_matches('\\'), more.trim());
        }
        let mut output = Vec::new();
        while let Some(line) = lines.next_if(|line| {
            line.is_empty() || line.starts_with("    ") && !line.starts_with("    $ ")
        }) {
            output.push(line);
        }
        shown.push((command, output));
    }
    shown
}

/// Words of each line that has some. A number with one decimal place at the end of a line is left
/// out: it is the CPU time of a table.
fn words<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    for line in lines {
        let mut words: Vec<_> = line.split_whitespace().collect();
        words.pop_if(|last| {
            last.parse::<f64>().is_ok() && last.split_once('.').is_some_and(|(_, d)| d.len() == 1)
        });
        if !words.is_empty() {
            found.push(words);
        }
    }
    found
}

#[test]
fn commands_have_the_output_that_pages_show() {
    let repository = repository();
    // `make check-release` gives the program of a package, in a folder of its own.
    let given = env::var_os("FLASHSIFT_PROGRAM");
    let program = given.map_or(PathBuf::from(env!("CARGO_BIN_EXE_flashsift")), PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = program.parent().map(Path::to_owned).into_iter().chain(env::split_paths(&path));
    let path = env::join_paths(folders).unwrap();
    let mut pages = files(&repository.join("docs"), "md");
    pages.push(repository.join("README.md"));
    let mut compared = 0;
    for page in pages {
        let text = read(&page);
        for (command, output) in shown(&text) {
            let output = words(output);
            if output.is_empty() || !command.contains("testdata/") {
                continue;
            }
            let made = Command::new("sh")
                .args(["-c", &command])
                .current_dir(&repository)
                .env_clear()
                .env("PATH", &path)
                .output()
                .unwrap();
            let made = String::from_utf8(made.stdout).unwrap();
            assert_eq!(words(made.lines()), output, "{}: {command}", page.display());
            compared += 1;
        }
    }
    assert!(compared > 4, "{compared} outputs: they are not found in the pages any more");
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

/// The circles of modules in the crates of models, as ARCHITECTURE.md names them.
const CIRCLES: [(&str, &[&str]); 5] = [
    ("events", &[]),
    ("caches", &["cache", "objects", "policy"]),
    ("pages", &["back", "cache", "nvm", "system"]),
    ("files", &[]),
    ("study", &["plan", "results", "run"]),
];

/// The modules that a source names after `prefix`, alone or in braces.
fn named_after(source: &str, prefix: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = BTreeSet::new();
    for rest in source.split(prefix).skip(1) {
        let (mut depth, mut begins) = (0, true);
        for (at, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' => begins |= depth == 1,
                _ if c.is_whitespace() => {}
                _ if begins => {
                    found.insert(word(&rest[at..]));
                    begins = false;
                }
                _ => {}
            }
            if depth == 0 && !begins {
                break;
            }
        }
    }
    found
}

/// The core was one crate with four circles of modules, of which the page knew one.
#[test]
fn modules_name_each_other_only_where_the_architecture_says_so() {
    for (name, expected) in CIRCLES {
        let root = repository().join("crates").join(name).join("src");
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for path in files(&root, "rs") {
            let below = path.strip_prefix(&root).unwrap().with_extension("");
            let parts: Vec<&str> = below.iter().map(|part| part.to_str().unwrap()).collect();
            if parts[0] == "lib" || parts.iter().any(|part| part.contains("test")) {
                continue;
            }
            let text = read(&path);
            let code: Vec<&str> = text
                .lines()
                .take_while(|line| !line.starts_with("#[cfg(test)]"))
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            let code = code.join("\n");
            let depth = parts.len() - usize::from(parts.last() == Some(&"mod"));
            let mut named = named_after(&code, "crate::");
            named.extend(named_after(&code, &format!("use {}", "super::".repeat(depth))));
            named.remove(parts[0]);
            uses.entry(parts[0].to_owned()).or_default().extend(named);
        }
        let reached = |from: &str| {
            let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
            while let Some(module) = left.pop() {
                for used in uses.get(module).into_iter().flatten() {
                    if seen.insert(used.as_str()) {
                        left.push(used);
                    }
                }
            }
            seen
        };
        let circle: Vec<&str> = uses
            .keys()
            .map(String::as_str)
            .filter(|module| reached(module).contains(*module))
            .collect();
        assert_eq!(circle, expected, "modules of {name} that reach themselves");
    }
}
