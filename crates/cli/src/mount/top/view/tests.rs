//! Frames of `flashsift top`, whole.

use super::super::state::{Asked, Key, Sample};
use super::*;
use flashsift_files::sift::live::{FileBytes, SiftedBy};
use flashsift_mount::{Failure, Writes};
use ratatui::{Terminal, backend::TestBackend};
use std::time::{Duration, Instant};

fn status(written: u64, dropped: u64) -> Status {
    let bytes = |bytes| FileBytes { files: 1, bytes };
    let mut sift = SiftStatus {
        sifter: "controller".to_owned(),
        mode: LiveMode::Sift,
        directories: [("", dropped), ("Default/Code Cache", 5 << 10)]
            .map(|(name, dropped)| SiftedBy {
                name: name.to_owned(),
                requested_bytes: 7 << 20,
                held: bytes(3 << 20),
                dropped: bytes(dropped),
                created_again: bytes(77),
                written: bytes(0),
            })
            .into(),
        programs: vec![SiftedBy { name: "chromium".to_owned(), ..SiftedBy::default() }],
        ..SiftStatus::default()
    };
    (sift.counts.held, sift.counts.dropped) = (bytes(3 << 20), bytes(dropped));
    sift.counts.created_again = bytes(77);
    let writes = Writes {
        requested_bytes: written,
        flash_bytes: 1 << 20,
        saved_bytes: Some(-(5 << 20)),
        ..Writes::default()
    };
    Status {
        files_in_ram: 2,
        ram_bytes: 4 << 20,
        budget_bytes: 256 << 20,
        sift: Some(sift),
        writes: Some(writes),
        ..Status::default()
    }
}

fn asked(mountpoint: &str, status: Result<Status, String>) -> Asked {
    Asked { mountpoint: mountpoint.into(), backing: "/b".into(), status }
}

/// Two readings, two seconds apart, of a mount that sifts, one without a sifter, and a dead one.
fn state() -> State {
    let mut state = State::new(true);
    let at = Instant::now();
    let plain = || Status { sift: None, ..status(9 << 30, 0) };
    for (at, written, dropped) in
        [(at, 10 << 20, 1 << 20), (at + Duration::from_secs(2), 20 << 20, 2 << 20)]
    {
        let mut first = status(written, dropped);
        let path = "a\u{1b}[31m".to_owned();
        let (step, error) = ("copying".to_owned(), "No space left on device".to_owned());
        first.failures = vec![Failure { path, step, errno: 28, error }];
        first.failing_files = 4;
        let sift = first.sift.as_mut().unwrap();
        (sift.again_share, sift.again_at_most) = (0.041, 0.1);
        state.take(Sample {
            at,
            mounts: vec![
                asked("/srv/app", Ok(plain())),
                asked("/home/user/a long name/.cache/chromium", Ok(first)),
                asked("/dead", Err("dead: its process was killed".to_owned())),
            ],
        });
    }
    state
}

fn frame(state: &State, width: u16, height: u16) -> (String, Buffer) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    (lines(&buffer), buffer)
}

#[test]
fn a_frame_of_80_columns_is_the_golden_one() {
    let mut state = state();
    state.press(Key::Down);
    let (text, buffer) = frame(&state, 80, 24);
    assert_eq!(text, include_str!("wide.txt"));
    let chosen = buffer.cell((0, 3)).unwrap();
    assert!(chosen.modifier.contains(Modifier::REVERSED));
    assert_eq!(chosen.fg, Color::Red, "files of it fail");
}

#[test]
fn a_narrow_frame_leaves_columns_out() {
    let mut state = state();
    state.press(Key::Down);
    assert_eq!(frame(&state, 50, 12).0, include_str!("narrow.txt"));
    assert_eq!(frame(&state, 30, 4).0, include_str!("tiny.txt"));
}

#[test]
fn every_size_can_be_drawn() {
    let mut state = state();
    for keys in 0..4 {
        for (width, height) in (0..100).flat_map(|width| [(width, 3), (width, 30), (80, width)]) {
            frame(&state, width, height);
        }
        state.press(if keys % 2 == 0 { Key::Down } else { Key::Sort });
    }
    for height in 0..5 {
        frame(&State::new(true), 80, height);
    }
    assert!(frame(&State::new(true), 80, 5).0.starts_with("flashsift top: nothing is mounted"));
}

#[test]
fn without_colour_there_is_none() {
    let mut state = state();
    state.has_colour = false;
    let (_, buffer) = frame(&state, 80, 24);
    assert!(buffer.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
}

#[test]
fn the_chosen_mount_stays_chosen_in_any_order_and_on_any_screen() {
    let mut state = state();
    state.press(Key::Down);
    state.press(Key::Down);
    for _ in 0..4 {
        let chosen = &state.rows[state.chosen().unwrap()];
        assert_eq!(chosen.mountpoint, Path::new("/srv/app"));
        state.press(Key::Sort);
    }
    state.press(Key::Down);
    assert_eq!(state.chosen(), Some(2), "the last one");
    let (text, _) = frame(&state, 80, 4);
    assert!(text.contains("/srv/app"), "{text}");
    state.press(Key::Sort);
    let first = &state.rows[0];
    assert_eq!(first.mountpoint, Path::new("/srv/app"), "it has the most bytes written");
    assert_eq!(state.rows[1].rates.written, Some(5 << 20));
}

#[test]
fn a_mount_that_began_anew_has_no_rate() {
    let mut state = State::new(false);
    let at = Instant::now();
    for (second, written) in [(0, 10), (1, 4), (2, 6)] {
        let at = at + Duration::from_secs(second);
        state.take(Sample { at, mounts: vec![asked("/a", Ok(status(written, 0)))] });
        let expected = [None, None, Some(2)][second as usize];
        assert_eq!(state.rows[0].rates.written, expected);
    }
}

#[test]
fn bytes_take_four_characters() {
    for (bytes, text) in [
        (0, "0"),
        (999, "999"),
        (1000, "1.0K"),
        (1 << 20, "1.0M"),
        (10_188, "9.9K"),
        (10_200, "10K"),
        (1023 << 10, "1.0M"),
        (u64::MAX, "16E"),
    ] {
        assert_eq!(compact(bytes), text);
    }
}
