//! A tmpfs for a plain user.
//!
//! Only root in a user namespace may make one, and a process that has entered such a namespace
//! cannot use fusermount3 any more. So another process enters it (by util-linux's `unshare`), makes
//! the tmpfs, sends its descriptor and ends. The tmpfs has no place in any namespace and lives as
//! long as the descriptor is open.

use crate::fs::store::Store;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Command, Stdio},
};

/// The hidden command of this program that calls [`send`].
pub const COMMAND: &str = "mount-tmpfs";

/// The reason why there is no tmpfs.
#[derive(Debug, thiserror::Error)]
pub enum TmpfsError {
    /// `unshare` could not be started.
    #[error("unshare, of util-linux")]
    Unshare(#[source] io::Error),
    /// The other process sent none.
    #[error(
        "a tmpfs cannot be had in a user namespace, in which plain users need one (is \
         user.max_user_namespaces 0, or does AppArmor restrict them?); as root it works without"
    )]
    Refused,
    /// Something else failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The other process: makes a tmpfs and sends it through standard output, which is a socket.
///
/// # Errors
///
/// The tmpfs cannot be created, or standard output is not a socket.
pub fn send(bytes: u64, noatime: bool) -> rustix::io::Result<()> {
    let tmpfs = Store::new_tmpfs(bytes, noatime)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let descriptors = [tmpfs.as_fd()];
    message.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(io::stdout(), &[IoSlice::new(b".")], &mut message, SendFlags::empty())?;
    Ok(())
}

/// Receives a tmpfs of this size from another process of this program.
pub(crate) fn receive(bytes: u64, noatime: bool) -> Result<OwnedFd, TmpfsError> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut other = Command::new("unshare")
        .args(["--user", "--map-current-user", "--keep-caps", "--mount", "--"])
        .arg(std::env::current_exe()?)
        .args([COMMAND, &bytes.to_string()])
        .args(noatime.then_some("--noatime"))
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(theirs))
        .spawn()
        .map_err(TmpfsError::Unshare)?;
    let received = receive_from(&ours);
    let status = other.wait()?;
    match received? {
        Some(tmpfs) if status.success() => Ok(tmpfs),
        _ => Err(TmpfsError::Refused),
    }
}

fn receive_from(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut message, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = message.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors)
}
