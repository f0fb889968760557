//! The text that this kernel's ftrace prints of known accesses is read. The test runs as root, on
//! an ext4 in a loop device and in a tracing instance, both made for it. Skipped, by name, if one
//! of these is not available.

use flashsift_events::event::{Action, FileId};
use flashsift_testbed::{Disk, FileSystem, or_skip, skip};
use flashsift_traces::{
    events::Kept,
    open::{self, Limits},
    tracepoint::{self, Need},
};
use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

/// The device number of an ext4 as the kernel stores it: major << 20 | minor.
fn dev(disk: &Disk) -> u64 {
    let dev = disk.point().metadata().expect("it is mounted").dev();
    let (major, minor) = (dev >> 8 & 0xfff, dev >> 12 & 0xf_ff00 | dev & 0xff);
    major << 20 | minor
}

/// A tracing instance made for the test.
struct Instance(PathBuf);

impl Instance {
    fn new() -> io::Result<Self> {
        let name = format!("flashsift-test-{}", std::process::id());
        let at = Path::new("/sys/kernel/tracing/instances").join(name);
        fs::create_dir(&at)?;
        let instance = Self(at);
        instance.write("tracing_on", "0")?;
        Ok(instance)
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.0.join(file))?.write_all(text.as_bytes())
    }

    /// Turns on all events that the reader uses and the kernel has, for this device if they name
    /// one.
    fn enable(&self, dev: u64) -> io::Result<()> {
        for spec in tracepoint::ALL.iter().filter(|spec| spec.need != Need::Calls) {
            let event = format!("events/{}/{}", spec.system, spec.name);
            let field = spec.fields.iter().find(|field| ["dev", "s_dev"].contains(field));
            if let Some(field) = field
                && self.0.join(&event).exists()
            {
                self.write(&format!("{event}/filter"), &format!("{field} == {dev}"))?;
                self.write(&format!("{event}/enable"), "1")?;
            }
        }
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        let _ = fs::remove_dir(&self.0);
    }
}

/// The accesses, with files named by their order of appearance.
fn lines_of(text: &[u8]) -> Vec<String> {
    let mut kept = Kept::default();
    let outcome =
        open::read_stream(text, None, None, &mut kept, &Limits::default()).expect("a trace");
    assert_eq!(
        (outcome.format, outcome.late, outcome.skipped.damaged()),
        ("ftrace", 0, 0),
        "{}",
        outcome.skipped
    );
    let mut letters: HashMap<FileId, char> = HashMap::new();
    let mut letter = |file: FileId| {
        let next = char::from(b'A' + letters.len() as u8);
        *letters.entry(file).or_insert(next)
    };
    let line = |event: &flashsift_events::event::Event| {
        Some(match event.action {
            Action::Create(ref create) => {
                // The mode that ext4 prints is from before the umask.
                assert_eq!((create.owner, create.mode), (None, None));
                format!("create {}", letter(create.file))
            }
            Action::Read { file, offset, len, .. } => {
                format!("read {} {offset} {len}", letter(file))
            }
            Action::Write { file, offset, len, .. } => {
                format!("write {} {offset} {len}", letter(file))
            }
            Action::Sync { file, .. } => format!("sync {}", letter(file)),
            Action::Truncate { file, size } => format!("truncate {} {size}", letter(file)),
            Action::Gone { file } => format!("gone {}", letter(file)),
            Action::Process { .. } => return None,
            ref other => format!("{other:?}"),
        })
    };
    kept.events.iter().filter_map(line).collect()
}

// Promises: Traces 19.
#[test]
fn the_text_of_this_kernel_gives_the_accesses_made() -> io::Result<()> {
    let reads = Path::new("/sys/kernel/tracing/events/filemap/mm_filemap_get_pages");
    let Ok(instance) = Instance::new() else {
        skip::<()>("no tracing instance can be made (it takes root and tracefs)");
        return Ok(());
    };
    // With smaller blocks a page may be known in part, and the kernel then reports no read of the
    // blocks before it.
    let ext4 = FileSystem::new("ext4", 64 << 20).with(&["-b", "4096"]);
    // Not in /tmp, which may be a file system in memory.
    let mounted = Disk::below(Path::new("/var/tmp"), &ext4)
        .and_then(|mut disk| disk.mount("ext4", "defaults").map(|()| disk));
    let Some(disk) = or_skip(mounted) else { return Ok(()) };
    if !reads.exists() {
        skip::<()>("this kernel has no mm_filemap_get_pages");
        return Ok(());
    }
    let (fresh, older) = (disk.point().join("fresh"), disk.point().join("older, with a space"));
    fs::write(&older, [1; 9000])?;
    File::open(&older)?.sync_all()?;
    let older = File::open(&older)?;
    let mut page = [0; 4096];
    instance.enable(dev(&disk))?;

    instance.write("tracing_on", "1")?;
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&fresh)?;
    file.write_all_at(&[2; 10_000], 0)?;
    file.sync_all()?;
    file.read_exact_at(&mut page, 4096)?;
    let last = file.read_at(&mut page, 9000)?;
    file.set_len(5000)?;
    let whole = older.read_at(&mut [0; 9000], 0)?;
    drop(file);
    fs::remove_file(&fresh)?;
    instance.write("tracing_on", "0")?;

    assert_eq!((last, whole), (1000, 9000));
    let text = fs::read(instance.0.join("trace"))?;
    assert_eq!(
        lines_of(&text),
        [
            "create A",
            "write A 0 10000",
            "sync A",
            "read A 4096 4096",
            // To the end of the file, which is known because the trace saw the file begin.
            "read A 8192 1808",
            "truncate A 5000",
            // Whole pages, because the trace did not see the file begin.
            "read B 0 12288",
            "gone A",
        ],
        "{}",
        String::from_utf8_lossy(&text)
    );
    Ok(())
}
