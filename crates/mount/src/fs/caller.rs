//! Performing a request with the user and group of the calling process.

use super::types::Caller;
use parking_lot::Mutex;
use rustix::fs::Mode;
use rustix::io::Result;
use rustix::process::{Gid, Uid, geteuid, umask};
use rustix::thread::{
    CapabilitySet, UnshareFlags, capabilities, set_capabilities, set_thread_res_gid,
    set_thread_res_uid, unshare_unsafe,
};
use std::fs;

/// The user and group that a request is performed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    pub(crate) const ROOT: User = User { uid: 0, gid: 0 };
    /// A user without rights of its own.
    pub(crate) const NOBODY: User = User { uid: 65_534, gid: 65_534 };

    /// Whether this user may use the space that file systems keep for root.
    pub(crate) fn may_use_reserved(self) -> bool {
        self.uid == 0
    }
}

/// Runs `make` with the caller's user and group, as [`as_user`] does, and without a umask.
pub(crate) fn as_caller<T>(caller: &Caller, make: impl FnOnce() -> Result<T>) -> Result<T> {
    as_user(User { uid: caller.uid, gid: caller.gid }, || with_exact_mode(make))
}

thread_local! {
    /// Whether this thread has a umask of its own.
    static HAS_OWN_UMASK: bool = leave_shared_umask();
}

/// For threads that cannot have a umask of their own.
static SHARED_UMASK: Mutex<()> = Mutex::new(());

/// Runs `make`, which creates a file with the mode that a process has asked for: its own
/// umask is in the mode, and no other counts. The umask of the daemon keeps the files private
/// that it creates for itself in other threads.
pub(crate) fn with_exact_mode<T>(make: impl FnOnce() -> T) -> T {
    let _alone = (!HAS_OWN_UMASK.with(|own| *own)).then(|| SHARED_UMASK.lock());
    let _back = UmaskBack(umask(Mode::empty()));
    make()
}

/// Threads share umask, working directory and root until one asks for its own.
#[expect(unsafe_code, reason = "rustix marks every unshare as unsafe")]
fn leave_shared_umask() -> bool {
    // SAFETY: descriptors, the only thing that would be unsafe, stay shared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }.is_ok()
}

/// Restores the umask when dropped, also if `make` panics.
struct UmaskBack(Mode);

impl Drop for UmaskBack {
    fn drop(&mut self) {
        umask(self.0);
    }
}

/// Runs `make` with this user and group, so that a new file belongs to them, as quotas and setgid
/// directories require, and so that new blocks come out of their quota and not out of the space
/// that ext4 keeps for root. The kernel has already checked the permission, with supplementary
/// groups that we do not know: therefore this thread keeps its capabilities, without the one that
/// exempts from quotas and reserves. Other threads are not affected.
pub(crate) fn as_user<T>(user: User, make: impl FnOnce() -> Result<T>) -> Result<T> {
    if !geteuid().is_root() || user == User::ROOT {
        return make();
    }
    let _back = RestoreRoot;
    set_thread_res_gid(None, Gid::from_raw(user.gid), None)?;
    set_thread_res_uid(None, Uid::from_raw(user.uid), None)?;
    let mut sets = capabilities(None)?;
    sets.effective = sets.permitted;
    if !user.may_use_reserved() {
        sets.effective -= CapabilitySet::SYS_RESOURCE;
    }
    set_capabilities(None, sets)?;
    make()
}

/// Whether the setgid bit of a file of this group stays when the caller sets an access list: if the
/// caller has the capability to keep it or is in the group. Neither can be determined for thread 0,
/// which belongs to a pid namespace that we do not see; then the bit goes.
pub(crate) fn keeps_setgid(caller: &Caller, group: u32) -> bool {
    caller.gid == group
        || fs::read_to_string(format!("/proc/{}/status", caller.tid))
            .is_ok_and(|status| may_keep_setgid(&status, group, is_of_our_users(caller.tid)))
}

/// Capabilities mean something only among the users that they were given for.
fn is_of_our_users(pid: u32) -> bool {
    let users = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    users(&pid.to_string()).is_some_and(|theirs| users("self") == Some(theirs))
}

fn may_keep_setgid(status: &str, group: u32, capable_here: bool) -> bool {
    const FSETID: u64 = 1 << 4;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let capabilities = field("CapEff:").and_then(|all| u64::from_str_radix(all.trim(), 16).ok());
    let mut groups = field("Groups:").unwrap_or_default().split_whitespace();
    (capable_here && capabilities.is_some_and(|all| all & FSETID != 0))
        || groups.any(|one| one.parse() == Ok(group))
}

/// Restores root when dropped, also if `make` panics.
struct RestoreRoot;

impl Drop for RestoreRoot {
    fn drop(&mut self) {
        let user = set_thread_res_uid(None, Uid::ROOT, None);
        let group = set_thread_res_gid(None, Gid::ROOT, None);
        if user.is_err() || group.is_err() {
            // Every further operation of this thread would run as the wrong user.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_capabilities_decide_which_caller_keeps_setgid() {
        let status = |groups: &str, capabilities: &str| {
            format!(
                "Name:\tsh\nGroups:\t{groups} \nCapPrm:\t000001ffffffffff\n\
                 CapEff:\t{capabilities}\n"
            )
        };
        let none = "0000000000000000";
        assert!(may_keep_setgid(&status("4 24", none), 24, true));
        assert!(!may_keep_setgid(&status("4 24", none), 2, true));
        assert!(may_keep_setgid(&status("", "0000000000000010"), 2, true));
        assert!(!may_keep_setgid(&status("", "0000000000000010"), 2, false), "root of other users");
        assert!(!may_keep_setgid(&status("", "ffffffffffffffef"), 2, true));
        assert!(!may_keep_setgid("", 2, true));
        assert!(
            !keeps_setgid(&Caller { uid: 7, gid: 7, tid: 0, umask: 0 }, 8),
            "a process that does not exist"
        );
    }
}
