//! Settings of the whole machine or of a device, changed for one pass. A helper process writes the
//! old values back when its input ends: at the end of the pass, and also if this process is killed.
//! A restart of the machine forgets them anyway.

use crate::Error;
use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// Waits for the end of its input, then restores each value that is still ours.
const RESTORE: &str = r#"trap '' INT TERM HUP
cat >/dev/null
exec 3>&1 >/dev/null
failed=0
while [ $# -ge 3 ]; do
  if [ "$(cat "$1")" = "$3" ]; then printf %s "$2" >"$1" || failed=1; fi
  shift 3
done
exit $failed"#;

/// Changed settings, restored when it is dropped.
#[derive(Debug)]
pub(super) struct Changed(Child);

impl Changed {
    /// Changes settings: files below `/proc/sys` or `/sys`, and values. The helper holds `lock`,
    /// too, so that no other twin begins before it has restored them.
    pub(super) fn new(settings: &[(PathBuf, u64)], lock: &File) -> Result<Option<Self>, Error> {
        if settings.is_empty() {
            return Ok(None);
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", RESTORE, "flashsift-restore"]);
        for (path, value) in settings {
            let old =
                fs::read_to_string(path).map_err(|error| Error::at(path, "reading", error))?;
            command.arg(path).arg(old.trim()).arg(value.to_string());
        }
        let lock = lock.try_clone().map_err(|error| Error::system("the lock of twins", error))?;
        command.stdin(Stdio::piped()).stdout(lock);
        // A Ctrl-C of the terminal is for the group of this process only.
        let helper = command.process_group(0).spawn().map_err(|error| {
            Error::system("/bin/sh, which restores the machine's settings", error)
        })?;
        let this = Self(helper);
        for (path, value) in settings {
            fs::write(path, value.to_string()).map_err(|error| match error.raw_os_error() {
                Some(libc::EINVAL) if path.ends_with("bdi/min_ratio") => Error::Refused(format!(
                    "{}: the kernel keeps {value} % of dirty pages for no further device: wait \
                     until other twins have ended, or prove fewer settings at once",
                    path.display()
                )),
                _ => Error::at(path, "changing", error),
            })?;
            let kept =
                fs::read_to_string(path).map_err(|error| Error::at(path, "reading", error))?;
            if kept.trim() != value.to_string() {
                return Err(Error::Refused(format!(
                    "{}: the kernel keeps {} instead of {value}",
                    path.display(),
                    kept.trim()
                )));
            }
        }
        Ok(Some(this))
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its messages have reached standard error.
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_restored_unless_another_process_changed_them() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        paths.iter().for_each(|path| fs::write(path, "3000\n").unwrap());
        let settings = paths.clone().map(|path| (path, 500));
        let changed = Changed::new(&settings, &tempfile::tempfile().unwrap()).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "500");
        fs::write(&paths[1], "700").unwrap();
        drop(changed);
        let now = paths.map(|path| fs::read_to_string(path).unwrap());
        assert_eq!(now, ["3000", "700"]);
    }
}
