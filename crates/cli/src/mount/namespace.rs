//! A tmpfs for a plain user. Only who is root in a user namespace may have one, and whoever is cannot ask fusermount3 any more: so
//! another process goes there (by util-linux's `unshare`), makes it, hands it over and ends. It has no place in any namespace and
//! lives as long as we hold it.

use crate::size;
use anyhow::{Context, bail};
use flashsift_mount::Store;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
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

/// For ourselves: hand a tmpfs to who started this
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Its size, bytes
    bytes: u64,

    /// Reading from it leaves no time
    #[arg(long)]
    noatime: bool,
}

/// The other process: root in a user namespace, with a socket for standard output.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let tmpfs = Store::new_tmpfs(args.bytes, args.noatime).context("a tmpfs")?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let descriptors = [tmpfs.as_fd()];
    message.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(io::stdout(), &[IoSlice::new(b".")], &mut message, SendFlags::empty())
        .context("handing it over")?;
    Ok(())
}

/// A tmpfs of so many bytes.
pub(super) fn tmpfs(bytes: u64, noatime: bool) -> anyhow::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut other = Command::new("unshare")
        .args(["--user", "--map-current-user", "--keep-caps", "--mount", "--"])
        .arg(std::env::current_exe()?)
        .args(["mount-tmpfs", &bytes.to_string()])
        .args(noatime.then_some("--noatime"))
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(theirs))
        .spawn()
        .context("unshare, of util-linux")?;
    let received = receive(&ours);
    let status = other.wait()?;
    match received? {
        Some(tmpfs) if status.success() => Ok(tmpfs),
        _ => bail!(
            "{} of RAM for new files cannot be had in a user namespace, in which plain users need one (is \
             user.max_user_namespaces 0, or does AppArmor restrict them?); as root it works without",
            size::bytes(bytes)
        ),
    }
}

fn receive(from: &UnixStream) -> anyhow::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    recvmsg(from, &mut [IoSliceMut::new(&mut [0])], &mut message, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = message.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors)
}
