//! Doing what somebody else asked for, as that user.

use crate::Caller;
use rustix::io::Result;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{capabilities, set_capabilities, set_thread_res_gid, set_thread_res_uid};

/// What `make` makes belongs to the caller, as quotas and setgid directories will have it. The kernel above has checked that the
/// caller may, with groups that we do not know: therefore capabilities stay in force. Only of this thread.
pub(crate) fn as_caller<T>(caller: &Caller, make: impl FnOnce() -> Result<T>) -> Result<T> {
    if !geteuid().is_root() || (caller.uid, caller.gid) == (0, 0) {
        return make();
    }
    let _back = Back;
    set_thread_res_gid(None, Gid::from_raw(caller.gid), None)?;
    set_thread_res_uid(None, Uid::from_raw(caller.uid), None)?;
    let mut sets = capabilities(None)?;
    sets.effective = sets.permitted;
    set_capabilities(None, sets)?;
    make()
}

/// Root again, however `make` ends.
struct Back;

impl Drop for Back {
    fn drop(&mut self) {
        let user = set_thread_res_uid(None, Uid::ROOT, None);
        let group = set_thread_res_gid(None, Gid::ROOT, None);
        if user.is_err() || group.is_err() {
            // Whatever this thread did next would be done as somebody else.
            std::process::abort();
        }
    }
}
