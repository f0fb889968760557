//! `flashsift top`: the mounts of flashsift, refreshed each second.
//!
//! One thread reads keys, one signals, and one the status of mounts. The main one draws their
//! reports, and so ends at once even if a daemon does not answer.

mod state;
mod view;

use super::control;
use crate::{records, usage::Usage};
use flashsift_host::mounts::{self, Mount};
use flashsift_mount::Status;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, buffer::Buffer, layout::Rect, widgets::Widget};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use state::{Asked, Key, Sample, State};
use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(1);
/// Time for a mount to answer, before the screen says that it does not.
const PATIENCE: Duration = Duration::from_secs(1);
/// Width of a frame that is printed, columns.
const PRINTED_COLUMNS: u16 = 80;

/// Watch flashsift's mounts: bytes written, held, dropped, and on flash, each second
///
/// A row for each mount has bytes since the mount began and, beside some of them, bytes a second:
/// WRITTEN by applications, HELD in RAM by the sifter, DROPPED, AGAIN (dropped files whose names
/// were created again), and written to FLASH. Below are details of the chosen mount, with the bytes
/// of the sifter's files by program and by directory. Keys: q ends, the arrows choose a mount, s
/// sorts by another column. NO_COLOR turns colours off.
#[derive(clap::Args, Clone)]
#[command(after_help = "Examples:
  flashsift top                           every mount of flashsift
  flashsift top ~/.cache                  one
  flashsift top --once                    one frame as text, 80 columns wide
  flashsift top --json | jq .mounts[].rates     one JSON object a second")]
pub(crate) struct Args {
    /// Mounts to show; default: all
    mountpoint: Vec<PathBuf>,

    /// Print one frame as plain text, and end; with --json, one line
    #[arg(long)]
    once: bool,

    /// Print a JSON object each second, one a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.json {
        return print_json(args);
    }
    let mut reader = Reader::default();
    let first = reader.read(args)?;
    let mut state = State::new(view::has_colour());
    if args.once {
        state.take(first);
        let mut out = records::Output::text();
        out.write_all(printed(&state).as_bytes())?;
        return out.finish();
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let why = "top needs a terminal; --once prints one frame, --json a line a second";
        return Err(Usage(why.to_owned()).into());
    }
    state.take(first);
    match watch(args, reader, &mut state)? {
        Some(signal) => Ok(signal_hook::low_level::emulate_default_handler(signal)?),
        None => Ok(()),
    }
}

/// Reads the status of mounts, each in a thread of its own: a daemon that does not answer delays
/// neither the others nor the user.
#[derive(Default)]
struct Reader {
    /// Answers that are still to come, by the number of the mount.
    awaited: HashMap<u64, Receiver<io::Result<Status>>>,
}

impl Reader {
    fn read(&mut self, args: &Args) -> anyhow::Result<Sample> {
        let all = args.mountpoint.is_empty();
        let (at, mut asked) = (Instant::now(), Vec::new());
        let mut before = std::mem::take(&mut self.awaited);
        let awaited: Vec<_> = control::chosen(&args.mountpoint)?
            .into_iter()
            .map(|mount| {
                let answer = before.remove(&mount.id).unwrap_or_else(|| ask(&mount));
                (mount, answer)
            })
            .collect();
        for (mount, answer) in awaited {
            let left = PATIENCE.saturating_sub(at.elapsed());
            let status = match answer.recv_timeout(left) {
                Ok(Ok(status)) => Ok(status),
                // Another user's, which was not asked for.
                Ok(Err(why)) if all && why.kind() == io::ErrorKind::PermissionDenied => continue,
                Ok(Err(why)) if mounts::is_dead(&why) => {
                    Err("dead: its process was killed".to_owned())
                }
                Ok(Err(why)) => Err(why.to_string()),
                Err(RecvTimeoutError::Disconnected) => Err("asking it failed".to_owned()),
                Err(RecvTimeoutError::Timeout) => {
                    self.awaited.insert(mount.id, answer);
                    Err("its process does not answer".to_owned())
                }
            };
            let backing = PathBuf::from(&mount.source);
            asked.push(Asked { mountpoint: mount.point, backing, status });
        }
        Ok(Sample { at, mounts: asked })
    }
}

fn ask(mount: &Mount) -> Receiver<io::Result<Status>> {
    let (sender, answer) = mpsc::channel();
    let mount = mount.clone();
    // Without a receiver the view has gone on without this mount.
    thread::spawn(move || drop(sender.send(flashsift_mount::control::status(&mount))));
    answer
}

fn print_json(args: &Args) -> anyhow::Result<()> {
    let (mut state, mut reader) = (State::new(false), Reader::default());
    loop {
        state.take(reader.read(args)?);
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &state.json())?;
        writeln!(out)?;
        out.flush()?;
        if args.once {
            return Ok(());
        }
        thread::sleep(PERIOD);
    }
}

/// Returns a frame with the details of every mount as lines of text.
fn printed(state: &State) -> String {
    let text = view::page(state, PRINTED_COLUMNS);
    let rows = u16::try_from(text.lines.len()).unwrap_or(u16::MAX);
    let area = Rect::new(0, 0, PRINTED_COLUMNS, rows);
    let mut buffer = Buffer::empty(area);
    text.render(area, &mut buffer);
    view::lines(&buffer)
}

enum Message {
    Key(Key),
    Redraw,
    Sampled(anyhow::Result<Sample>),
    Signal(i32),
    /// The terminal is gone.
    NoInput,
}

/// The terminal while we draw on it. Its end restores it; a panic does, too.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = ratatui::try_restore();
    }
}

/// Shows the mounts until the user or a signal ends it. Returns the signal.
fn watch(args: &Args, reader: Reader, state: &mut State) -> anyhow::Result<Option<i32>> {
    let (sender, messages) = mpsc::channel();
    // Before the terminal is changed: no signal may leave it so.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mut screen = Screen(ratatui::try_init()?);
    start_threads(args.clone(), reader, signals, &sender);
    loop {
        screen.0.draw(|frame| view::draw(state, frame))?;
        match messages.recv()? {
            Message::Key(Key::Quit) | Message::NoInput => return Ok(None),
            Message::Key(key) => state.press(key),
            Message::Redraw => {}
            Message::Sampled(sample) => state.take(sample?),
            Message::Signal(signal) => return Ok(Some(signal)),
        }
    }
}

/// Starts the threads that report. They end with the process.
fn start_threads(args: Args, mut reader: Reader, mut signals: Signals, sender: &Sender<Message>) {
    let send = sender.clone();
    thread::spawn(move || {
        for signal in signals.forever() {
            let _ = send.send(Message::Signal(signal));
        }
    });
    let send = sender.clone();
    thread::spawn(move || {
        loop {
            let message = match event::read() {
                Ok(Event::Key(key)) => key_of(key).map(Message::Key),
                Ok(Event::Resize(..)) => Some(Message::Redraw),
                Ok(_) => None,
                Err(_) => {
                    let _ = send.send(Message::NoInput);
                    return;
                }
            };
            if let Some(message) = message {
                let _ = send.send(message);
            }
        }
    });
    let send = sender.clone();
    thread::spawn(move || {
        loop {
            thread::sleep(PERIOD);
            if send.send(Message::Sampled(reader.read(&args))).is_err() {
                return;
            }
        }
    });
}

fn key_of(key: KeyEvent) -> Option<Key> {
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind == KeyEventKind::Release => None,
        KeyCode::Char('c') if with_control => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::Char('s') => Some(Key::Sort),
        _ => None,
    }
}
