//! A mount as its user watches it: metrics for Prometheus, and `flashsift top`.

use crate::mount::*;
use flashsift_testbed::{ended, has, output, skip};
use std::{
    io::{BufRead, BufReader, Read},
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixStream,
    },
};

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Where `make setup` unpacks Debian's package.
const PROMETHEUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/prometheus/usr/bin");
const DASHBOARD: &str = include_str!("../../../../dist/grafana/flashsift.json");

fn asked(mut stream: impl Read + Write) -> String {
    stream.write_all(GET).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, content) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    content.to_owned()
}

/// The value of a metric with this label.
fn value(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.split('{').next() == Some(name));
    let line = lines.next().unwrap_or_else(|| panic!("there is no {name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// The port that the daemon reports.
fn port(mounted: &Mounted) -> u16 {
    let begun = Instant::now();
    loop {
        let messages = mounted.messages();
        // The last line may not be whole yet.
        let whole = messages.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        for line in whole {
            if let Some(port) = line.trim().strip_prefix("metrics 127.0.0.1:") {
                return port.parse().unwrap();
            }
        }
        assert!(begun.elapsed() < PATIENCE, "no port is reported: {messages}");
        thread::yield_now();
    }
}

/// A program of Prometheus: of the package, or unpacked by `make setup`.
fn of_prometheus(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push(PROMETHEUS.into());
    folders.into_iter().map(|folder| folder.join(program)).find(|file| file.exists())
}

/// Without a server of metrics, the mount listens nowhere; with one, a client sees the bytes that
/// an application wrote, and the end removes the socket, also by SIGTERM.
#[test]
fn metrics_are_served_until_the_end() {
    for how in [End::Unmount, End::Signal(Signal::TERM)] {
        let Some(ext4) = Ext4::new() else { return };
        let socket = ext4.path("metrics.sock");
        let at = format!("unix:{}", socket.display());
        let options =
            [&LATE[..], &["--metrics", &at, "--metrics", "127.0.0.1:0", "--sift", "controller"]]
                .concat();
        let mut mounted = Mounted::over(ext4, &options);
        let found = fs::symlink_metadata(&socket).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        // Clients that say nothing do not keep others or applications waiting.
        let silent: Vec<_> = (0..5).map(|_| UnixStream::connect(&socket).unwrap()).collect();
        let before = value(&asked(UnixStream::connect(&socket).unwrap()), "flashsift_files_in_ram");
        assert_eq!(before, 0);
        create(&mounted.at("a"), &bytes(1, 5000));
        let begun = Instant::now();
        loop {
            let text = asked(TcpStream::connect(("127.0.0.1", port(&mounted))).unwrap());
            if value(&text, "flashsift_files_in_ram") == 1 {
                assert_eq!(value(&text, "flashsift_requested_bytes_total"), 5000);
                let point = mounted.ext4.mountpoint();
                assert!(
                    text.contains(&format!("{{mountpoint=\"{}\"}}", point.display())),
                    "{text}"
                );
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{text}");
        }
        assert!(mounted.end(how).success(), "{}", mounted.messages());
        assert!(fs::symlink_metadata(&socket).is_err(), "{how:?}");
        assert_eq!(fs::read(mounted.below("a")).unwrap(), bytes(1, 5000));
        drop(silent);
    }
}

/// A killed daemon leaves its socket; the next one replaces it.
#[test]
fn a_socket_of_a_killed_daemon_is_replaced() {
    let Some(ext4) = Ext4::new() else { return };
    let socket = ext4.path("metrics.sock");
    let mut mounted = Mounted::over(ext4, &["--metrics", &format!("unix:{}", socket.display())]);
    mounted.kill();
    assert!(UnixStream::connect(&socket).is_err());
    mounted.start();
    assert_eq!(value(&asked(UnixStream::connect(&socket).unwrap()), "flashsift_faults_total"), 0);
    mounted.ended();
}

#[test]
fn unfit_addresses_of_metrics_are_refused_before_the_mount() {
    let Some(ext4) = Ext4::new() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = ext4.path("file");
    fs::write(&file, "mine").unwrap();
    for (address, code, why) in [
        ("0.0.0.0:9101".to_owned(), 2, "other machines could reach it"),
        ("unix:a".to_owned(), 2, "begin with /"),
        (taken.local_addr().unwrap().to_string(), 1, "in use"),
        (format!("unix:{}", file.display()), 1, "not by a socket"),
        (format!("unix:{}", ext4.backing().join("s").display()), 1, "lies in the mount"),
        (format!("unix:{}", ext4.mountpoint().join("s").display()), 1, "lies in the mount"),
    ] {
        let output = Command::new(FLASHSIFT)
            .arg("mount")
            .args([ext4.backing(), ext4.mountpoint()])
            .args(["--foreground", "--metrics", &address])
            .output()
            .unwrap();
        let messages = text(output.stderr);
        assert_eq!(output.status.code(), Some(code), "{address}: {messages}");
        assert!(messages.contains(why), "{address}: {messages}");
        assert!(!is_mounted(&ext4.mountpoint()));
    }
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    assert!(ours(&ext4.backing()).is_empty());
}

#[test]
fn promtool_accepts_the_metrics() {
    let Some(promtool) = of_prometheus("promtool") else {
        return skip("promtool is not installed");
    };
    let options = ["--metrics", "127.0.0.1:0", "--sift", "controller", "--sift-mode", "dry-run"];
    let Some(mut mounted) = Mounted::new(&options) else { return };
    let text = asked(TcpStream::connect(("127.0.0.1", port(&mounted))).unwrap());
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let messages = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && messages.is_empty(), "{}", self::text(messages));
    mounted.ended();
}

/// Prometheus scrapes the mount, and answers each query of the dashboard.
#[test]
fn prometheus_scrapes_a_mount_and_answers_the_dashboard() {
    let Some(prometheus) = of_prometheus("prometheus") else {
        return skip("prometheus is not installed");
    };
    let options = ["--metrics", "127.0.0.1:0", "--sift", "controller"];
    let Some(mut mounted) = Mounted::new(&options) else { return };
    create(&mounted.at("a"), &bytes(1, 5000));
    let config = mounted.ext4.path("prometheus.yml");
    let target = format!("127.0.0.1:{}", port(&mounted));
    let scrape = "scrape_configs:\n- job_name: flashsift\n  scrape_interval: 200ms\n  \
                  scrape_timeout: 200ms\n  static_configs:\n  - targets: ";
    fs::write(&config, format!("{scrape}['{target}']\n")).unwrap();
    // Programs of other tests, and connections, take ports of another address.
    let unused = TcpListener::bind("127.77.0.1:0").unwrap().local_addr().unwrap();
    let log = mounted.ext4.path("prometheus.log");
    let mut server = Command::new(prometheus)
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", mounted.ext4.path("tsdb").display()))
        .arg(format!("--web.listen-address={unused}"))
        .stdin(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let asks = |query: &str| -> Option<serde_json::Value> {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-G", &format!("http://{unused}/api/v1/query")]);
        let answer = output(curl.args(["--data-urlencode", &format!("query={query}")])).ok()?;
        serde_json::from_str(&answer).ok()
    };
    let begun = Instant::now();
    let scraped = loop {
        let answer = asks("flashsift_requested_bytes_total").unwrap_or_default();
        if answer["data"]["result"][0]["value"][1] == "5000" {
            break Ok(());
        }
        if begun.elapsed() > PATIENCE || server.try_wait().unwrap().is_some() {
            break Err(answer);
        }
        thread::yield_now();
    };
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let point = mounted.ext4.mountpoint().display().to_string();
    let mut refused = Vec::new();
    for target in dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
    {
        let query = target["expr"].as_str().unwrap();
        let query = [("$mountpoint", &*point), ("$__rate_interval", "1m"), ("$__range", "1m")]
            .into_iter()
            .fold(query.to_owned(), |query, (variable, value)| query.replace(variable, value));
        let answer = asks(&query).unwrap_or_default();
        if answer["status"] != "success" {
            refused.push((query, answer));
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    let messages = fs::read_to_string(log).unwrap_or_default();
    assert!(scraped.is_ok(), "{scraped:?}: {messages}");
    assert!(refused.is_empty(), "{refused:?}");
    mounted.ended();
}

#[test]
fn top_prints_a_frame_and_a_line_of_json() {
    let Some(mut mounted) = Mounted::new(&[&LATE[..], &["--sift", "controller"]].concat()) else {
        return;
    };
    create(&mounted.at("a"), &bytes(1, 5000));
    let point = mounted.ext4.mountpoint();
    // On a busy machine the daemon may not answer in time.
    let top = |options: &[&str], answers: &dyn Fn(&str) -> bool| {
        let begun = Instant::now();
        loop {
            let mut command = Command::new(FLASHSIFT);
            let frame = output(command.arg("top").arg(&point).args(options)).unwrap();
            if answers(&frame) || begun.elapsed() > PATIENCE {
                return frame;
            }
        }
    };
    let frame = top(&["--once"], &|frame| !frame.contains("does not answer"));
    assert!(frame.starts_with("flashsift top: 1 mount, by name\nMOUNT "), "{frame}");
    assert!(frame.lines().nth(2).unwrap().contains(" 4.9K "), "{frame}");
    assert!(frame.contains("in RAM    1 file, "), "{frame}");
    assert!(frame.lines().all(|line| line.chars().count() <= 80), "{frame}");
    assert!(!frame.contains('\u{1b}'));
    let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let answers = |text: &str| !parsed(text)["mounts"][0]["status"].is_null();
    let json = parsed(&top(&["--once", "--json"], &answers));
    assert_eq!(json["mounts"][0]["status"]["writes"]["requested_bytes"], 5000);
    assert_eq!(json["mounts"][0]["mountpoint"], point.to_str().unwrap());
    let (_, says) = ended(Command::new(FLASHSIFT).arg("top").arg(&point), 2);
    assert!(says.contains("--once"));
    mounted.ended();
}

/// A daemon that is stopped does not stop `top`.
#[test]
fn top_ends_beside_a_mount_that_does_not_answer() {
    let Some(mut mounted) = Mounted::new(&[]) else { return };
    mounted.stopped();
    let frame = output(Command::new(FLASHSIFT).args(["top", "--once"]));
    kill_process(mounted.pid(), Signal::CONT).unwrap();
    let frame = frame.unwrap();
    assert!(frame.contains("its process does not answer"), "{frame}");
    mounted.ended();
}

/// In a terminal, `top` ends at q, Ctrl-C and SIGTERM, and leaves the terminal as it was.
#[test]
fn top_leaves_the_terminal_as_it_was() {
    if !has("python3") {
        return skip("python3 is not installed");
    }
    let Some(mut mounted) = Mounted::new(&[]) else { return };
    for end in ["q", "\u{3}", "SIGTERM", "SIGHUP"] {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/in_terminal.py");
        let mut python = Command::new("python3");
        python.args(["-B", script, end, FLASHSIFT, "top"]).arg(mounted.ext4.mountpoint());
        let messages = output(&mut python).unwrap_or_else(|why| panic!("{end:?}: {why}"));
        assert_eq!(messages.trim(), "restored", "{end:?}");
    }
    mounted.ended();
}

/// The daemon of one mount is stopped: `status` waited for it for ever, and showed no other. Beside
/// a mount whose daemon was killed it did not name the stopped one.
#[test]
fn a_stopped_daemon_does_not_hide_the_other_mounts() {
    let Some(stopped) = Mounted::new(&[]) else { return };
    let Some(other) = Mounted::new(&[]) else { return };
    let Some(mut killed) = Mounted::new(&[]) else { return };
    let dead = format!("{}: dead", killed.ext4.mountpoint().display());
    kill_process(killed.pid(), Signal::KILL).unwrap();
    killed.daemon.as_mut().unwrap().process.wait().unwrap();
    stopped.stopped();
    let output = Command::new(FLASHSIFT).arg("status").output().unwrap();
    killed.bury();
    let (shown, says) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(1), "{says}");
    assert!(shown.contains(other.ext4.mountpoint().to_str().unwrap()), "{shown}");
    assert!(says.contains("does not answer") && says.contains(&dead), "{says}");
    // The one that waits for it says so: `flush` waited without a word.
    let mut flush = Command::new(FLASHSIFT);
    flush.arg("flush").arg(stopped.ext4.mountpoint()).stderr(Stdio::piped());
    let mut flush = flush.spawn().unwrap();
    let mut says = String::new();
    BufReader::new(flush.stderr.as_mut().unwrap()).read_line(&mut says).unwrap();
    kill_process(stopped.pid(), Signal::CONT).unwrap();
    assert!(says.contains("waiting") && says.contains("does not answer"), "{says}");
    assert!(flush.wait().unwrap().success());
}
