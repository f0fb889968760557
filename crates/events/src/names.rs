//! Knowledge about file names: SQLite's files, cache directories, and names that are not UTF-8.
//!
//! A path is absolute where that is known; a file name alone is a path, too. No function here asks
//! a file system: a name only indicates what a file probably is.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use wildmatch::WildMatch;

/// Returns the last component of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, last)| last)
}

/// How soon F2FS expects the data of a file to change, by the file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heat {
    /// Soon.
    Hot,
    /// Hardly ever.
    Cold,
}

/// The extensions that mkfs.f2fs 1.15 writes into a volume (`extension_list` in its `/sys/fs/f2fs`
/// directory).
const F2FS_COLD: [&str; 36] = [
    "mp", "wm", "og", "jp", "avi", "m4v", "m4p", "mkv", "mov", "webm", "wav", "m4a", "3gp", "opus",
    "flac", "gif", "png", "svg", "webp", "jar", "deb", "iso", "gz", "xz", "zst", "pdf", "pyc",
    "ttc", "ttf", "exe", "apk", "cnt", "exo", "odex", "vdex", "so",
];
const F2FS_HOT: [&str; 4] = ["db", "vmdk", "vdi", "qcow2"];

/// Returns the heat that F2FS gives a file that is created with this path. An extension counts
/// wherever it follows a dot, without regard to case, and as the beginning of a longer one:
/// `x.mp4.part` and `x.sock` are cold, `x.db-wal` is hot (`is_extension_exist` in the kernel's
/// `fs/f2fs/namei.c`).
pub fn f2fs_heat(path: &str) -> Option<Heat> {
    let name = file_name(path).as_bytes();
    let follows_a_dot = |extension: &&str| {
        let parts = (1..name.len()).filter(|at| name[*at] == b'.').map(|at| &name[at + 1..]);
        let mut heads = parts.filter_map(|part| part.get(..extension.len()));
        heads.any(|head| head.eq_ignore_ascii_case(extension.as_bytes()))
    };
    if F2FS_COLD.iter().any(&follows_a_dot) {
        Some(Heat::Cold)
    } else if F2FS_HOT.iter().any(follows_a_dot) {
        Some(Heat::Hot)
    } else {
        None
    }
}

/// The role of a file among those that SQLite keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sqlite {
    /// A database, by its extension. (Chromium's `Cookies` has none and is known by its journal.)
    Database,
    /// A rollback journal (`X-journal`), or the super-journal of a transaction that spans databases
    /// (`X-mjHHHHHH9HH`).
    Journal,
    /// A write-ahead log (`X-wal`).
    Wal,
    /// The index of a write-ahead log in shared memory (`X-shm`).
    SharedMemory,
    /// A temporary file (`etilqs_…`): SQLite neither syncs it nor needs it after a crash.
    Temporary,
}

/// Suffixes of the files that SQLite keeps beside a database.
const COMPANIONS: [(&str, Sqlite); 3] =
    [("-journal", Sqlite::Journal), ("-wal", Sqlite::Wal), ("-shm", Sqlite::SharedMemory)];
/// Extensions of databases, compared without regard to case.
const EXTENSIONS: [&str; 5] = ["db", "db3", "sqlite", "sqlite3", "sqlitedb"];
/// Prefix of the name of a temporary file.
const TEMPORARY: &str = "etilqs_";

/// Returns the role in SQLite of the file with this path, if it has one.
pub fn sqlite(path: &str) -> Option<Sqlite> {
    if let Some((_, kind)) = companion(path) {
        return Some(kind);
    }
    let name = file_name(path);
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    if extension
        .is_some_and(|found| EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(found)))
    {
        Some(Sqlite::Database)
    } else if name.starts_with(TEMPORARY) {
        Some(Sqlite::Temporary)
    } else {
        None
    }
}

/// Splits the path of a file that SQLite keeps beside a database: returns the database's path, and
/// the file's role.
pub fn companion(path: &str) -> Option<(&str, Sqlite)> {
    let by_ending =
        COMPANIONS.iter().find_map(|(ending, kind)| Some((path.strip_suffix(ending)?, *kind)));
    by_ending
        .or_else(|| Some((before_super_journal(path)?, Sqlite::Journal)))
        .filter(|(database, _)| !file_name(database).is_empty())
}

/// Returns the part of a path before `-mjHHHHHH9HH`.
fn before_super_journal(path: &str) -> Option<&str> {
    let (database, ending) = path.split_at_checked(path.len().checked_sub(12)?)?;
    let digits = ending.strip_prefix("-mj")?.as_bytes();
    let hex = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'A'..=b'F'));
    (hex && digits[6] == b'9').then_some(database)
}

/// Returns whether SQLite syncs the file with every transaction, or maps it as shared memory. Such
/// a file gains nothing from being held in RAM first.
pub fn is_synced_database(path: &str) -> bool {
    matches!(
        sqlite(path),
        Some(Sqlite::Database | Sqlite::Journal | Sqlite::Wal | Sqlite::SharedMemory)
    )
}

/// Extensions of files that their programs keep mapped and overwrite in place, mostly without a
/// sync: journald's journals, and the databases of RRDtool.
const MAPPED: [&str; 3] = ["journal", "journal~", "rrd"];

/// Returns whether a program keeps the file with this path mapped, and writes it without a sync.
pub fn is_kept_mapped(path: &str) -> bool {
    let extension = file_name(path).rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|found| MAPPED.contains(&found))
}

/// Returns whether the path leads through a directory whose name contains `cache` in any case:
/// `cache`, `code_cache`, `.cache`, Chromium's `Code Cache` and `GPUCache`. The file's own name
/// does not count.
pub fn in_cache(path: &str) -> bool {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    directory.as_bytes().windows(5).any(|part| part.eq_ignore_ascii_case(b"cache"))
}

/// Shell patterns of file names: `*` stands for any text, `?` for one character.
#[derive(Clone, Debug, Default)]
pub struct Patterns(Vec<WildMatch>);

impl Patterns {
    /// Returns the compiled patterns.
    pub fn new(patterns: &[String]) -> Self {
        Self(patterns.iter().map(|pattern| WildMatch::new(pattern)).collect())
    }

    /// Returns whether one of the patterns matches the last component of this path.
    pub fn matches(&self, path: &str) -> bool {
        !self.0.is_empty() && {
            let name = file_name(path);
            self.0.iter().any(|pattern| pattern.matches(name))
        }
    }
}

/// A pattern of paths as users write it, much as in `.gitignore`, but that `*` also stands for `/`.
///
/// A pattern without a slash, but for one at its end, names a file or directory at any depth. One
/// that begins with `*` is compared with the whole path; another one begins at the directory that
/// is mounted, and one with a slash at its beginning at that or at the root. All that is in a
/// directory that matches does so, too.
#[derive(Clone, Debug)]
pub struct UserPattern {
    text: String,
    /// Patterns of whole paths.
    whole: Vec<WildMatch>,
    /// Patterns of paths from the mounted directory on.
    below: Vec<WildMatch>,
    /// Whether a path has matched, shared by clones.
    matched: Arc<AtomicBool>,
}

impl UserPattern {
    /// Returns the compiled pattern.
    pub fn new(text: &str) -> Self {
        let inner = text.trim_end_matches('/');
        let is_name = !inner.contains('/');
        let whole = text.starts_with(['*', '/']);
        let below = text.starts_with('/') || !whole || is_name;
        let begins = match is_name {
            true => "*/",
            false if text.starts_with('/') => "",
            false => "/",
        };
        let compiled = |begins: &str| {
            // A slash at the end: only what is in such a directory.
            let itself = (inner.len() == text.len()).then(|| format!("{begins}{inner}"));
            let inside = (!inner.is_empty()).then(|| format!("{begins}{inner}/*"));
            itself.iter().chain(&inside).map(|pattern| WildMatch::new(pattern)).collect()
        };
        Self {
            text: text.to_owned(),
            whole: if whole { compiled("") } else { Vec::new() },
            below: if below { compiled(begins) } else { Vec::new() },
            matched: Arc::default(),
        }
    }

    /// Returns the compiled patterns.
    pub fn all(texts: &[String]) -> Vec<Self> {
        texts.iter().map(|text| Self::new(text)).collect()
    }

    /// Returns whether one of the patterns matches a path, which is `below` from the mounted
    /// directory on. Every one that does so counts as matched.
    pub fn any(patterns: &[Self], path: &str, below: &str) -> bool {
        let below = match below.starts_with('/') {
            true => Cow::Borrowed(below),
            false => Cow::Owned(format!("/{below}")),
        };
        let mut any = false;
        for pattern in patterns {
            let is_new = !pattern.matched.load(Ordering::Relaxed);
            if (is_new || !any)
                && (pattern.whole.iter().any(|one| one.matches(path))
                    || pattern.below.iter().any(|one| one.matches(&below)))
            {
                any = true;
                pattern.matched.store(true, Ordering::Relaxed);
            }
        }
        any
    }

    /// Returns those that no path has matched so far.
    pub fn unmatched<'a>(patterns: impl IntoIterator<Item = &'a Self>) -> Vec<&'a str> {
        let unused = patterns.into_iter().filter(|one| !one.matched.load(Ordering::Relaxed));
        unused.map(|pattern| &*pattern.text).collect()
    }
}

/// Returns a name as events carry it: bytes that are not UTF-8 become `\xNN`, with upper-case
/// digits. A backslash that would begin such an escape becomes `\x5C`, so that [`unescape`] returns
/// the same bytes again.
pub fn escape(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(name)
        && !text.as_bytes().windows(4).any(|part| escaped_byte(part).is_some())
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(name.len() + 12);
    escape_into(name, &mut text);
    Cow::Owned(text)
}

/// Appends the name to a text, escaped as by [`escape`].
pub fn escape_into(name: &[u8], text: &mut String) {
    for chunk in name.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) =
            rest.as_bytes().windows(4).position(|part| escaped_byte(part).is_some())
        {
            text.push_str(&rest[..at]);
            push_byte(b'\\', text);
            rest = &rest[at + 1..];
        }
        text.push_str(rest);
        chunk.invalid().iter().for_each(|byte| push_byte(*byte, text));
    }
}

/// Appends the escape of a byte, `\xNN`, to a text.
pub fn push_byte(byte: u8, text: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push_str("\\x");
    for digit in [byte >> 4, byte & 15] {
        text.push(char::from(DIGITS[usize::from(digit)]));
    }
}

/// Returns the bytes of a name that was [escaped](escape). Digits may be of either case.
pub fn unescape(text: &str) -> Cow<'_, [u8]> {
    let mut rest = text.as_bytes();
    let Some(_) = rest.windows(4).find_map(escaped_byte) else { return Cow::Borrowed(rest) };
    let mut name = Vec::with_capacity(rest.len());
    while let Some(first) = rest.first() {
        match rest.get(..4).and_then(escaped_byte) {
            Some(byte) => {
                name.push(byte);
                rest = &rest[4..];
            }
            None => {
                name.push(*first);
                rest = &rest[1..];
            }
        }
    }
    Cow::Owned(name)
}

/// Returns the byte that `\xNN` stands for.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low] = text else { return None };
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Name of the programs of a trace without process numbers.
pub const UNKNOWN_PROGRAM: &str = "(unknown)";

/// Returns the name for people of a program, or of the process with this number, which was never
/// named.
pub fn program_name(key: Result<&str, u32>) -> Box<str> {
    match key {
        Ok(name) => name.into(),
        Err(0) => UNKNOWN_PROGRAM.into(),
        Err(pid) => format!("(process {pid})").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel's `is_extension_exist` finds them.
    // Promises: Placement 5.
    #[test]
    fn f2fs_knows_heat_by_extension() {
        for (path, heat) in [
            ("/DCIM/1.JPG", Some(Heat::Cold)),
            ("/a/video.mp4.part", Some(Heat::Cold)),
            ("/a/x.sock", Some(Heat::Cold)),
            ("/a/x.db", Some(Heat::Hot)),
            ("x.db-journal", Some(Heat::Hot)),
            ("/a/x.db.gz", Some(Heat::Cold)),
            ("/a/.mp3", None),
            ("/a.mp3/x", None),
            ("/a/mp3", None),
            ("/a/x.m", None),
            ("/a/x.sqlite", None),
        ] {
            assert_eq!(f2fs_heat(path), heat, "{path}");
        }
    }
    use proptest::prelude::*;

    // Promises: Mount 80.
    #[test]
    fn names_reveal_files_that_are_kept_mapped() {
        for (path, is) in [
            ("/log/journal/1/system.journal", true),
            ("user-1000@1-2.journal~", true),
            ("/var/lib/cpu.rrd", true),
            ("a.db-journal", false),
            ("a.journal/x", false),
            ("journal", false),
        ] {
            assert_eq!(is_kept_mapped(path), is, "{path}");
        }
    }

    // Promises: Describe 15, Mount 10.
    #[test]
    fn names_reveal_the_files_of_sqlite() {
        for (name, kind) in [
            ("/data/app/messages.db", Some(Sqlite::Database)),
            ("messages.SQLite3", Some(Sqlite::Database)),
            ("a.sqlitedb", Some(Sqlite::Database)),
            ("/data/app/Cookies", None),
            ("/data/app/Cookies-journal", Some(Sqlite::Journal)),
            ("/data/app/x.db-mj0A1B2C9FF", Some(Sqlite::Journal)),
            ("/data/app/x.db-mj0A1B2C8FF", None),
            ("/data/app/x.db-mj0a1b2c9ff", None),
            ("/data/app/é-mj0A1B2C9FF", Some(Sqlite::Journal)),
            ("éééééééé", None),
            ("/data/app/x.db-wal", Some(Sqlite::Wal)),
            ("/data/app/x.db-shm", Some(Sqlite::SharedMemory)),
            ("/data/app/-journal", None),
            ("-journal", None),
            ("/var/tmp/etilqs_0a1b", Some(Sqlite::Temporary)),
            ("/data/db/photo.jpg", None),
            ("/data/adb", None),
            ("a.dbx", None),
            ("journal", None),
            ("", None),
        ] {
            assert_eq!(sqlite(name), kind, "{name}");
            assert_eq!(
                is_synced_database(name),
                kind.is_some_and(|kind| kind != Sqlite::Temporary),
                "{name}"
            );
        }
        assert_eq!(companion("/p/Cookies-journal"), Some(("/p/Cookies", Sqlite::Journal)));
        assert_eq!(companion("/p/x.db-mj0A1B2C9FF"), Some(("/p/x.db", Sqlite::Journal)));
        assert_eq!(companion("/p/x.db"), None);
    }

    // Promises: Describe 16.
    #[test]
    fn a_cache_directory_makes_its_files_cache_files() {
        for path in [
            "/data/data/org.app/cache/a",
            "/home/u/.cache/b/c",
            "/p/Code Cache/js/d",
            "/p/GPUCache/data_1",
        ] {
            assert!(in_cache(path), "{path}");
        }
        for path in ["/p/cache", "/p/apache/x", "/p/caches", "cache", "", "/p/ca/che/x"] {
            assert!(!in_cache(path), "{path}");
        }
    }

    #[test]
    fn patterns_match_file_names_not_paths() {
        let patterns = Patterns::new(&["*.log".to_owned(), "LOCK".to_owned(), "f_?".to_owned()]);
        for path in ["/a/x.log", "x.log", "/a/LOCK", "f_1"] {
            assert!(patterns.matches(path), "{path}");
        }
        for path in ["/a.log/x", "LOCKS", "/LOCK/a", "f_12", ""] {
            assert!(!patterns.matches(path), "{path}");
        }
        assert!(!Patterns::default().matches(""));
    }

    // Promises: Traces 14.
    #[test]
    fn bytes_that_are_not_utf_8_are_escaped() {
        for (bytes, text) in [
            (&b"plain"[..], "plain"),
            (b"a\xFFb", "a\\xFFb"),
            (b"\\xFF", "\\x5CxFF"),
            (b"\\x4", "\\x4"),
            (b"\\\xE9\\", "\\\\xE9\\"),
            (b"\\x4\xE9", "\\x4\\xE9"),
        ] {
            assert_eq!(escape(bytes), text);
            assert_eq!(*unescape(text), *bytes);
        }
        assert_eq!(*unescape("a\\xe9"), *b"a\xE9", "older traces have lower-case digits");
        assert!(matches!(escape("é\\y".as_bytes()), Cow::Borrowed(_)));
    }

    proptest! {
        // Promises: Traces 14.
        #[test]
        fn every_name_survives_escape_and_unescape(name in prop::collection::vec(
            prop_oneof![Just(b'\\'), Just(b'x'), Just(b'5'), Just(b'C'), any::<u8>()], 0..24,
        )) {
            let text = escape(&name);
            prop_assert_eq!(&*unescape(&text), &*name);
        }
    }
}
