//! The syntax of a line of strace's output: thread, time, and a call's arguments and result.
//!
//! It follows the manual and sources of strace 6.1 (`tprint*.c`, `print_quoted_string`, `printfd`).
//! Strings are C strings in double quotes with octal or hexadecimal escapes; truncated ones end in
//! `"...`. A descriptor can be followed by `<TARGET>`, in which `<`, `>` and control characters are
//! escaped (the `->` of a socket is not), and then by `(deleted)`.

use crate::format::day;
use std::borrow::Cow;

/// The columns before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    pub(super) tid: Option<u32>,
    /// The number has no `[pid ]` around it, as in output files of strace: then every line has one.
    pub(super) bare: bool,
    pub(super) time: Option<Time>,
    pub(super) body: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// An absolute or relative number of seconds: `-ttt` or `-r`.
    Seconds { us: u64 },
    /// A time of day: `-t`, `-tt`.
    OfDay { us: u64 },
}

/// Splits off `[pid N]` or `N`, a time, and the columns of `-i` and `-n`.
pub(super) fn head(line: &[u8]) -> Head<'_> {
    let mut body = line.trim_ascii_start();
    let (mut tid, mut bare, mut time) = (None, false, None);
    if let Some(rest) = body.strip_prefix(b"[pid") {
        let (number, rest) = digits(rest.trim_ascii_start());
        let rest = skip_name(rest);
        if let Some(rest) = rest.strip_prefix(b"]") {
            tid = u32::try_from(number.unwrap_or(u64::MAX)).ok();
            body = rest.trim_ascii_start();
        }
    } else if let (Some(number), rest) = digits(body) {
        let rest = skip_name(rest);
        if rest.starts_with(b" ") {
            tid = u32::try_from(number).ok();
            bare = true;
            body = rest.trim_ascii_start();
        }
    }
    if let Some((us, rest)) = day::time(body) {
        time = Some(Time::OfDay { us });
        body = rest.trim_ascii_start();
    } else if let (Some(seconds), rest) = digits(body)
        && rest.starts_with(b".")
    {
        let (us, rest) = day::fraction(rest);
        time = seconds
            .checked_mul(1_000_000)
            .and_then(|s| s.checked_add(us))
            .map(|us| Time::Seconds { us });
        body = rest.trim_ascii_start();
    }
    if time.is_some() {
        body = skip_step(body);
    }
    while body.first() == Some(&b'[') {
        let Some(end) = body.iter().position(|&b| b == b']') else { break };
        let inside = body[1..end].trim_ascii();
        if inside.is_empty() || !inside.iter().all(u8::is_ascii_hexdigit) {
            break;
        }
        body = body[end + 1..].trim_ascii_start();
    }
    Head { tid, bare, time, body }
}

/// Splits off the program's name that `--decode-pids=comm` puts after a number.
fn skip_name(text: &[u8]) -> &[u8] {
    match text.first() {
        Some(b'<') => text.iter().position(|&b| b == b'>').map_or(text, |end| &text[end + 1..]),
        _ => text,
    }
}

/// Splits off the time since the previous line that `-r` adds to another time: `(+     0.000200)`.
fn skip_step(text: &[u8]) -> &[u8] {
    let step = text.strip_prefix(b"(+").and_then(|rest| {
        let end = rest.iter().position(|&b| b == b')')?;
        let is_step = rest[..end].iter().all(|&b| b.is_ascii_digit() || matches!(b, b' ' | b'.'));
        is_step.then(|| rest[end + 1..].trim_ascii_start())
    });
    step.unwrap_or(text)
}

/// Splits off leading decimal digits.
fn digits(text: &[u8]) -> (Option<u64>, &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let mut number = (end > 0).then_some(0u64);
    for digit in &text[..end] {
        number = number.and_then(|n| n.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    }
    (number, &text[end..])
}

/// Splits a name from the text after its `(`.
pub(super) fn call(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = body.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))?;
    (end > 0 && body[end] == b'(').then(|| (&body[..end], &body[end + 1..]))
}

/// Largest number of arguments of a call.
const ARGS_MAX: usize = 8;

/// Arguments of a call, trimmed, and the text after its `)`.
#[derive(Debug)]
pub(super) struct Args<'a> {
    args: [&'a [u8]; ARGS_MAX],
    count: usize,
    /// `None`: the closing parenthesis is missing, as in the first half of a call.
    pub(super) result: Option<&'a [u8]>,
}

impl<'a> Args<'a> {
    /// Returns the `n`th argument, or an empty text.
    pub(super) fn get(&self, n: usize) -> &'a [u8] {
        self.args[..self.count].get(n).copied().unwrap_or_default()
    }

    /// Returns the number of arguments.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Splits the text after a `[`, up to its `]`.
    pub(super) fn parse_list(text: &'a [u8]) -> Option<Self> {
        let (mut end, mut args) = (0, None);
        while args.is_none() {
            end += 1 + memchr::memchr(b']', text.get(end + 1..)?)?;
            args = Self::parse(&text[..end]);
        }
        args
    }

    /// Splits the text after the `(`; `None` if quotes or brackets do not match.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let mut args = Args { args: [&[]; ARGS_MAX], count: 0, result: None };
        let mut start = 0;
        loop {
            let end = part_end(text, start)?;
            args.push(&text[start..end]);
            match text.get(end) {
                Some(b',') => start = end + 1,
                Some(b')') => args.result = Some(&text[end + 1..]),
                Some(_) => return None,
                None => {}
            }
            if text.get(end) != Some(&b',') {
                return Some(args);
            }
        }
    }

    fn push(&mut self, arg: &'a [u8]) {
        if let Some(place) = self.args.get_mut(self.count) {
            *place = unnamed(arg.trim_ascii());
            self.count += 1;
        }
    }
}

/// Splits off the name of an argument that `--arg-names` adds: `fd=3`.
fn unnamed(arg: &[u8]) -> &[u8] {
    let end = arg.iter().position(|b| !(b.is_ascii_lowercase() || *b == b'_')).unwrap_or(0);
    if end > 0 && arg[end] == b'=' { &arg[end + 1..] } else { arg }
}

/// Finds the comma or closing bracket that ends the part of a list at `at`, or the end of the text.
fn part_end(text: &[u8], at: usize) -> Option<usize> {
    let (mut at, mut depth) = (at, 0u32);
    while at < text.len() {
        match text[at] {
            b'"' => at = string_end(text, at)?,
            b'<' if at > 0 && matches!(text[at - 1], b'0'..=b'9' | b'D') => {
                at = shown_end(text, at)?
            }
            b'/' if text[at + 1..].starts_with(b"*") => {
                at = at + 2 + memchr::memmem::find(&text[at + 2..], b"*/")? + 1;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b',' | b')' | b']' | b'}' if depth == 0 => return Some(at),
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    (depth == 0).then_some(at)
}

/// Iterates over the parts of a list or structure, from the text after its opening bracket.
pub(super) fn items(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let list = rest.take()?;
        let end = part_end(list, 0)?;
        rest = (list.get(end) == Some(&b',')).then(|| &list[end + 1..]);
        Some(list[..end].trim_ascii()).filter(|item| !item.is_empty())
    })
}

/// Finds the closing quote of the string that opens at `at`.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// Finds the closing `>` of the bracket that opens at `at`. Socket addresses contain `->`.
fn shown_end(text: &[u8], at: usize) -> Option<usize> {
    let (mut at, mut depth) = (at, 0u32);
    loop {
        match text[at] {
            b'<' => depth += 1,
            b'>' if text[at - 1] == b'-' => {}
            b'>' if depth == 1 => return Some(at),
            b'>' => depth -= 1,
            _ => {}
        }
        at += 1 + memchr::memchr2(b'<', b'>', text.get(at + 1..)?)?;
    }
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    /// The number, and the text after the `=`.
    Done(u64, &'a [u8]),
    Failed,
    /// `= ?`: the call did not return (exit), or will be restarted.
    Open,
}

/// Parses ` = 3</x>`, ` = -1 ENOENT (…)`, ` = 0x7f…`, ` = ?`.
pub(super) fn outcome(text: &[u8]) -> Option<Outcome<'_>> {
    let text = text.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    match text.first()? {
        b'-' => Some(Outcome::Failed),
        b'?' => Some(Outcome::Open),
        _ => Some(Outcome::Done(number(text)?, text)),
    }
}

/// Parses a leading number, decimal or `0x…`; `None` also for negative numbers.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    split_number(text).0
}

/// Splits off a leading number, decimal or `0x…`.
fn split_number(text: &[u8]) -> (Option<u64>, &[u8]) {
    let Some(hex) = text.strip_prefix(b"0x") else { return digits(text) };
    let end = hex.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(hex.len());
    let digits = std::str::from_utf8(&hex[..end]).unwrap_or_default();
    (u64::from_str_radix(digits, 16).ok(), &hex[end..])
}

/// Whether a bit is set in flags, which are words, or a number (`-e raw`, `-X raw`).
pub(super) fn flag(flags: &[u8], word: &str, bit: u64) -> bool {
    match number(flags) {
        Some(number) => number & bit != 0,
        None => has(flags, word),
    }
}

/// Whether an argument is a constant: its word, or its number.
pub(super) fn is(arg: &[u8], word: &str, value: u64) -> bool {
    arg == word.as_bytes() || number(arg) == Some(value)
}

pub(super) fn has(text: &[u8], word: &str) -> bool {
    memchr::memmem::find(text, word.as_bytes()).is_some()
}

/// Returns the bytes of a C string; `None` if it is not one, or was truncated.
pub(super) fn string(arg: &[u8]) -> Option<Cow<'_, [u8]>> {
    let end = string_end(arg, 0).filter(|_| arg.first() == Some(&b'"'))?;
    (arg.len() == end + 1).then(|| unescaped(&arg[1..end]))
}

/// Decodes `
/// `, `\"`, `\303`, `\xc3`.
pub(super) fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr(b'\\', text) else { return Cow::Borrowed(text) };
    let mut bytes = text[..first].to_vec();
    let mut rest = &text[first..];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some((&escape, after)) = rest.split_first() else { break };
        rest = after;
        let radix = if escape == b'x' { 16 } else { 8 };
        let (mut value, mut taken) = match escape {
            b'0'..=b'7' => (u32::from(escape - b'0'), 1),
            b'x' => (0, 1),
            _ => {
                bytes.push(match escape {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'v' => 0x0b,
                    b'f' => 0x0c,
                    other => other,
                });
                continue;
            }
        };
        while let Some(digit) =
            rest.first().and_then(|&b| char::from(b).to_digit(radix)).filter(|_| taken < 3)
        {
            value = value * radix + digit;
            (rest, taken) = (&rest[1..], taken + 1);
        }
        bytes.push(value as u8);
    }
    Cow::Owned(bytes)
}

/// A descriptor argument or result: `3`, `3</x>`, `3</x>(deleted)`, `AT_FDCWD</x>`.
#[derive(Debug)]
pub(super) struct Descriptor<'a> {
    /// Descriptor number; `None` for `AT_FDCWD`.
    pub(super) number: Option<i32>,
    pub(super) shown: Option<Lead<'a>>,
}

/// The text between `<` and `>`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lead<'a> {
    Path(Cow<'a, [u8]>, bool),
    Other,
}

/// `AT_FDCWD` as `-e raw` shows it.
const CWD: u64 = -100i32 as u32 as u64;

pub(super) fn descriptor(arg: &[u8]) -> Option<Descriptor<'_>> {
    let (number, rest) = match arg.strip_prefix(b"AT_FDCWD") {
        Some(rest) => (None, rest),
        None if arg.starts_with(b"-100") => (None, &arg[4..]),
        None => {
            let (number, rest) = split_number(arg);
            match number? {
                CWD => (None, rest),
                number => (Some(i32::try_from(number).ok()?), rest),
            }
        }
    };
    let shown = match rest.first() {
        Some(b'<') => {
            let end = shown_end(rest, 0)?;
            Some(lead(&rest[1..end], rest[end + 1..].starts_with(b"(deleted)")))
        }
        _ => None,
    };
    Some(Descriptor { number, shown })
}

/// Files that exist only in memory and appear as deleted files of the root directory.
const IN_MEMORY: [&[u8]; 6] =
    [b"/memfd:", b"/SYSV", b"/dmabuf:", b"/anon_hugepage", b"/[", b"/dev/zero"];

fn lead(text: &[u8], deleted: bool) -> Lead<'_> {
    // `-yy` adds the type of a device, in brackets that are always escaped in names.
    if text.ends_with(b">") {
        return Lead::Other;
    }
    let (text, deleted) = match text.strip_suffix(b" (deleted)").filter(|_| !deleted) {
        Some(text) => (text, true),
        None => (text, deleted),
    };
    let path = unescaped(text);
    let in_memory = IN_MEMORY.iter().any(|start| path.starts_with(start));
    if path.starts_with(b"/") && !in_memory { Lead::Path(path, deleted) } else { Lead::Other }
}
