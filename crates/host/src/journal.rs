//! The journal of changes to this machine: one JSON object a line, written before each change.
//!
//! A change is an *intent*, which is on the disk before the change is made, and a *mark* after it:
//! done, or failed. An intent without a mark shows that flashsift or the machine stopped in
//! between. A later line closes a change when it is undone. Lines are only ever appended.

use crate::own_files;
use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    fmt::Debug,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// Path of the machine's journal of read-ahead.
pub const JOURNAL_PATH: &str = "/var/lib/flashsift/host-journal.jsonl";

const SCHEMA: u32 = 1;
/// A journal of this size has millions of changes, or is another file.
const BYTES_MAX: u64 = 64 << 20;

/// A change of one value of this machine: where it is, the value before and the one to write.
pub trait Plan: Clone + Debug + Eq + Serialize + DeserializeOwned {
    /// A value.
    type Value: Clone + Debug + Eq;
    /// The value that the machine kept, as the journal has it.
    type Kept: Clone + Debug + Eq + Serialize + DeserializeOwned + From<Self::Value>;

    /// Names the value: changes of one value are undone together.
    fn place(&self) -> String;
    /// The value before.
    fn old(&self) -> Self::Value;
    /// The value to write.
    fn wanted(&self) -> Self::Value;
    /// The value that was kept.
    fn kept(kept: &Self::Kept) -> Self::Value;
    /// Returns the change of the same value from `present` to `to`.
    fn back(&self, present: Self::Value, to: Self::Value) -> Self;
    /// Whether the value is there after a restart of the machine.
    fn outlives_restart(&self) -> bool {
        false
    }
    /// Whether it is undone after the others, of which the newest is undone first. Of those that
    /// come last, the oldest does.
    fn undone_last(&self) -> bool {
        false
    }
}

/// A change as it is intended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Intent<P: Plan> {
    /// Number of the change in the journal, from 1.
    pub id: u64,
    /// Time since 1970 (UTC), µs.
    pub at_us: u64,
    /// The start of the machine in which it was made (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// The value, before and after.
    #[serde(flatten)]
    pub plan: P,
    /// Changes that this one undoes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undoes: Vec<u64>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case", bound = "")]
pub enum JournalEntry<P: Plan> {
    /// The change will be made now.
    Intent(Intent<P>),
    /// The change was made.
    Done {
        /// Number of the change.
        id: u64,
        /// The value that the machine kept.
        #[serde(flatten)]
        kept: P::Kept,
    },
    /// The change was refused, or it had no effect and was taken back.
    Failed {
        /// Number of the change.
        id: u64,
        /// The error.
        why: String,
    },
    /// Nothing is left to undo.
    Closed {
        /// Number of the change.
        id: u64,
        /// The reason.
        why: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Line<P: Plan> {
    schema: u32,
    #[serde(flatten)]
    entry: JournalEntry<P>,
}

/// A change that is neither undone nor closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenChange<P: Plan> {
    /// The intent.
    pub intent: Intent<P>,
    /// The value that the machine kept; `None`: there is no mark.
    pub kept: Option<P::Value>,
}

/// Reasons for which the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file could not be used.
    #[error("{path}: {error}")]
    At {
        /// Path of the journal.
        path: String,
        /// The error of the system.
        error: io::Error,
    },
    /// Another user can change it.
    #[error("{0} is not used: it belongs to another user, or others may write to it")]
    NotOurs(String),
    /// A line cannot be read.
    #[error("{path}, line {line}: not a line of this journal ({why})")]
    Malformed {
        /// Path of the journal.
        path: String,
        /// Number of the line, from 1.
        line: usize,
        /// The error of the parser.
        why: String,
    },
}

/// The content of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalContent<P: Plan> {
    /// Changes that are neither undone nor closed, oldest first. Unfinished undos are among them.
    pub open: Vec<OpenChange<P>>,
    /// The last line is incomplete: flashsift or the machine stopped while it was written.
    pub torn: bool,
    last_id: u64,
}

impl<P: Plan> Default for JournalContent<P> {
    fn default() -> Self {
        Self { open: Vec::new(), torn: false, last_id: 0 }
    }
}

/// An open journal, locked against other flashsifts until it is dropped.
#[derive(Debug)]
pub struct Journal<P: Plan> {
    path: PathBuf,
    file: File,
    content: JournalContent<P>,
}

impl<P: Plan> Journal<P> {
    /// Opens the journal for changes, and creates it with its folder if it does not exist. All
    /// users may read it, as `tune` reports open changes to all.
    ///
    /// # Errors
    ///
    /// It cannot be opened or read, or another user can change it.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let at = at(path);
        if let Some(folder) = path.parent()
            && !folder.exists()
        {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(at)?;
        }
        own_files::refuse_shared(folder_of(path)).map_err(at)?;
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        let file =
            options.read(true).append(true).create(true).mode(0o644).open(path).map_err(at)?;
        if is_new {
            // Otherwise a power cut could lose the name of a synced file.
            File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(at)?;
        }
        flock(&file, FlockOperation::LockExclusive).map_err(|error| at(error.into()))?;
        let content = read(path, &file)?;
        Ok(Self { path: path.to_owned(), file, content })
    }

    /// Reads a journal without changing it; one that does not exist has no changes.
    ///
    /// # Errors
    ///
    /// It cannot be opened or read, or another user can change it.
    pub fn look(path: &Path) -> Result<JournalContent<P>, JournalError> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            other => other.map_err(at(path))?,
        };
        own_files::refuse_shared(folder_of(path)).map_err(at(path))?;
        flock(&file, FlockOperation::LockShared).map_err(|error| at(path)(error.into()))?;
        read(path, &file)
    }

    /// Returns the content, with the lines that were appended since it was opened.
    pub fn content(&self) -> &JournalContent<P> {
        &self.content
    }

    /// Returns the number of the next change.
    pub fn next_id(&self) -> u64 {
        self.content.last_id + 1
    }

    /// Appends a line; it is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// The line cannot be written or synced.
    pub fn append(&mut self, entry: JournalEntry<P>) -> Result<(), JournalError> {
        let at = at(&self.path);
        let mut text = Vec::new();
        if std::mem::take(&mut self.content.torn) {
            text.push(b'\n');
        }
        serde_json::to_writer(&mut text, &Line { schema: SCHEMA, entry: entry.clone() })
            .map_err(|error| at(error.into()))?;
        text.push(b'\n');
        self.file.write_all(&text).and_then(|()| self.file.sync_all()).map_err(at)?;
        self.content.add(entry);
        Ok(())
    }
}

impl<P: Plan> JournalContent<P> {
    fn add(&mut self, entry: JournalEntry<P>) {
        match entry {
            JournalEntry::Intent(intent) => {
                self.last_id = self.last_id.max(intent.id);
                self.open.push(OpenChange { intent, kept: None });
            }
            JournalEntry::Done { id, kept } => {
                let Some(at) = self.open.iter().position(|change| change.intent.id == id) else {
                    return;
                };
                let undoes = self.open[at].intent.undoes.clone();
                if undoes.is_empty() {
                    self.open[at].kept = Some(P::kept(&kept));
                } else {
                    // Nothing is left of them, nor of the undo.
                    self.open.retain(|c| c.intent.id != id && !undoes.contains(&c.intent.id));
                }
            }
            JournalEntry::Failed { id, .. } | JournalEntry::Closed { id, .. } => {
                self.open.retain(|change| change.intent.id != id);
            }
        }
    }

    /// Returns the open changes of each value, oldest first.
    pub fn by_place(&self) -> BTreeMap<String, Vec<&OpenChange<P>>> {
        let mut all: BTreeMap<String, Vec<&OpenChange<P>>> = BTreeMap::new();
        for change in &self.open {
            all.entry(change.intent.plan.place()).or_default().push(change);
        }
        all
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> JournalError + Copy + '_ {
    move |error| JournalError::At { path: path.display().to_string(), error }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn read<P: Plan>(path: &Path, mut file: &File) -> Result<JournalContent<P>, JournalError> {
    let at = at(path);
    let meta = file.metadata().map_err(at)?;
    // It says which values root writes.
    let is_ours = meta.uid() == geteuid().as_raw() || meta.uid() == 0;
    if !is_ours || meta.mode() & 0o022 != 0 || !meta.is_file() {
        return Err(JournalError::NotOurs(path.display().to_string()));
    }
    if meta.len() > BYTES_MAX {
        return Err(at(io::Error::other("too large for a journal")));
    }
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).map_err(at)?;
    let mut content = JournalContent::default();
    let whole = text.ends_with('\n');
    let lines = text.lines().count();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let parsed: Result<Line<P>, _> = serde_json::from_str(line);
        match parsed {
            Ok(Line { schema: SCHEMA, entry }) => content.add(entry),
            // A line that a crash cut short; more lines may follow it.
            Err(error) if error.is_eof() => content.torn |= n + 1 == lines && !whole,
            other => {
                let why = match other {
                    Ok(line) => format!("its schema is {}", line.schema),
                    Err(error) => error.to_string(),
                };
                let path = path.display().to_string();
                return Err(JournalError::Malformed { path, line: n + 1, why });
            }
        }
    }
    // A whole line may lack only its newline.
    content.torn |= !text.is_empty() && !whole;
    Ok(content)
}

/// The time since 1970 (UTC), µs.
pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readahead::{Identity, KeptKib, MaximumChange};

    type Journal = super::Journal<MaximumChange>;
    type Content = JournalContent<MaximumChange>;

    fn done(id: u64, kept_kib: u64) -> JournalEntry<MaximumChange> {
        JournalEntry::Done { id, kept: KeptKib { kept_kib } }
    }

    fn intent(id: u64, bdi: &str, undoes: &[u64]) -> JournalEntry<MaximumChange> {
        JournalEntry::Intent(Intent {
            id,
            at_us: 1,
            boot_id: "b".into(),
            plan: MaximumChange {
                bdi: bdi.into(),
                device: Identity::default(),
                old_kib: 128,
                new_kib: 64,
            },
            undoes: undoes.to_vec(),
        })
    }

    fn ids(content: &Content) -> Vec<(u64, Option<u64>)> {
        content.open.iter().map(|change| (change.intent.id, change.kept)).collect()
    }

    #[test]
    fn an_intent_stays_open_until_it_is_undone_or_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/journal.jsonl");
        assert_eq!(Journal::look(&path).unwrap(), Content::default());
        let mut journal = Journal::open(&path).unwrap();
        journal.append(intent(1, "8:0", &[])).unwrap();
        journal.append(done(1, 64)).unwrap();
        journal.append(intent(2, "7:0", &[])).unwrap();
        journal.append(intent(3, "8:0", &[])).unwrap();
        journal.append(JournalEntry::Failed { id: 3, why: "no".into() }).unwrap();
        assert_eq!(ids(journal.content()), [(1, Some(64)), (2, None)]);
        journal.append(intent(4, "8:0", &[1])).unwrap();
        assert_eq!(ids(journal.content()), [(1, Some(64)), (2, None), (4, None)]);
        journal.append(done(4, 128)).unwrap();
        assert_eq!((ids(journal.content()), journal.next_id()), (vec![(2, None)], 5));
        drop(journal);
        assert_eq!(ids(&Journal::look(&path).unwrap()), [(2, None)]);
        Journal::open(&path)
            .unwrap()
            .append(JournalEntry::Closed { id: 2, why: "gone".into() })
            .unwrap();
        assert_eq!(ids(&Journal::look(&path).unwrap()), []);
    }

    // Promises: Tune 3.
    #[test]
    fn a_line_that_a_crash_cut_short_loses_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let mut journal = Journal::open(&path).unwrap();
        journal.append(intent(1, "8:0", &[])).unwrap();
        let whole = fs::read(&path).unwrap();
        journal.append(done(1, 64)).unwrap();
        let both = fs::read(&path).unwrap();
        drop(journal);
        // The last byte is the newline, without which the line is still whole.
        for len in whole.len()..both.len() {
            fs::write(&path, &both[..len]).unwrap();
            let mut journal = Journal::open(&path).unwrap();
            let is_whole = len + 1 == both.len();
            assert_eq!(ids(journal.content()), [(1, is_whole.then_some(64))], "{len}");
            assert_eq!(journal.content().torn, len > whole.len());
            journal.append(intent(2, "7:0", &[])).unwrap();
            drop(journal);
            let (first, second) = ((1, is_whole.then_some(64)), (2, None));
            assert_eq!(ids(&Journal::look(&path).unwrap()), [first, second], "{len}");
        }
    }

    // Promises: Mount 79, Tune 5.
    #[test]
    fn a_journal_that_others_could_have_written_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::NotOurs(_))));
        assert!(matches!(Journal::look(&path), Err(JournalError::NotOurs(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let folder_mode = |mode| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        };
        folder_mode(0o777);
        for refused in [Journal::open(&path).map(drop), Journal::look(&path).map(drop)] {
            let says = refused.unwrap_err().to_string();
            assert!(says.contains("other users may write to it"), "{says}");
        }
        folder_mode(0o700);
        fs::write(&path, "{\"schema\":1,\"entry\":\"other\"}\n").unwrap();
        assert!(matches!(Journal::look(&path), Err(JournalError::Malformed { line: 1, .. })));
        fs::write(&path, "{\"schema\":9,\"entry\":\"closed\",\"id\":1,\"why\":\"\"}\n").unwrap();
        assert!(Journal::look(&path).unwrap_err().to_string().contains("schema is 9"));
    }
}
