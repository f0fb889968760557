//! Files that may be dropped: their application fetches or computes them again.

use super::profile::CacheProfile;
use flashsift_events::names::{UserPattern, file_name, in_cache, is_synced_database};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
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

/// Directories in which no file is dropped, whatever its name. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct KeptDirectories(Arc<RwLock<BTreeSet<String>>>);

impl KeptDirectories {
    /// Adds a directory, by its path as events have it; empty: every one. Returns whether that is
    /// new, and the directory lies in none of the others.
    pub fn add(&self, directory: &str) -> bool {
        !self.have(directory)
            && self.0.write().unwrap_or_else(PoisonError::into_inner).insert(directory.to_owned())
    }

    fn have(&self, path: &str) -> bool {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|it| path.strip_prefix(&**it).is_some_and(|below| below.starts_with('/')))
    }
}

/// Decides by its name whether a file may be dropped.
#[derive(Clone, Debug)]
pub struct Droppable {
    choice: Choice,
    no_cache: Vec<WildMatch>,
    pinned: Vec<WildMatch>,
    kept: KeptDirectories,
    /// Put before each path: empty, or a directory without a slash at its end.
    root: String,
}

/// The files from which those that are never dropped are taken away.
#[derive(Clone, Debug)]
enum Choice {
    /// Files in directories whose name contains `cache`.
    Caches,
    /// Files whose path matches a pattern.
    Patterns(Vec<UserPattern>),
    /// Files of known caches, and those that the user names.
    Profiles { profiles: Vec<CompiledProfile>, drop: Vec<UserPattern>, pin: Vec<UserPattern> },
}

/// The patterns of a profile with its directories before each.
#[derive(Clone, Debug)]
struct CompiledProfile {
    name: String,
    drop: Vec<WildMatch>,
    pin: Vec<WildMatch>,
}

impl CompiledProfile {
    fn new(profile: &CacheProfile) -> Self {
        let whole = |patterns: &[String]| {
            let of = |directory: &String| {
                let directory = directory.trim_end_matches('/').to_owned();
                patterns.iter().map(move |end| WildMatch::new(&format!("{directory}/{end}")))
            };
            profile.directories.iter().flat_map(of).collect()
        };
        Self { name: profile.name.clone(), drop: whole(&profile.drop), pin: whole(&profile.pin) }
    }
}

impl Droppable {
    /// Files in directories whose name contains `cache`.
    pub fn caches() -> Self {
        Self::choosing(Choice::Caches)
    }

    /// Files whose path matches one of these patterns ([`UserPattern`]); none given:
    /// [`Self::caches`].
    pub fn matching(patterns: &[String]) -> Self {
        match patterns {
            [] => Self::caches(),
            patterns => Self::choosing(Choice::Patterns(UserPattern::all(patterns))),
        }
    }

    /// Files that one of these profiles lets be dropped, or whose path matches one of the user's
    /// patterns in `drop`, but for those that match one in `pin`. A file that neither names is
    /// never dropped. The pins of a profile restrict that profile alone.
    pub fn by_profiles(profiles: &[CacheProfile], drop: &[String], pin: &[String]) -> Self {
        Self::choosing(Choice::Profiles {
            profiles: profiles.iter().map(CompiledProfile::new).collect(),
            drop: UserPattern::all(drop),
            pin: UserPattern::all(pin),
        })
    }

    /// Returns the user's patterns that no path has matched so far, in this object and its clones.
    pub fn unmatched(&self) -> Vec<&str> {
        let all: [&[UserPattern]; 2] = match &self.choice {
            Choice::Caches => [&[], &[]],
            Choice::Patterns(patterns) => [patterns, &[]],
            Choice::Profiles { drop, pin, .. } => [drop, pin],
        };
        UserPattern::unmatched(all.into_iter().flatten())
    }

    /// Takes paths as those of a mount at this directory: `/a` is matched as `ROOT/a`. Events
    /// escape names, and so must the directory ([`flashsift_events::names::escape`]).
    #[must_use]
    pub fn below(mut self, root: &str) -> Self {
        root.trim_end_matches('/').clone_into(&mut self.root);
        self
    }

    /// Takes away the files in these directories, and in those that are added later.
    #[must_use]
    pub fn but_for(mut self, kept: KeptDirectories) -> Self {
        self.kept = kept;
        self
    }

    /// Returns whether the file with this path may be dropped. Databases of SQLite and indexes of
    /// caches may not, whatever the patterns say.
    pub fn has(&self, path: &str) -> bool {
        self.profile_of(path).is_some()
    }

    /// Returns the name of the profile that lets the file with this path be dropped, the first of
    /// them, or `pattern` for the user's own patterns, or `cache` for [`Self::caches`].
    pub fn profile_of(&self, path: &str) -> Option<&str> {
        let below = path;
        let path = &*self.whole(path);
        let matches = |patterns| UserPattern::any(patterns, path, below);
        let chosen = match &self.choice {
            Choice::Caches => (in_cache(path) && !any(&self.no_cache, path)).then_some("cache"),
            Choice::Patterns(patterns) => matches(patterns).then_some("pattern"),
            Choice::Profiles { pin, .. } if matches(pin) => None,
            Choice::Profiles { profiles, drop, .. } => {
                let lets = |profile: &&CompiledProfile| {
                    any(&profile.drop, path)
                        && !any(&profile.pin, path)
                        && !any(&self.no_cache, path)
                };
                let profile = profiles.iter().find(lets).map(|profile| profile.name.as_str());
                // Always asked, so that a pattern beside a profile counts as used.
                let is_named = matches(drop);
                profile.or_else(|| is_named.then_some("pattern"))
            }
        };
        let stays = || is_synced_database(path) || any(&self.pinned, file_name(path));
        chosen.filter(|_| !stays() && !self.kept.have(below))
    }

    fn choosing(choice: Choice) -> Self {
        let compiled = |names: &[&str]| names.iter().map(|name| WildMatch::new(name)).collect();
        Self {
            choice,
            no_cache: compiled(&NO_CACHE),
            pinned: compiled(&INDEXES),
            kept: KeptDirectories::default(),
            root: String::new(),
        }
    }

    fn whole<'a>(&self, path: &'a str) -> Cow<'a, str> {
        match &self.root[..] {
            "" => Cow::Borrowed(path),
            root if path.starts_with('/') => Cow::Owned(format!("{root}{path}")),
            root => Cow::Owned(format!("{root}/{path}")),
        }
    }
}

fn any(patterns: &[WildMatch], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_kept_directory_is_droppable() {
        let kept = KeptDirectories::default();
        let all = Droppable::matching(&["*".to_owned()]).but_for(kept.clone()).below("/home");
        assert!(all.has("/up/a") && all.has("/upper/a"));
        assert!(kept.add("/up") && !kept.add("/up") && !kept.add("/up/b"));
        let clone = all.clone();
        assert!(!clone.has("/up/a") && !clone.has("/up/b/a"));
        assert!(clone.has("/upper/a") && clone.has("/a/up/a") && clone.has("/up"));
        assert!(kept.add("") && !clone.has("/a"), "all of the mount");
    }

    // Promises: Sift 1.
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

    /// `--drop 'Cache/*'` matched nothing, as the pattern was compared with whole paths, and the
    /// mount did not say so.
    // Promises: Mount 58.
    #[test]
    fn patterns_are_relative_to_the_mounted_directory() {
        let patterns = ["Cache/*", "tiles", "a/", "/b/c", "*.jpg", "*/deep/*"].map(String::from);
        let some = Droppable::by_profiles(&[], &patterns, &["Cache/keep".into(), "x/y".into()])
            .below("/home/u");
        for (path, is_droppable) in [
            ("/Cache/a", true),
            ("Cache/a/b", true),
            ("/sub/Cache/a", false),
            ("/Cache/keep", false),
            ("/Cache/keep/a", false),
            ("/tiles", true),
            ("/x/tiles/7/a", true),
            ("/x/tiles2/a", false),
            ("/x/a/b", true),
            ("/x/a", false),
            ("/b/c/d", true),
            ("/x/b/c", false),
            ("/x/y.jpg", true),
            ("/y/deep/z", true),
            ("/other", false),
        ] {
            assert_eq!(some.has(path), is_droppable, "{path}");
        }
        assert_eq!(some.clone().unmatched(), ["x/y"]);
        let whole = Droppable::matching(&["/home/u/b/*".into(), "u/b".into()]).below("/home/u");
        assert!(whole.has("/b/x"), "a whole path");
        assert_eq!(whole.unmatched(), ["u/b"]);
    }

    fn profile(name: &str, directory: &str, drop: &[&str], pin: &[&str]) -> CacheProfile {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        CacheProfile {
            name: name.into(),
            directories: owned(&[directory]),
            drop: owned(drop),
            pin: owned(pin),
            ..CacheProfile::default()
        }
    }

    #[test]
    fn nothing_is_droppable_outside_profiles_and_patterns() {
        let nothing = Droppable::by_profiles(&[], &[], &[]);
        let profiles = [
            profile("first", "*/.cache/app", &["*"], &["keep/*", "*/keep/*"]),
            profile("second", "*/.cache/app/keep/", &["*.bin"], &[]),
        ];
        let drop = ["*/mine/*".to_owned(), "*/.cache/app/keep/own/*".to_owned()];
        let pin = ["*/treasure*".to_owned()];
        let some = Droppable::by_profiles(&profiles, &drop, &pin);
        for (path, by) in [
            ("/h/.cache/app/a/b", Some("first")),
            ("/h/.cache/app/treasure", None),
            ("/h/.cache/app/keep/a", None),
            ("/h/.cache/app/x/keep/a", None),
            ("/h/.cache/app/keep/a.bin", Some("second")),
            ("/h/.cache/app/keep/own/a", Some("pattern")),
            ("/h/mine/a", Some("pattern")),
            ("/h/mine/treasure/a", None),
            ("/h/mine/names.sqlite", None),
            ("/h/.cache/app/names.db-wal", None),
            ("/h/.cache/app/index", None),
            ("/h/.cache/app/data_0", None),
            ("/h/.cache/app/CacheStorage/a", None),
            ("/h/mine/CacheStorage/a", Some("pattern")),
            ("/h/.cache/application/a", None),
            ("/h/.cache/app", None),
            ("/h/notes", None),
            ("", None),
        ] {
            assert_eq!(some.profile_of(path), by, "{path}");
            assert_eq!(some.has(path), by.is_some(), "{path}");
            assert!(!nothing.has(path), "{path}");
        }
    }

    #[test]
    fn paths_of_a_mount_are_matched_below_its_directory() {
        let profiles = [profile("app", "*/.cache/app", &["Cache/*"], &[])];
        let droppable = Droppable::by_profiles(&profiles, &[], &[]);
        assert!(!droppable.has("/Cache/a"));
        for root in ["/h/.cache/app", "/h/.cache/app/"] {
            let below = droppable.clone().below(root);
            assert_eq!(below.profile_of("/Cache/a"), Some("app"));
            assert_eq!(below.profile_of("Cache/a"), Some("app"));
            assert!(!below.has("/other/a"));
        }
        assert!(droppable.clone().below("/h").has("/.cache/app/Cache/a"));
        assert!(droppable.below("/").has("/h/.cache/app/Cache/a"));
        let caches = Droppable::caches().below("/h/.cache/app");
        assert_eq!(caches.profile_of("/a"), Some("cache"));
        assert_eq!(
            Droppable::matching(&["/m/x".into()]).below("/m").profile_of("/x"),
            Some("pattern")
        );
    }
}
