//! The steps of a remedy: flashsift can perform and undo them, and people find them as commands.

use super::remedies::quoted;
use serde::{Deserialize, Serialize};

/// Before a line of a file that a remedy replaces; the replacement follows it.
pub const MARK: &str = "#flashsift ";
/// Stands for the former value in [`RemedyStep::Command`]'s `undo`.
pub const OLD: &str = "OLD";

/// A step of a remedy. Commands have no `sudo`: root runs them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RemedyStep {
    /// A file that is flashsift's alone.
    File {
        /// Its path.
        path: String,
        /// Its content.
        content: String,
        /// Its folder may not be there yet.
        #[serde(default)]
        new_folder: bool,
    },
    /// The same at the next start, with the output of a command.
    Output {
        /// Its path.
        path: String,
        /// The command.
        command: String,
    },
    /// Lines of a file are replaced. Each stays above its replacement as a comment with [`MARK`].
    Lines {
        /// Path of the file.
        path: String,
        /// A whole line, as a regular expression of `sed -E`.
        from: String,
        /// The replacement, as `sed` takes it.
        into: String,
    },
    /// A line at the end of a file, for the next start: the output of a command.
    Line {
        /// Path of the file.
        path: String,
        /// The begin of the line, that no other line has.
        begins: String,
        /// The command.
        command: String,
    },
    /// An option in the line of `/etc/fstab` that mounts a file system.
    MountOption {
        /// Mount point.
        point: String,
        /// The option.
        option: String,
    },
    /// A value that a command sets, another one restores, and a third one prints.
    Command {
        /// Sets it.
        run: String,
        /// Restores it. [`OLD`] stands for the former value.
        undo: String,
        /// Prints it.
        read: String,
        /// The value that it is to have.
        value: String,
        /// The value that most machines have, for people.
        #[serde(default)]
        old: String,
        /// People run it as the owner of the data, without `sudo`.
        #[serde(default)]
        of_user: bool,
    },
    /// A command that makes a program read its configuration, after the changes and after their
    /// undo.
    After {
        /// The command.
        run: String,
    },
    /// A command that is needed first, by a person.
    Needs {
        /// The command.
        run: String,
        /// Succeeds where it is not needed.
        unless: String,
    },
    /// Settings of `tune writeback`.
    WriteBack {
        /// `NAME=VALUE`.
        set: Vec<String>,
        /// Mount point.
        on: String,
    },
    /// A person has to do it.
    Person {
        /// The command, or after `#` words.
        run: String,
        /// The same that undoes it; may be empty.
        undo: String,
        /// It is for the next start.
        #[serde(default)]
        lasting: bool,
    },
}

/// The steps of a remedy as commands of a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    /// They do it now. They last, if there are no others.
    pub(super) now: Vec<String>,
    /// They do it from the next start on.
    pub(super) lasting: Vec<String>,
    /// They undo both, whichever of them ran.
    pub(super) undo: Vec<String>,
}

const UNDO_WRITE_BACK: &str = "sudo flashsift tune writeback --undo all";

/// Returns the commands of steps.
pub(super) fn commands(steps: &[RemedyStep]) -> Commands {
    let mut all = Commands::default();
    for step in steps {
        all.add(step);
    }
    all
}

impl Commands {
    fn add(&mut self, step: &RemedyStep) {
        let Self { now, lasting, undo } = self;
        match step {
            RemedyStep::File { path, content, new_folder } => {
                let folder = quoted(path.rsplit_once('/').map_or("/", |(folder, _)| folder));
                if *new_folder {
                    now.push(format!("sudo mkdir -p {folder}"));
                }
                now.push(format!("printf '{}' | sudo tee {}", for_printf(content), quoted(path)));
                undo.push(format!("sudo rm {}", quoted(path)));
                if *new_folder {
                    undo.push(format!("sudo rmdir --ignore-fail-on-non-empty {folder}"));
                }
            }
            RemedyStep::Output { path, command } => {
                lasting.push(format!("sudo {command} | sudo tee {}", quoted(path)));
                undo.push(format!("sudo rm -f {}", quoted(path)));
            }
            RemedyStep::Lines { path, from, into } => {
                now.push(format!("sudo sed -i -E '{}' {}", lines_script(from, into), quoted(path)));
                undo.push(format!("sudo sed -i '/^{MARK}/{{s///;n;d}}' {}", quoted(path)));
            }
            RemedyStep::Line { path, begins, command } => {
                lasting.push(format!("sudo {command} | sudo tee -a {}", quoted(path)));
                undo.push(format!("sudo sed -i '\\|^{begins}|d' {}", quoted(path)));
            }
            RemedyStep::MountOption { point, option } => {
                // Another path needs the escapes of fstab and of sed.
                if quoted(point) == *point && !point.contains(['+', '.']) {
                    // The options are the fourth word of a line, and others follow.
                    let line = format!(r"^([^#[:space:]]\S*\s+{point}\s+\S+\s+\S+)");
                    let sed = |script: String| format!("sudo sed -i -E '{script}' /etc/fstab");
                    lasting.push(sed(format!(r"s|{line}|\1,{option}|")));
                    undo.push(sed(format!(r"s|{line},{option}(\s)|\1\2|")));
                }
            }
            RemedyStep::Command { run, undo: back, old, of_user, .. } => {
                let sudo = if *of_user { "" } else { "sudo " };
                now.push(format!("{sudo}{run}"));
                undo.push(format!("{sudo}{}", back.replace(OLD, old)));
            }
            RemedyStep::After { run } => {
                now.push(format!("sudo {run}"));
                undo.push(format!("sudo {run}"));
            }
            RemedyStep::Needs { run, .. } => now.push(format!("sudo {run}")),
            RemedyStep::WriteBack { set, on } => {
                let (set, on) = (set.join(","), quoted(on));
                let command =
                    format!("sudo flashsift tune writeback --set {set} --on {on} --apply");
                // A setting that is changed already is undone before it is changed again.
                if undo.is_empty() {
                    undo.push(UNDO_WRITE_BACK.to_owned());
                    lasting.push(UNDO_WRITE_BACK.to_owned());
                }
                lasting.push(format!("{command} --persist"));
                now.push(command);
            }
            RemedyStep::Person { run, undo: back, lasting: at_start } => {
                if *at_start { lasting } else { now }.push(run.clone());
                undo.extend(Some(back.clone()).filter(|back| !back.is_empty()));
            }
        }
    }
}

/// Returns the script of `sed -E` that replaces lines.
pub fn lines_script(from: &str, into: &str) -> String {
    format!("s|^{from}$|{MARK}&\\n{into}|")
}

/// Text as the format of `printf` between single quotes.
fn for_printf(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out += r"\\",
            '%' => out += "%%",
            '\n' => out += r"\n",
            '\'' => out += r"'\''",
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_commands_with_their_undo() {
        let of = |step: RemedyStep| commands(&[step]);
        let file = of(RemedyStep::File {
            path: "/etc/a b/f.conf".to_owned(),
            content: "50%\n'x\\'\n".to_owned(),
            new_folder: false,
        });
        assert_eq!(file.now, [r"printf '50%%\n'\''x\\'\''\n' | sudo tee '/etc/a b/f.conf'"]);
        assert_eq!(file.undo, ["sudo rm '/etc/a b/f.conf'"]);
        let text = |text: &str| text.to_owned();
        let (path, from, into) = (text("/etc/f"), text("a .*"), text("a b"));
        let lines = of(RemedyStep::Lines { path, from, into });
        assert_eq!(lines.now, [r"sudo sed -i -E 's|^a .*$|#flashsift &\na b|' /etc/f"]);
        let command = of(RemedyStep::Command {
            run: text("set 2"),
            undo: text("set OLD"),
            read: text("get"),
            value: text("2"),
            old: text("1"),
            of_user: false,
        });
        assert_eq!((&*command.now[0], &*command.undo[0]), ("sudo set 2", "sudo set 1"));
        let point =
            |point: &str| RemedyStep::MountOption { point: text(point), option: text("noatime") };
        assert_eq!(of(point("/srv")).lasting.len(), 1);
        assert!(of(point("/a b")).lasting.is_empty());
    }
}
