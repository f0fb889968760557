//! Serves metrics over HTTP, in one thread that neither a slow nor a hostile client can stop.
//!
//! A client gets `PATIENCE` for its request and the answer together, and at most `CLIENTS` are
//! served at a time: another one takes the place of the one that has sent no request for longest.
//! The status of the mount is read at most once in `FRESH`, however often
//! clients ask.

use super::address::Address;
use super::http::{self, REQUEST_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, FileType, Mode, fchmod, lstat, statat, unlink};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::warn;

/// Clients that are served at the same time.
const CLIENTS: usize = 16;
/// Time for a client's request and its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Metrics of this age are given again.
const FRESH: Duration = Duration::from_millis(100);
/// Pause after a failed accept: too many open files, say.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes after the request that a client may send until it has its answer.
const DISCARDED_BYTES: usize = 1 << 20;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// A server of metrics. Its end removes its socket files.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Listener>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    /// The thread ends when this is dropped.
    stop: UnixStream,
    thread: JoinHandle<()>,
}

impl Server {
    /// Listens at these addresses. Clients wait until [`Server::start`].
    ///
    /// # Errors
    ///
    /// An address is in use, or cannot be listened at. The error names it.
    pub fn bind(addresses: &[Address]) -> io::Result<Server> {
        let bound = |address: &Address| {
            let listener = Listener::bind(address);
            listener.map_err(|why| io::Error::new(why.kind(), format!("{address}: {why}")))
        };
        let listeners = addresses.iter().map(bound).collect::<io::Result<_>>()?;
        Ok(Server { listeners, running: None })
    }

    /// Returns the addresses, with the ports that the kernel chose.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners.iter().map(|listener| &listener.address)
    }

    /// Serves what `metrics` returns, until the server is dropped.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(&mut self, metrics: impl FnMut() -> String + Send + 'static) -> io::Result<()> {
        if self.listeners.is_empty() || self.running.is_some() {
            return Ok(());
        }
        let (stop, stopped) = UnixStream::pair()?;
        let sockets = self.listeners.iter().map(|listener| listener.socket.try_clone());
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        let page = Page { metrics: Box::new(metrics), made: None };
        let thread = thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve(stopped.as_fd(), &sockets, page))?;
        self.running = Some(Running { stop, thread });
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(Running { stop, thread }) = self.running.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Listener {
    address: Address,
    socket: OwnedFd,
    _file: Option<SocketFile>,
}

impl Listener {
    fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Unix(path) => {
                let (socket, file) = bind_unix(path)?;
                Ok(Listener { address: address.clone(), socket, _file: Some(file) })
            }
            Address::Loopback(wanted) => {
                let listener = TcpListener::bind(wanted)?;
                listener.set_nonblocking(true)?;
                let address = Address::Loopback(listener.local_addr()?);
                Ok(Listener { address, socket: listener.into(), _file: None })
            }
        }
    }
}

/// A socket in a directory, removed on drop unless another has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours =
            |found: &rustix::fs::Stat| (found.st_dev, found.st_ino) == (self.device, self.inode);
        if lstat(&self.path).as_ref().is_ok_and(ours)
            && let Err(why) = unlink(&self.path)
        {
            warn!("{}: {why}", self.path.display());
        }
    }
}

/// Makes a socket file that only its owner may use. One that no process listens at any more, left
/// by a process that was killed, is replaced.
fn bind_unix(path: &Path) -> io::Result<(OwnedFd, SocketFile)> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets these permissions when it is made, so that no moment is left in between.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let address = SocketAddrUnix::new(path)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(path)?;
            bind(&socket, &address)?;
        }
        bound => bound?,
    }
    let made = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    let file = SocketFile { path: path.to_owned(), device: made.st_dev, inode: made.st_ino };
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((UnixListener::from(socket).into(), file))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let there = |what: &str| io::Error::new(io::ErrorKind::AddrInUse, what.to_owned());
    if FileType::from_raw_mode(lstat(path)?.st_mode) != FileType::Socket {
        return Err(there("the name is taken, and not by a socket"));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(there("another process listens there")),
        Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => Ok(unlink(path)?),
        Err(why) => Err(why),
    }
}

/// The metrics, and when they were made.
struct Page {
    metrics: Box<dyn FnMut() -> String + Send>,
    made: Option<(Instant, String)>,
}

impl Page {
    fn text(&mut self) -> String {
        match &self.made {
            Some((at, text)) if at.elapsed() < FRESH => text.clone(),
            _ => {
                let text = (self.metrics)();
                self.made = Some((Instant::now(), text.clone()));
                text
            }
        }
    }
}

fn serve(stopped: BorrowedFd<'_>, sockets: &[OwnedFd], mut page: Page) {
    let mut clients: Vec<Client> = Vec::with_capacity(CLIENTS);
    let mut accept_after = Instant::now();
    loop {
        let now = Instant::now();
        clients.retain(|client| now < client.until);
        let accepts = accept_after <= now;
        let wake = clients.iter().map(|client| client.until);
        let wake = wake.chain((now < accept_after).then_some(accept_after)).min();
        let timeout = wake.map(|at| timespec(at.saturating_duration_since(now)));
        let waiting = if accepts { sockets } else { &[] };
        let mut fds: Vec<PollFd<'_>> = [PollFd::from_borrowed_fd(stopped, PollFlags::IN)].into();
        fds.extend(waiting.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
        fds.extend(clients.iter().map(|client| PollFd::new(&client.socket, client.awaits())));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => {
                warn!("metrics are not served any more: {why}");
                return;
            }
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let (first, ready) = ready.split_at(1);
        if first[0] {
            return;
        }
        let (arrived, ready) = ready.split_at(waiting.len());
        let mut ready = ready.iter();
        clients.retain_mut(|client| match ready.next() {
            Some(true) => client.go_on(&mut page).is_ok_and(|goes_on| goes_on),
            _ => true,
        });
        for (socket, _) in waiting.iter().zip(arrived).filter(|(_, arrived)| **arrived) {
            let is_unix = rustix::net::sockopt::socket_domain(socket)
                .is_ok_and(|family| family == rustix::net::AddressFamily::UNIX);
            match rustix::net::accept_with(socket, rustix::net::SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    if clients.len() == CLIENTS {
                        let waits = |client: &Client| matches!(client.state, State::Request(_));
                        clients.remove(clients.iter().position(waits).unwrap_or(0));
                    }
                    clients.push(Client::new(socket, is_unix));
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => accept_after = Instant::now() + PAUSE,
            }
        }
    }
}

/// Rounds up, so that the thread does not wake before the time.
fn timespec(duration: Duration) -> Timespec {
    let ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 1_000_000) + 1;
    Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 }
}

struct Client {
    socket: OwnedFd,
    until: Instant,
    /// It came by a socket file.
    is_unix: bool,
    state: State,
}

enum State {
    Request(Vec<u8>),
    Answer {
        bytes: Vec<u8>,
        sent: usize,
    },
    /// The answer is sent. A close now would destroy it if the client still sends.
    Rest {
        discarded: usize,
    },
}

impl Client {
    fn new(socket: OwnedFd, is_unix: bool) -> Client {
        let until = Instant::now() + PATIENCE;
        Client { socket, until, is_unix, state: State::Request(Vec::new()) }
    }

    fn awaits(&self) -> PollFlags {
        match self.state {
            State::Answer { .. } => PollFlags::OUT,
            _ => PollFlags::IN,
        }
    }

    /// Reads and writes as far as possible without waiting. Whether the client is served further.
    fn go_on(&mut self, page: &mut Page) -> rustix::io::Result<bool> {
        loop {
            match &mut self.state {
                State::Request(request) => {
                    let mut part = [0; 1 << 10];
                    let room = part.len().min(REQUEST_BYTES - request.len());
                    let Some(len) = received(&self.socket, &mut part[..room])? else {
                        return Ok(true);
                    };
                    if len == 0 {
                        return Ok(false);
                    }
                    request.extend_from_slice(&part[..len]);
                    if let Some(bytes) = http::answer(request, self.is_unix, || page.text()) {
                        self.state = State::Answer { bytes, sent: 0 };
                    }
                }
                State::Answer { bytes, sent } => {
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    match send(&self.socket, &bytes[*sent..], flags) {
                        Ok(len) => *sent += len,
                        Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
                        Err(why) => return Err(why),
                    }
                    if *sent == bytes.len() {
                        shutdown(&self.socket, Shutdown::Write)?;
                        self.state = State::Rest { discarded: 0 };
                    }
                }
                State::Rest { discarded } => {
                    let Some(len) = received(&self.socket, &mut [0; 4 << 10])? else {
                        return Ok(true);
                    };
                    *discarded += len;
                    if len == 0 || *discarded > DISCARDED_BYTES {
                        return Ok(false);
                    }
                }
            }
        }
    }
}

/// Receives without waiting; `None` if there is nothing yet.
fn received(socket: &OwnedFd, space: &mut [u8]) -> rustix::io::Result<Option<usize>> {
    match recv(socket, space, RecvFlags::DONTWAIT) {
        Ok((len, _)) => Ok(Some(len)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests;
