//! Files that may be dropped: their application fetches or computes them again.

use crate::names::{file_name, in_cache, is_synced_database};
use wildmatch::WildMatch;

/// Directories whose name contains `cache` although their files cannot be fetched again. Chromium
/// keeps what a web application stored itself in `CacheStorage`.
const NO_CACHE: [&str; 1] = ["/CacheStorage/"];

/// Names of files that describe the others of a cache. Chromium throws all its entries away when
/// `index` or a block file (`data_0` to `data_3`) is missing.
const INDEXES: [&str; 8] =
    ["index", "the-real-index", "index-log", "data_?", "LOCK", "CURRENT", "MANIFEST-*", "*.ldb"];

/// Decides by its name whether a file may be dropped.
#[derive(Clone, Debug)]
pub struct Droppable {
    patterns: Vec<WildMatch>,
    pinned: Vec<WildMatch>,
}

impl Droppable {
    /// Files in directories whose name contains `cache`.
    pub fn caches() -> Self {
        Self::matching(&[])
    }

    /// Files whose path matches one of these shell patterns, in which `*` also stands for `/`; none
    /// given: [`Self::caches`].
    pub fn matching(patterns: &[String]) -> Self {
        let compiled = |pattern: &str| WildMatch::new(pattern);
        Self {
            patterns: patterns.iter().map(|pattern| compiled(pattern)).collect(),
            pinned: INDEXES.iter().map(|pattern| compiled(pattern)).collect(),
        }
    }

    /// Returns whether the file with this path may be dropped. Databases of SQLite and indexes of
    /// caches may not, whatever the patterns say.
    pub fn has(&self, path: &str) -> bool {
        let chosen = match &self.patterns[..] {
            [] => in_cache(path) && !NO_CACHE.iter().any(|directory| path.contains(directory)),
            patterns => patterns.iter().any(|pattern| pattern.matches(path)),
        };
        let name = file_name(path);
        chosen
            && !is_synced_database(path)
            && !self.pinned.iter().any(|pinned| pinned.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_droppable_but_for_their_indexes_and_databases() {
        let caches = Droppable::caches();
        for path in
            ["/h/.cache/app/a", "/p/Default/Cache/Cache_Data/00ff_0", "/p/Code Cache/js/a_0"]
        {
            assert!(caches.has(path), "{path}");
        }
        for path in [
            "/h/notes/a",
            "/h/cached.txt",
            "/p/Cache/Cache_Data/index",
            "/p/GPUCache/data_1",
            "/p/Code Cache/js/index-dir/the-real-index",
            "/h/.cache/app/thumbs.db",
            "/h/.cache/app/thumbs.db-wal",
            "/p/Service Worker/CacheStorage/1/2/3_0",
        ] {
            assert!(!caches.has(path), "{path}");
        }
    }

    #[test]
    fn patterns_replace_the_caches() {
        let images = Droppable::matching(&["*/images/*".into(), "/tmp/?".into()]);
        assert!(images.has("/feed/images/a/b.jpg") && images.has("/tmp/x"));
        assert!(!images.has("/h/.cache/app/a") && !images.has("/tmp/xy"));
        assert!(!images.has("/feed/images/names.db"));
    }
}
