//! The files whose syncs may be delayed.

use crate::{event::Micros, names::file_name};
use wildmatch::WildMatch;

/// Patterns of files, and for how long their syncs may be delayed.
#[derive(Clone, Debug, Default)]
pub struct Groups(Vec<Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    pattern: WildMatch,
    is_of_path: bool,
    delay_us: Micros,
}

impl Groups {
    /// Returns the groups of these patterns, each with a time in µs. `*` stands for any text. A
    /// pattern with a slash is for the path from the mounted directory on, one without for the
    /// file's name.
    pub fn new(patterns: &[(String, Micros)]) -> Self {
        let compiled = |(text, delay_us): &(String, Micros)| Pattern {
            pattern: WildMatch::new(text),
            is_of_path: text.contains('/'),
            delay_us: *delay_us,
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
        let matches = |group: &&Pattern| {
            group.pattern.matches(if group.is_of_path { path } else { file_name(path) })
        };
        self.0.iter().filter(matches).map(|group| group.delay_us).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_time_of_the_patterns_that_match_counts() {
        let patterns = [("*.db*", 300), ("/profile/*", 60), ("*/cache/x", 5)];
        let groups = Groups::new(&patterns.map(|(text, us)| (text.to_owned(), us)));
        assert_eq!(groups.delay_us("/a.db-wal"), Some(300));
        assert_eq!(groups.delay_us("/profile/a.db"), Some(60));
        assert_eq!(groups.delay_us("/profile/cache/x"), Some(5));
        assert_eq!(groups.delay_us("/a.db/other"), None, "a directory's name is not the file's");
        assert_eq!(groups.delay_us("/other/profile/a"), None);
        assert!(Groups::default().is_empty() && !groups.is_empty());
    }
}
