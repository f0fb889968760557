//! Directories without which a machine does not start, or does not know what is installed.

use std::path::Path;

/// Directories of the system by the Filesystem Hierarchy Standard 3.0 (chapters 3, 4 and 6), and
/// those in which package managers and systemd keep what they know.
const NEEDED: [&str; 22] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/run/systemd",
    "/run/udev",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib/dpkg",
    "/var/lib/apt",
    "/var/lib/apk",
    "/var/lib/flatpak",
    "/var/lib/pacman",
    "/var/lib/rpm",
    "/var/lib/snapd",
    "/var/lib/systemd",
];
/// A tmpfs for all programs, in a directory of the kernel.
const SHARED_MEMORY: &str = "/dev/shm";

/// The directory of the system that this directory is, lies in, or contains. The path must be
/// absolute and free of links and dots.
pub(super) fn related(place: &Path) -> Option<&'static Path> {
    let mut needed = NEEDED.iter().map(Path::new);
    let related = |needed: &&Path| place.starts_with(needed) || needed.starts_with(place);
    if place.starts_with(SHARED_MEMORY) { None } else { needed.find(related) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promises: Mount 42.
    #[test]
    fn directories_of_the_system_are_known() {
        for (place, needed) in [
            ("/", "/bin"),
            ("/etc", "/etc"),
            ("/etc/ssl/private", "/etc"),
            ("/usr/share/icons", "/usr"),
            ("/lib64", "/lib64"),
            ("/lib/modules", "/lib"),
            ("/var", "/var/lib/dpkg"),
            ("/var/lib", "/var/lib/dpkg"),
            ("/var/lib/dpkg", "/var/lib/dpkg"),
            ("/run", "/run/systemd"),
            ("/dev", "/dev"),
        ] {
            assert_eq!(related(Path::new(place)), Some(Path::new(needed)), "{place}");
        }
        for place in [
            "/home",
            "/root/.cache",
            "/srv/app",
            "/var/cache/app",
            "/var/lib/app",
            "/var/log",
            "/run/media/user/card",
            "/dev/shm/app",
            "/binary",
            "/usrlocal",
            "/library",
        ] {
            assert_eq!(related(Path::new(place)), None, "{place}");
        }
    }
}
