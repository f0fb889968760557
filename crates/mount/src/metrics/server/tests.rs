//! Clients that ask, wait, send garbage, or come in crowds. No test waits for a time to pass,
//! except by a client's own patience.

use super::*;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn any_port() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

fn started(addresses: &[Address]) -> (Server, Arc<AtomicU64>) {
    let mut server = Server::bind(addresses).unwrap();
    let made = Arc::new(AtomicU64::new(0));
    let counted = made.clone();
    let metrics = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        "flashsift_x 1\n".to_owned()
    };
    server.start(metrics).unwrap();
    (server, made)
}

fn connect(server: &Server) -> TcpStream {
    let Some(Address::Loopback(address)) = server.addresses().next() else { panic!("no port") };
    TcpStream::connect(address).unwrap()
}

/// Sends all, and reads until the end.
fn asked(mut stream: impl Read + Write, request: &[u8]) -> String {
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_socket_is_its_owners_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let (server, _) = started(&[Address::Unix(path.clone()), any_port()]);
    let answer = asked(UnixStream::connect(&path).unwrap(), GET);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nflashsift_x 1\n"), "{answer}");
    assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    drop(server);
    assert!(fs::symlink_metadata(&path).is_err());
}

#[test]
fn only_a_socket_that_nobody_listens_at_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let address = [Address::Unix(path.clone())];
    let error = || Server::bind(&address).unwrap_err().to_string();
    fs::write(&path, "mine").unwrap();
    assert!(error().contains("not by a socket"), "{}", error());
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).unwrap();
    assert!(error().contains("not by a socket"), "{}", error());
    fs::remove_file(&path).unwrap();

    let other = UnixListener::bind(&path).unwrap();
    assert!(error().contains("another process listens"), "{}", error());
    // As a process leaves it that was killed.
    drop(other);
    assert!(path.exists());
    let (server, _) = started(&address);
    assert!(asked(UnixStream::connect(&path).unwrap(), GET).contains("flashsift_x"));

    // A server that ends leaves alone what has taken its place.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "another's").unwrap();
    drop(server);
    assert_eq!(fs::read(&path).unwrap(), b"another's");
    let missing = [Address::Unix(folder.path().join("no/a.sock"))];
    let error = Server::bind(&missing).unwrap_err().to_string();
    assert!(error.starts_with("unix:/") && error.contains("No such file"), "{error}");
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let (server, _) = started(&[any_port()]);
    let address = server.addresses().next().unwrap().clone();
    let error = Server::bind(std::slice::from_ref(&address)).unwrap_err().to_string();
    assert!(error.starts_with(&address.to_string()), "{error}");
}

#[test]
fn garbage_gets_an_answer_or_the_end() {
    let (server, made) = started(&[any_port()]);
    for garbage in [&b"\0\xff\xfe\r\n\r\n"[..], b"GET\r\n\r\n", b"PUT /metrics HTTP/1.1\r\n\r\n"] {
        let answer = asked(connect(&server), garbage);
        assert!(answer.starts_with("HTTP/1.1 4"), "{garbage:?}: {answer}");
    }
    // The end of the stream ends a request that is not whole.
    let mut half = connect(&server);
    half.write_all(b"GET /met").unwrap();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    half.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"");
    // A request without an end is refused, and the answer arrives although the client still sends.
    let mut endless = connect(&server);
    endless.write_all(&vec![b'a'; 4 * REQUEST_BYTES]).unwrap();
    endless.shutdown(std::net::Shutdown::Write).unwrap();
    endless.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(made.load(Ordering::Relaxed), 0, "no refusal reads the status");
    assert!(asked(connect(&server), GET).contains("flashsift_x"));
}

#[test]
fn a_silent_client_delays_nobody_and_not_the_end() {
    let (server, _) = started(&[any_port()]);
    let silent: Vec<TcpStream> = (0..CLIENTS - 1).map(|_| connect(&server)).collect();
    let mut slow = connect(&server);
    slow.write_all(b"GET /metrics HT").unwrap();
    // No place is free: the client that has been silent for longest loses its own.
    assert!(asked(connect(&server), GET).contains("flashsift_x"));
    drop(server);
    drop(silent);
}

#[test]
fn a_crowd_reads_the_status_seldom() {
    let (server, made) = started(&[any_port()]);
    let begun = Instant::now();
    for _ in 0..200 {
        assert!(asked(connect(&server), GET).contains("flashsift_x"));
    }
    let most = 1 + begun.elapsed().as_millis() as u64 / FRESH.as_millis() as u64;
    assert!(made.load(Ordering::Relaxed) <= most);
}
