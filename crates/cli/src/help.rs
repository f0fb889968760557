//! The help: commands in groups, and of a command with many options the ten that people use.
//! `--help` shows all.

use clap::{Arg, ArgAction, Command};

/// The commands that `flashsift help` lists, by purpose. Every other command is hidden.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Traces", &["record", "import", "describe", "diff"]),
    ("Simulate", &["compare", "recommend", "sweep", "train", "synth"]),
    ("This machine", &["doctor", "tune", "prove", "replay", "profile", "list"]),
    ("Mount", &["mount", "unmount", "status", "top", "flush", "sift"]),
];

/// Headings, each with the options below it.
type Headed = &'static [(&'static str, &'static [&'static str])];

/// The options that `-h` shows, of each command that has more than fit.
const COMMON: &[(&[&str], Headed)] = &[
    (
        &["compare"],
        &[
            ("Caches", &["policy", "memory", "system", "readahead", "sift"]),
            ("Writes", &["writeback", "metadata", "device"]),
            ("Output", &["report", "json"]),
        ],
    ),
    (
        &["describe"],
        &[
            ("Further analyses", &["device", "metadata", "readahead", "sift", "memory"]),
            ("Output", &["top", "json", "report"]),
        ],
    ),
    (
        &["recommend"],
        &[
            ("System", &["memory", "policy", "metadata", "nvm", "device"]),
            ("Output", &["json", "csv"]),
        ],
    ),
    (&["import"], &[("Input and output", &["output", "format", "columns"])]),
    (
        &["record"],
        &[
            ("Accesses to record", &["path", "pid", "device", "exact"]),
            ("Output", &["output", "for", "max-size", "anonymize"]),
        ],
    ),
    (
        &["doctor"],
        &[
            ("Watch", &["for", "device", "years"]),
            ("Remedies", &["apply", "yes", "undo", "prove"]),
            ("Output", &["top", "json", "report"]),
        ],
    ),
    (
        &["tune", "readahead"],
        &[
            ("Find a size", &["live", "for", "propose", "memory", "device"]),
            ("Change it", &["set", "on", "apply", "undo", "status"]),
        ],
    ),
    (
        &["tune", "writeback"],
        &[
            ("Find times", &["for", "lose-at-most", "on", "memory"]),
            ("Change them", &["set", "apply", "persist", "undo", "status", "settings"]),
        ],
    ),
    (
        &["prove"],
        &[("Replay", &["setting", "for", "window", "compressible"]), ("Output", &["json"])],
    ),
    (
        &["replay"],
        &[
            ("Target", &["target", "yes-destroy-data", "size", "keep"]),
            ("Requests", &["timing", "queue-depth", "nvm"]),
            ("Output", &["device", "json"]),
        ],
    ),
    (
        &["mount"],
        &[
            ("RAM", &["lose-at-most", "budget", "delay-sync", "write-through"]),
            ("Sifter", &["sift", "drop", "dry-run"]),
            ("Start", &["config", "enable", "disable"]),
        ],
    ),
    (
        &["sift", "trial"],
        &[
            ("Trial", &["for", "resume", "discard"]),
            ("Mount", &["lose-at-most", "budget", "sift", "profile", "drop"]),
            ("Output", &["json"]),
        ],
    ),
];

/// Lines of examples that `-h` shows.
const EXAMPLE_LINES: usize = 4;

/// Arranges the help of all commands.
pub(crate) fn arranged(command: Command) -> Command {
    let command = COMMON.iter().fold(command, |command, (path, headed)| {
        at(command, path, &|command| shortened(command, path, headed))
    });
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\n{}:\n{{options}}{{after-help}}",
        groups(&command),
        crate::logging::HEADING
    );
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let command = command
        .after_help("Examples and exit status: flashsift --help")
        .after_long_help(examples)
        .help_template(template);
    with_help_last(command)
}

/// Puts `-h` below the heading of the options that every command has.
fn with_help_last(command: Command) -> Command {
    let command = command.mut_subcommands(with_help_last);
    if command.is_disable_help_flag_set() {
        return command;
    }
    let help = Arg::new("help").short('h').long("help").action(ArgAction::Help);
    let shown_below = command.get_after_long_help().is_some();
    let help = help
        .hide_short_help(shown_below)
        .help("Print the common options; --help prints all")
        .help_heading(crate::logging::HEADING);
    command.disable_help_flag(true).arg(help.display_order(1000))
}

/// Changes the command at this path.
fn at(command: Command, path: &[&str], change: &dyn Fn(Command) -> Command) -> Command {
    match path {
        [] => change(command),
        [first, rest @ ..] => command.mut_subcommand(*first, |inner| at(inner, rest, change)),
    }
}

/// Lists the commands by their groups.
fn groups(command: &Command) -> String {
    let mut out = String::new();
    for (title, names) in GROUPS {
        out += &format!("\n{title}:\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            out += &crate::text::labelled(&format!("  {name:<11}"), 13, &about, 80);
        }
    }
    out
}

/// Hides all but the common options from `-h`, and most examples.
fn shortened(command: Command, path: &[&str], headed: Headed) -> Command {
    let heading = |name: &str| {
        headed.iter().find(|(_, names)| names.contains(&name)).map(|(heading, _)| *heading)
    };
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let first = examples.split("\n\n").next().unwrap_or_default();
    let mut lines: Vec<&str> = first.lines().take(EXAMPLE_LINES + 1).collect();
    while lines.last().is_some_and(|line| line.ends_with('\\')) {
        lines.pop();
    }
    let first = format!("{}\n\nAll options: flashsift {} --help", lines.join("\n"), path.join(" "));
    command
        .mut_args(|arg| match arg.get_long().and_then(heading) {
            Some(heading) => with_short_help(arg).help_heading(heading),
            None if arg.is_positional() => with_short_help(arg),
            None => arg.hide_short_help(true),
        })
        .after_help(first)
        .after_long_help(examples)
}

/// Leaves all but the first sentence of an option's help to `--help`.
fn with_short_help(arg: Arg) -> Arg {
    let Some(text) = arg.get_help().map(ToString::to_string) else { return arg };
    let end = [text.find('\n'), text.find(". "), text.find("; ")].into_iter().flatten().min();
    match end {
        Some(end) => arg.help(text[..end].to_owned()).long_help(text),
        None => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    const SHORT_LINES: usize = 40;

    /// Calls `check` with the name of each visible command, at 80 columns.
    fn each(check: &mut dyn FnMut(&str, Command)) {
        fn walk(name: &str, command: &Command, check: &mut dyn FnMut(&str, Command)) {
            check(name, command.clone());
            for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                walk(&format!("{name} {}", inner.get_name()), inner, check);
            }
        }
        let mut command = arranged(crate::Cli::command().term_width(80));
        command.build();
        walk("flashsift", &command, check);
    }

    /// `flashsift compare -h` once had 357 lines, as many as `--help`.
    #[test]
    fn short_help_fits_a_screen() {
        let mut longer = String::new();
        each(&mut |name, mut command| {
            let help = command.render_help().to_string();
            let lines = help.lines().count();
            if lines > SHORT_LINES {
                longer += &format!("{name} -h has {lines} lines:\n{help}\n");
            }
        });
        assert!(longer.is_empty(), "{longer}");
    }

    /// Each option that is named here exists, and `--help` shows all.
    #[test]
    fn long_help_has_every_option() {
        each(&mut |name, mut command| {
            let help = command.render_long_help().to_string();
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                if let Some(long) = arg.get_long() {
                    assert!(help.contains(&format!("--{long}")), "{name} --help lacks --{long}");
                }
            }
        });
        let command = crate::Cli::command();
        for (path, headed) in COMMON {
            let found = path.iter().fold(&command, |command, name| {
                command.find_subcommand(name).unwrap_or_else(|| panic!("no command {path:?}"))
            });
            let options: Vec<&str> =
                headed.iter().flat_map(|(_, names)| names.iter().copied()).collect();
            assert!(options.len() <= 10, "{path:?}: {options:?}");
            for option in options {
                let has = |arg: &Arg| arg.get_long() == Some(option);
                assert!(found.get_arguments().any(has), "{path:?} has no --{option}");
            }
        }
    }

    /// A command is in one group, or hidden.
    #[test]
    fn groups_have_every_command() {
        let command = crate::Cli::command();
        let grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let visible = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        let mut visible: Vec<&str> = visible.map(Command::get_name).collect();
        let mut sorted = grouped.clone();
        visible.sort_unstable();
        sorted.sort_unstable();
        assert_eq!(visible, sorted);
        assert_eq!(grouped.len(), 21);
    }
}
