//! The files whose syncs may be delayed.

use flashsift_events::{event::Micros, names::file_name};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use wildmatch::WildMatch;

/// Shapes of temporary names that are remembered.
const SHAPES: usize = 32;
/// Letters and digits that a shape has at least beside its random parts, unless it is around a name
/// of a group.
const LITERALS: usize = 3;
/// Letters of both cases from which on they are random.
const RANDOM_LETTERS: usize = 6;

/// Patterns of files, and for how long their syncs may be delayed.
#[derive(Clone, Debug, Default)]
pub struct Groups(Vec<Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    text: String,
    pattern: WildMatch,
    is_of_path: bool,
    delay_us: Micros,
    /// Whether a sync of such a file was delayed, shared by clones.
    synced: Arc<AtomicBool>,
}

impl Pattern {
    fn matches(&self, path: &str) -> bool {
        self.pattern.matches(if self.is_of_path { path } else { file_name(path) })
    }
}

impl Groups {
    /// Returns the groups of these patterns, each with a time in µs. `*` stands for any text. A
    /// pattern with a slash is for the path from the mounted directory on, one without for the
    /// file's name.
    pub fn new(patterns: &[(String, Micros)]) -> Self {
        let compiled = |(text, delay_us): &(String, Micros)| {
            let is_of_path = text.contains('/');
            let begins = if is_of_path && !text.starts_with(['/', '*']) { "/" } else { "" };
            let ends = if text.ends_with('/') { "*" } else { "" };
            Pattern {
                text: text.clone(),
                pattern: WildMatch::new(&format!("{begins}{text}{ends}")),
                is_of_path,
                delay_us: *delay_us,
                synced: Arc::default(),
            }
        };
        Self(patterns.iter().map(compiled).collect())
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns for how long the syncs of the file with this path may be delayed, µs: the shortest
    /// time of a pattern that matches. `None`: not at all.
    pub fn delay_us(&self, path: &str) -> Option<Micros> {
        let matching = self.0.iter().filter(|group| group.matches(path));
        matching.map(|group| group.delay_us).min()
    }

    /// Returns whether a pattern has not delayed a sync yet.
    pub fn has_unused(&self) -> bool {
        self.0.iter().any(|group| !group.synced.load(Ordering::Relaxed))
    }

    /// A sync of the file with this path, or the rename to it of a file that was synced, was
    /// delayed.
    pub fn delayed(&self, path: &str) {
        for group in self.0.iter().filter(|group| group.matches(path)) {
            group.synced.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the patterns that have delayed no sync so far.
    pub fn unused(&self) -> Vec<&str> {
        let unused = self.0.iter().filter(|group| !group.synced.load(Ordering::Relaxed));
        unused.map(|group| &*group.text).collect()
    }
}

/// Temporary names: programs replace a file by one that they have written and synced under another
/// name in its directory, and such a name is known from the first rename on.
///
/// Its parts that differ each time are numbers, and letters of both cases. Where the rest has the
/// name of a file of a group, a name is temporary in each directory, and for each file of the
/// group; otherwise in that directory alone.
#[derive(Debug, Default)]
pub struct Temporaries(Vec<Shape>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// The name of a file of a group is between these patterns.
    Around(String, String),
    /// A pattern of names in this directory, and the delay of the file that one was renamed to, µs.
    In(String, String, Micros),
}

impl Temporaries {
    /// A file was renamed to a name of a group with this delay, µs. Returns whether its name before
    /// is news.
    pub fn renamed(&mut self, from: &str, to: &str, delay_us: Micros) -> bool {
        let (dir, old, new) = (directory(from), file_name(from), file_name(to));
        if dir != directory(to) || old.contains(['*', '?']) || new.is_empty() {
            return false;
        }
        let shape = match old.split_once(new) {
            Some((before, after)) => Shape::Around(shape(before), shape(after)),
            None => {
                let pattern = shape(old);
                if pattern.bytes().filter(u8::is_ascii_alphanumeric).count() < LITERALS {
                    return false;
                }
                Shape::In(dir.to_owned(), pattern, delay_us)
            }
        };
        if self.0.contains(&shape) {
            return false;
        }
        if self.0.len() == SHAPES {
            self.0.remove(0);
        }
        self.0.push(shape);
        true
    }

    /// Returns the delay of a file with this path, if its name is temporary, µs. `delay_us` is that
    /// of a path in the groups.
    pub fn delay_us(
        &self,
        path: &str,
        delay_us: impl Fn(&str) -> Option<Micros>,
    ) -> Option<Micros> {
        let (dir, name) = (directory(path), file_name(path));
        self.0.iter().find_map(|shape| match shape {
            Shape::In(of, pattern, delay_us) => {
                (of == dir && WildMatch::new(pattern).matches(name)).then_some(*delay_us)
            }
            Shape::Around(before, after) => {
                let (before, after) = (WildMatch::new(before), WildMatch::new(after));
                let ends = || (0..=name.len()).filter(|at| name.is_char_boundary(*at));
                let begin = ends().filter(|at| before.matches(&name[..*at]));
                let end: Vec<usize> = ends().filter(|at| after.matches(&name[*at..])).collect();
                begin
                    .flat_map(|from| end.iter().map(move |to| (from, *to)))
                    .filter(|(from, to)| from < to)
                    .find_map(|(from, to)| delay_us(&format!("{dir}/{}", &name[from..to])))
            }
        })
    }
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// A part of a name as a pattern: `*` for what differs each time.
fn shape(part: &str) -> String {
    let mut pattern = String::new();
    for run in part.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let word = run.trim_end_matches(|c: char| !c.is_alphanumeric());
        let has = |kind: fn(&char) -> bool| word.chars().any(|c| kind(&c));
        let is_mixed = has(|c| c.is_uppercase()) && has(|c| c.is_lowercase());
        if has(char::is_ascii_digit) || (is_mixed && word.chars().count() >= RANDOM_LETTERS) {
            // Names of mkstemp(3) and its like often begin so.
            let known = ["tmp", "temp"].into_iter().find(|known| word.starts_with(known));
            pattern.push_str(known.unwrap_or_default());
            pattern.push('*');
        } else {
            pattern.push_str(word);
        }
        pattern.push_str(&run[word.len()..]);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_time_of_the_patterns_that_match_counts() {
        let patterns = [("*.db*", 300), ("/profile/*", 60), ("*/cache/x", 5), ("own/", 7)];
        let groups = Groups::new(&patterns.map(|(text, us)| (text.to_owned(), us)));
        assert_eq!(groups.delay_us("/a.db-wal"), Some(300));
        assert_eq!(groups.delay_us("/profile/a.db"), Some(60));
        assert_eq!(groups.delay_us("/profile/cache/x"), Some(5));
        assert_eq!(groups.delay_us("/a.db/other"), None, "a directory's name is not the file's");
        assert_eq!(groups.delay_us("/other/profile/a"), None);
        assert_eq!(groups.delay_us("/own/a"), Some(7), "from the mounted directory on");
        assert!(Groups::default().is_empty() && !groups.is_empty());
        groups.clone().delayed("/profile/a.db");
        assert_eq!(groups.unused(), ["*/cache/x", "own/"]);
    }

    /// `--delay-sync '*.json=5m'` did nothing for programs that write a temporary file, sync it and
    /// rename it: the sync was that of a file outside of the group.
    // Promises: Mount 74.
    #[test]
    fn temporary_names_are_known_from_the_first_rename_on() {
        let groups = Groups::new(&[("*.json".to_owned(), 300)]);
        for (first, to, next, others) in [
            (
                ".tmp-config.json0",
                "config.json",
                &[".tmp-config.json17", ".tmp-other.json4"][..],
                &[".tmp-config.txt3", "tmp-config.json3", ".tmp-3", "x.tmp-config.json1"][..],
            ),
            ("a.json.tmp", "a.json", &["b.json.tmp"], &["a.json.bak", "a.txt.tmp", "a.tmp"]),
            ("a.json.123.4567", "a.json", &["b.json.9.1"], &["a.json.9"]),
            (".a.json.XbQwZt", "a.json", &[".b.json.QwErTy", ".a.json.12"], &["a.json.QwErTy"]),
            (".goutputstream-AB12CD", "a.json", &[".goutputstream-QW89AS"], &[".other-AB12CD"]),
            ("tmpk3j4", "a.json", &["tmp8xy_z"], &["temp8xy", "atmp8xy"]),
            ("état-7", "é.json", &["état-8"], &["état"]),
        ] {
            let mut known = Temporaries::default();
            let delay = |known: &Temporaries, name: &str| {
                known.delay_us(&format!("/d/{name}"), |path| groups.delay_us(path))
            };
            assert_eq!(delay(&known, first), None);
            let path = |name: &str| format!("/d/{name}");
            assert!(known.renamed(&path(first), &path(to), 300), "{first}");
            assert!(!known.renamed(&path(first), &path(to), 300), "it is known");
            for next in next {
                assert_eq!(delay(&known, next), Some(300), "{next} after {first}");
            }
            for other in others {
                assert_eq!(delay(&known, other), None, "{other} after {first}");
            }
        }
        let mut known = Temporaries::default();
        assert!(!known.renamed("/d/4913", "/d/a.json", 300), "every number would be temporary");
        assert!(!known.renamed("/e/tmpk3j4", "/d/a.json", 300), "another directory");
        for number in 0..2 * SHAPES {
            let name: String = (0..number).map(|_| '-').collect();
            assert!(known.renamed(&format!("/d/a.json{name}x"), "/d/a.json", 300));
        }
        assert_eq!(known.0.len(), SHAPES);
    }
}
