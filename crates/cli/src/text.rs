//! Wraps text to the width of the terminal, and keeps names in it from having an effect there.

use flashsift_events::show;
use std::{
    borrow::Cow,
    io::{self, IsTerminal},
};

/// Returns the columns that the variable `COLUMNS` gives, or those of the terminal on standard
/// output; `None` without both.
pub(crate) fn columns() -> Option<usize> {
    let given = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    if let Some(columns) = given.filter(|columns| *columns > 0) {
        return Some(columns);
    }
    let out = io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok())??;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Whether standard output is a terminal with styles that neither `NO_COLOR` nor `TERM` forbids.
pub(crate) fn in_color() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Returns text for standard output in which nothing drives the terminal but our own styles.
pub(crate) fn inert(text: &str) -> Cow<'_, str> {
    match show::lines(text, false) {
        Cow::Owned(_) if in_color() => show::lines(text, true),
        inert => inert,
    }
}

/// Replaces spaces so that no line breaks within the text.
pub(crate) fn unbroken(value: &str) -> String {
    value.replace(' ', "\u{a0}")
}

/// Joins values that were split at commas inside parameters: `clock:a=1,b=2,lru`.
pub(crate) fn joined(texts: &[String]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for text in texts {
        match joined.last_mut() {
            Some(last) if text.contains('=') && !text.contains(':') && last.contains(':') => {
                last.push(',');
                last.push_str(text);
            }
            _ => joined.push(text.clone()),
        }
    }
    joined
}

/// Formats a label and a text beside it, wrapped between words. The text begins at `indent` on
/// every line, and ends with a newline. Names within it are [one line](show::name).
pub(crate) fn labelled(label: &str, indent: usize, text: &str, columns: usize) -> String {
    let text = show::name(text);
    let mut out = format!("{label:<indent$}");
    let mut at = out.chars().count();
    for (n, word) in text.split(' ').enumerate() {
        let len = word.chars().count();
        if n > 0 && at + 1 + len > columns {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            at = indent;
        } else if n > 0 {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        at += len;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::labelled;

    #[test]
    fn wraps_between_words_beside_the_label() {
        let text = labelled("  is:", 6, "one two three overlongword x", 12);
        assert_eq!(text, "  is: one\n      two\n      three\n      overlongword\n      x\n");
        assert_eq!(labelled("a", 3, "b c", 80), "a  b c\n");
    }
}
