//! Files that may be dropped: their application fetches or computes them again.

use crate::names::{file_name, in_cache, is_synced_database};
use wildmatch::WildMatch;

/// Files in cache directories whose loss costs more than their own bytes, as
/// `experiments/cachesifter/harmless` saw with the real programs.
const NO_CACHE: [&str; 4] = [
    // Chromium: content that a web application stored itself.
    "*/CacheStorage/*",
    // Chromium forgets a service worker of which a script is missing.
    "*/Service Worker/ScriptCache/*",
    // Firefox: as the two above. It serves a missing file as an empty one.
    "*/cache/morgue/*",
    // Firefox loads a whole page again for its picture.
    "*/firefox/*/thumbnails/*",
];

/// Names of files that describe the others of a cache. Chromium throws all entries of a cache of
/// block files away when `index` or a block file (`data_0` to `data_3`) is missing. LevelDB loses
/// its last records with its log.
const INDEXES: [&str; 9] = [
    "index",
    "the-real-index",
    "index-log",
    "data_?",
    "LOCK",
    "CURRENT",
    "MANIFEST-*",
    "*.ldb",
    "0?????.log",
];

/// Decides by its name whether a file may be dropped.
#[derive(Clone, Debug)]
pub struct Droppable {
    patterns: Vec<WildMatch>,
    no_cache: Vec<WildMatch>,
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
            no_cache: NO_CACHE.iter().map(|pattern| compiled(pattern)).collect(),
            pinned: INDEXES.iter().map(|pattern| compiled(pattern)).collect(),
        }
    }

    /// Returns whether the file with this path may be dropped. Databases of SQLite and indexes of
    /// caches may not, whatever the patterns say.
    pub fn has(&self, path: &str) -> bool {
        let chosen = match &self.patterns[..] {
            [] => in_cache(path) && !self.no_cache.iter().any(|pattern| pattern.matches(path)),
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
        for path in [
            "/h/.cache/app/a",
            "/h/.cache/app/update-1.log",
            "/h/.cache/mozilla/firefox/p/cache2/entries/00FF",
            "/h/.cache/thumbnails/normal/a.png",
            "/p/Default/Cache/Cache_Data/00ff_0",
            "/p/Code Cache/js/a_0",
        ] {
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
            "/p/Service Worker/ScriptCache/00ff_0",
            "/h/.cache/app/records/000003.log",
            "/p/storage/default/http+++a/cache/morgue/12/{6146e4ba}.final",
            "/h/.cache/mozilla/firefox/p/thumbnails/a.png",
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
