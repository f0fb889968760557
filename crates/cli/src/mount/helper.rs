//! The interface for `mount -t fuse.flashsift` and /etc/fstab: translates `mount.fuse.flashsift
//! BACKING MOUNTPOINT [-sfnv] [-o OPTIONS]` into our own command line.

use flashsift_mount::attach::undo::Allows;
use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Names of this program as a helper of mount(8).
const NAMES: [&str; 2] = ["mount.fuse.flashsift", "mount.flashsift"];

/// Options with a value, as in fstab and as on our command line.
const VALUES: [(&str, &str); 17] = [
    ("lose_at_most", "--lose-at-most"),
    ("settle_after", "--settle-after"),
    ("budget", "--budget"),
    ("write_through", "--write-through"),
    ("settled", "--write-through"),
    ("delay_sync", "--delay-sync"),
    ("sift", "--sift"),
    ("sift_mode", "--sift-mode"),
    ("sift_budget", "--sift-budget"),
    ("fetch_again", "--fetch-again"),
    ("profile", "--profile"),
    ("drop", "--drop"),
    ("pin", "--pin"),
    ("metrics", "--metrics"),
    ("config", "--config"),
    ("record", "--record"),
    ("even_on", "--even-on"),
];
/// Options without a value.
const FLAGS: [(&str, &str); 5] = [
    ("no_passthrough", "--no-passthrough"),
    ("no_xattr", "--no-xattr"),
    ("even_if_used", "--even-if-used"),
    ("force", "--force"),
    ("record_meaning", "--record-meaning"),
];
/// Options that the kernel knows.
const KERNEL: [&str; 11] = [
    "rw",
    "ro",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "allow_other",
];
/// Options for mount(8) or systemd, and options that have no effect here.
const OTHERS: [&str; 18] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "async",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "diratime",
];

/// Options of an existing mount that mount(8) copies from the kernel.
const OF_MOUNTED: [&str; 4] = ["user_id", "group_id", "default_permissions", "remount"];

/// Whether mount(8) runs this process.
pub(crate) fn is_called(argv0: &OsStr) -> bool {
    let name = Path::new(argv0).file_name();
    NAMES.iter().any(|helper| name == Some(OsStr::new(helper)))
}

/// A request of mount(8).
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Arguments of our own command line, without the program's name.
    Mount(Vec<OsString>),
    /// `-o remount`: changes the permissions of an existing mount.
    Remount {
        /// The mounted directory.
        mountpoint: PathBuf,
        /// Permissions of the mount from now on.
        allows: Allows,
        /// Requested options that cannot be changed while it is mounted.
        stays: Vec<String>,
    },
    /// `-f`: a dry run, which does nothing here.
    Fake,
}

/// Translates the arguments, or returns the error. `args` exclude the program's name.
pub(crate) fn translate(args: impl Iterator<Item = OsString>) -> Result<Call, String> {
    let mut args = args.peekable();
    let (mut places, mut options) = (Vec::new(), Vec::new());
    let (mut sloppy, mut fake) = (false, false);
    while let Some(arg) = args.next() {
        match arg.as_bytes() {
            b"-o" => {
                let more = args.next().ok_or("-o takes options, separated by commas")?;
                let more =
                    more.as_bytes().split(|&byte| byte == b',').filter(|option| !option.is_empty());
                options.extend(more.map(<[u8]>::to_vec));
            }
            // The type, which follows from our name.
            b"-t" => drop(args.next()),
            b"-N" => {
                return Err(
                    "mounting into another namespace is not for flashsift: enter it first".into()
                );
            }
            [b'-', flags @ ..] if !flags.is_empty() => {
                for flag in flags {
                    match flag {
                        b's' => sloppy = true,
                        b'f' => fake = true,
                        b'n' | b'v' => {}
                        b'r' => options.push(b"ro".to_vec()),
                        b'w' => options.push(b"rw".to_vec()),
                        _ => return Err(format!("unknown flag -{}", char::from(*flag))),
                    }
                }
            }
            _ => places.push(arg),
        }
    }
    let mut words = Vec::new();
    let remount = options.iter().any(|option| option == b"remount");
    let known = |option: &Vec<u8>| remount && OF_MOUNTED.contains(&&*named(option).0);
    for option in options.iter().filter(|option| !known(option)) {
        match translated(option, &mut words) {
            Err(_) if sloppy => {}
            translated => translated?,
        }
    }
    let [backing, mountpoint] =
        places.try_into().map_err(|_| "BACKING and MOUNTPOINT are needed, and no more")?;
    if fake {
        return Ok(Call::Fake);
    }
    if remount {
        let (allows, stays) = remounted(&options);
        return Ok(Call::Remount { mountpoint: mountpoint.into(), allows, stays });
    }
    let verb = [OsString::from("mount")].into_iter();
    let places = [OsString::from("--"), backing, mountpoint];
    Ok(Call::Mount(verb.chain(words).chain(places).collect()))
}

/// Splits `name=value` or `name`.
fn named(option: &[u8]) -> (Cow<'_, str>, Option<&[u8]>) {
    let at = option.iter().position(|&byte| byte == b'=');
    let (name, value) = at.map_or((option, None), |at| (&option[..at], Some(&option[at + 1..])));
    (String::from_utf8_lossy(name), value)
}

/// Splits the options of a remount: flags of the kernel can change, and the last one counts; our
/// own options cannot.
fn remounted(options: &[Vec<u8>]) -> (Allows, Vec<String>) {
    let (mut allows, mut stays) = (Allows::default(), Vec::new());
    for option in options {
        let (name, _) = named(option);
        match &*name {
            "rw" | "ro" => allows.writes = Some(name == "rw"),
            "suid" | "nosuid" => allows.setuid = Some(name == "suid"),
            "dev" | "nodev" => allows.devices = Some(name == "dev"),
            "exec" | "noexec" => allows.programs = Some(name == "exec"),
            "atime" | "noatime" => stays.push(name.into_owned()),
            _ if VALUES.iter().chain(&FLAGS).any(|(ours, _)| *ours == name) => {
                stays.push(String::from_utf8_lossy(option).into_owned());
            }
            _ => {}
        }
    }
    (allows, stays)
}

fn translated(option: &[u8], words: &mut Vec<OsString>) -> Result<(), String> {
    let (name, value) = named(option);
    let given = |word: &str, value: &[u8]| {
        let mut joined = OsString::from(word);
        joined.push("=");
        joined.push(OsStr::from_bytes(value));
        joined
    };
    let in_list = |list: &[(&str, &'static str)]| {
        list.iter().find(|(ours, _)| *ours == name).map(|(_, word)| *word)
    };
    if let (Some(word), Some(value)) = (in_list(&VALUES), value) {
        words.push(given(word, value));
    } else if let (Some(word), None) = (in_list(&FLAGS), value) {
        words.push(word.into());
    } else if KERNEL.contains(&&*name) && value.is_none() {
        words.push(given("--option", option));
    } else if !(OTHERS.contains(&&*name)
        || name.starts_with("x-")
        || name.starts_with("X-")
        || name == "comment")
    {
        return Err(match &*name {
            _ if in_list(&VALUES).is_some() => format!("the option {name} takes a value: {name}=…"),
            _ => format!("unknown option {}", String::from_utf8_lossy(option)),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(args: &[&str]) -> Result<Call, String> {
        translate(args.iter().map(OsString::from))
    }

    fn translated_words(args: &[&str]) -> Vec<String> {
        match call(args) {
            Ok(Call::Mount(words)) => {
                words.into_iter().map(|word| word.into_string().unwrap()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    // Promises: Mount 54.
    #[test]
    fn our_names_are_known() {
        assert!(is_called(OsStr::new("/sbin/mount.fuse.flashsift")));
        assert!(is_called(OsStr::new("mount.flashsift")));
        assert!(!is_called(OsStr::new("/usr/bin/flashsift")));
        assert!(!is_called(OsStr::new("/")));
    }

    // Promises: Mount 54.
    #[test]
    fn options_become_words_that_the_command_line_takes() {
        let ours = translated_words(&[
            "/srv/a",
            "/mnt/b",
            "-sn",
            "-o",
            "rw,nosuid,settle_after=60s,,budget=256M,settled=*.db,settled=a=b",
            "-o",
            "x-systemd.automount,no_passthrough,nofail,allow_other",
            "-t",
            "fuse.flashsift",
        ]);
        let expected = [
            "mount",
            "--option=rw",
            "--option=nosuid",
            "--settle-after=60s",
            "--budget=256M",
            "--write-through=*.db",
            "--write-through=a=b",
            "--no-passthrough",
            "--option=allow_other",
            "--",
            "/srv/a",
            "/mnt/b",
        ];
        assert_eq!(ours, expected);
        assert_eq!(
            translated_words(&["-a-directory-", "b"].map(|name| if name == "b" {
                name
            } else {
                "./-a"
            }))
            .len(),
            4
        );
    }

    // Promises: Mount 54.
    #[test]
    fn impossible_requests_of_mount_are_errors() {
        let says = |args: &[&str]| call(args).unwrap_err();
        assert!(says(&["a"]).contains("BACKING and MOUNTPOINT"));
        assert!(says(&["a", "b", "c"]).contains("and no more"));
        assert!(says(&["a", "b", "-o", "budgte=1M"]).contains("unknown option budgte=1M"));
        assert!(says(&["a", "b", "-o", "budget"]).contains("takes a value"));
        assert!(says(&["a", "b", "-o"]).contains("-o takes"));
        assert!(says(&["a", "b", "-z"]).contains("unknown flag -z"));
        assert_eq!(
            translated_words(&["a", "b", "-s", "-o", "budgte=1M"]),
            ["mount", "--", "a", "b"],
            "sloppy"
        );
        assert_eq!(call(&["a", "b", "-f"]), Ok(Call::Fake));
        assert!(
            says(&["a", "b", "-o", "user_id=0"]).contains("unknown option user_id=0"),
            "only of what is mounted"
        );
    }

    /// mount(8) puts the kernel's options and those of fstab before the requested ones, and calls
    /// us with all of them.
    // Promises: Mount 55.
    #[test]
    fn a_remount_changes_the_options_of_the_kernel() {
        let remount = |options: &str| match call(&["/srv/a", "/mnt/b", "-o", options]) {
            Ok(Call::Remount { mountpoint, allows, stays }) => {
                assert_eq!(mountpoint, Path::new("/mnt/b"));
                (allows, stays)
            }
            other => panic!("{other:?}"),
        };
        let (allows, stays) = remount(
            "ro,nosuid,nodev,relatime,remount,user_id=0,group_id=0,default_permissions,allow_other",
        );
        let expected = Allows {
            writes: Some(false),
            setuid: Some(false),
            devices: Some(false),
            programs: None,
        };
        assert_eq!((allows, stays), (expected, vec![]));
        let (allows, stays) =
            remount("ro,noexec,remount,rw,noatime,settle_after=5m,no_passthrough,nofail");
        assert_eq!(
            allows,
            Allows { writes: Some(true), programs: Some(false), ..Allows::default() }
        );
        assert_eq!(stays, ["noatime", "settle_after=5m", "no_passthrough"]);
        assert!(call(&["a", "b", "-o", "remount,budgte=1M"]).is_err());
        assert_eq!(translated_words(&["a", "b", "-r"])[1], "--option=ro");
    }
}
