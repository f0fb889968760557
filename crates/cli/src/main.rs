//! The binary: parses arguments, connects the parts, schedules, and prints. All decisions are in
//! the core.

use anyhow::Context;
use clap::{
    CommandFactory, FromArgMatches, Parser, Subcommand,
    error::{ContextKind, ContextValue},
};
use flashsift_events::show;
use logging::Verbosity;
use mount::{control, explain, foreground, helper, sift, top, trial};
use std::{
    borrow::Cow,
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};
use usage::Usage;

mod compare;
mod completions;
mod describe;
mod devices;
mod diff;
mod doctor;
mod help;
mod html_page;
mod import;
mod list;
mod load;
mod logging;
mod mount;
mod parent;
mod policies;
mod profile;
mod prove;
mod python;
mod recommend;
mod record;
mod records;
mod replay;
mod size;
mod sweep;
mod synth;
mod table;
mod text;
mod train;
mod tune;
mod usage;
mod watch;

/// Record file accesses on Linux, compare page cache designs on them, and estimate time and wear on
/// flash
#[derive(Parser)]
#[command(
    name = "flashsift",
    version,
    max_term_width = 110,
    after_help = "Examples:
  flashsift describe trace.xz                      reads, writes, lifetimes
  flashsift compare trace.xz                       every policy at five sizes
  flashsift compare trace.xz --policy lru,spatialclock --memory 4MiB,64MiB
  flashsift compare trace.xz --report r.html       as a page with figures
  flashsift recommend trace.xz                     settings that write less
  flashsift diff before.json after.json            differences of two saved runs
  sudo flashsift record -o t.parquet -- PROGRAM    reads and writes of a program
  sudo flashsift doctor                            programs that write to flash
  sudo flashsift tune readahead --live /           pages read ahead in vain
  flashsift replay t.parquet --target /mnt/card/f  time on a real device
  flashsift profile --target /mnt/card/f -o c.toml  constants of a real card
  sudo flashsift prove t.parquet --setting ext4,xfs  bytes that settings write
  flashsift mount ~/.cache/pip ~/.cache/pip        new files stay in RAM first
  flashsift top                                    the mounts, each second
  flashsift list policies mglru                    parameters and costs
  flashsift list devices                           modelled devices, and wear
  flashsift import trace.xz -o trace.parquet       any format into Parquet
  flashsift synth zipf --requests 1M -o zipf.parquet
  flashsift train *.parquet -o model.safetensors   a model; needs Python
  flashsift sweep *.parquet --policy all           many traces; needs Python

Exit status: 0: success; 1: failure, also because of the content of the trace;
2: invalid command line."
)]
struct Cli {
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Describe(describe::Args),
    Compare(compare::Args),
    Recommend(recommend::Args),
    Diff(diff::Args),
    Import(import::Args),
    Record(record::Args),
    Doctor(doctor::Args),
    Tune(tune::Args),
    Replay(replay::Args),
    Profile(profile::Args),
    Prove(prove::Args),
    Mount(mount::Args),
    Unmount(control::UnmountArgs),
    Status(control::StatusArgs),
    Top(top::Args),
    Flush(control::FlushArgs),
    Sift(sift::Args),
    #[command(hide = true)]
    MountTmpfs(mount::TmpfsArgs),
    #[command(hide = true)]
    MountAnnounce(mount::AnnounceArgs),
    List(list::Args),
    Synth(synth::Args),
    Sweep(sweep::Args),
    Train(train::Args),
    #[command(hide = true)]
    Completions(completions::Args),
    #[command(hide = true)]
    Man(completions::ManArgs),
    #[command(flatten)]
    Old(Old),
}

/// Spellings of version 0.1, which version 0.3 will not know.
#[derive(Subcommand)]
enum Old {
    /// `flashsift list policies`
    #[command(hide = true)]
    Policies(policies::Args),
    /// `flashsift list devices`
    #[command(hide = true)]
    Devices(devices::Args),
    /// `flashsift flush`
    #[command(hide = true)]
    Settle(control::FlushArgs),
    /// `flashsift sift explain`
    #[command(hide = true)]
    Explain(explain::Args),
    /// `flashsift sift foreground`
    #[command(hide = true)]
    Foreground(foreground::Args),
    /// `flashsift sift trial`
    #[command(hide = true)]
    Trial(Box<trial::Args>),
}

/// Returns the command line, with its help arranged.
fn command_line() -> clap::Command {
    help::arranged(Cli::command())
}

/// Reads the command line.
fn parsed(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = command_line().try_get_matches_from(words).map_err(|mut error| {
        // clap lists all that are similar, the most similar one last.
        if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) {
            let name = names.last().cloned().into_iter().collect();
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(name));
        }
        error
    })?;
    Cli::from_arg_matches(&matches)
}

fn main() -> ExitCode {
    parent::follow();
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    if helper::is_called(&name) {
        return mount_helper(words);
    }
    let words: Vec<_> = words.collect();
    let cli = match parsed([name].into_iter().chain(words.iter().cloned())) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => refused(&error),
        Err(help) => return printed(&help),
    };
    logging::start(cli.verbosity);
    match run(cli.command, &words) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has closed it (`| head`).
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Prints an error in the arguments, and ends. clap would print a control character of an argument,
/// which may be a file's name, as it is.
fn refused(error: &clap::Error) -> ! {
    let text = error.render().to_string();
    if let Cow::Owned(inert) = show::lines(&text, false) {
        eprint!("{inert}");
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Prints a help text or the version. clap's own `exit` ignores an output that takes nothing.
fn printed(help: &clap::Error) -> ExitCode {
    let done = help.print().and_then(|()| io::stdout().flush()).context("writing the help");
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            logging::start(Verbosity::default());
            failed(&error)
        }
    }
}

/// Runs as a helper of mount(8), with the exit codes that it expects.
fn mount_helper(words: impl Iterator<Item = OsString>) -> ExitCode {
    const USAGE: u8 = 1;
    const FAILED: u8 = 32;
    logging::start(Verbosity::default());
    let usage = |why: String| {
        tracing::error!("{}", why.trim_end());
        ExitCode::from(USAGE)
    };
    let done = match helper::translate(words) {
        Ok(helper::Call::Mount(words)) => {
            let ours = [OsString::from("flashsift")].into_iter().chain(words.iter().cloned());
            match parsed(ours) {
                Ok(cli) => run(cli.command, &words),
                Err(why) => return usage(why.to_string()),
            }
        }
        Ok(helper::Call::Remount { mountpoint, allows, stays }) => {
            control::remount(&mountpoint, &allows, &stays)
        }
        Ok(helper::Call::Fake) => Ok(()),
        Err(why) => return usage(why),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            failed(&error);
            ExitCode::from(FAILED)
        }
    }
}

fn run(command: Command, words: &[OsString]) -> anyhow::Result<()> {
    match command {
        Command::Describe(args) => describe::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Recommend(args) => recommend::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Prove(args) => prove::run(&args),
        Command::Mount(args) => mount::run(&args, words),
        Command::Unmount(args) => control::unmount(&args),
        Command::Status(args) => control::status(&args),
        Command::Top(args) => top::run(&args),
        Command::Flush(args) => control::flush(&args),
        Command::Sift(args) => sift::run(&args, words),
        Command::MountTmpfs(args) => mount::send_tmpfs(&args),
        Command::MountAnnounce(args) => mount::announce(&args),
        Command::List(args) => list::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Completions(args) => completions::run(&args, &command_line()),
        Command::Man(args) => completions::man(&args, command_line()),
        Command::Old(old) => run_old(old, words),
    }
}

/// Runs a command by its old spelling, and says how it is spelled now.
fn run_old(old: Old, words: &[OsString]) -> anyhow::Result<()> {
    let now = |new: &str| tracing::info!("this command is now `flashsift {new}`");
    match old {
        Old::Policies(args) => {
            now("list policies");
            policies::run(&args)
        }
        Old::Devices(args) => {
            now("list devices");
            devices::run(&args)
        }
        Old::Settle(args) => {
            now("flush");
            control::flush(&args)
        }
        Old::Explain(args) => {
            now("sift explain");
            explain::run(&args)
        }
        Old::Foreground(args) => {
            now("sift foreground");
            foreground::run(&args)
        }
        Old::Trial(args) => {
            now("sift trial");
            trial::run(&args, words)
        }
    }
}

/// Logs the error, unless it has been logged already.
fn failed(error: &anyhow::Error) -> ExitCode {
    if let Some(failed) = error.downcast_ref::<mount::background::Failed>() {
        return ExitCode::from(failed.code);
    }
    tracing::error!("{error:#}");
    ExitCode::from(match error.downcast_ref::<replay::Interrupted>() {
        Some(interrupted) => interrupted.exit_code(),
        None if error.is::<Usage>() || is_of_options(error) => 2,
        None => 1,
    })
}

/// Whether the options of a format make no sense, such as those of `--columns`.
fn is_of_options(error: &anyhow::Error) -> bool {
    use flashsift_traces::Error;
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(Error::Options(_))))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| io_kind(cause) == Some(io::ErrorKind::BrokenPipe))
}

/// Returns the kind of an error of input or output. Those that serde_json and csv hold are not
/// among the sources of their errors.
fn io_kind(cause: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return Some(error.kind());
    }
    if let Some(error) = cause.downcast_ref::<serde_json::Error>() {
        return error.io_error_kind();
    }
    match cause.downcast_ref::<csv::Error>()?.kind() {
        csv::ErrorKind::Io(error) => Some(error.kind()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Examples with comments once were wrapped in the middle of a line, at 80 columns.
    #[test]
    fn examples_fit_a_terminal_of_80_columns() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    /// The options of all commands were once mixed with those of each.
    #[test]
    fn options_of_all_commands_come_last() {
        let mut command = command_line();
        command.build();
        let compare = command.find_subcommand_mut("compare").expect("it is a command");
        let help = compare.render_long_help().to_string();
        let options = help.split("\nExamples:").next().unwrap_or_default();
        let flags = options.lines().filter_map(|line| line.trim_start().split(',').next());
        let short: Vec<&str> = flags.filter(|flag| flag.len() == 2).collect();
        assert_eq!(short[short.len() - 3..], ["-v", "-q", "-h"], "{help}");
        assert!(options.contains(&format!("{}:\n  -v, --verbose", logging::HEADING)), "{help}");
    }

    #[test]
    fn the_command_line_takes_the_options_of_fstab() {
        let options = "rw,nosuid,settle_after=60s,budget=256M,settled=*.db,settled=a=b,\
                       no_passthrough,no_xattr,even_if_used,even_on=tmpfs,force,allow_other";
        let words = ["/srv/a", "/mnt/b", "-o", options].map(OsString::from);
        let Ok(helper::Call::Mount(words)) = helper::translate(words.into_iter()) else {
            panic!("it is a mount");
        };
        let parsed = Cli::try_parse_from([OsString::from("flashsift")].into_iter().chain(words));
        assert!(parsed.is_ok(), "{:?}", parsed.err());
    }

    /// Scripts with the spellings of version 0.1 go on.
    #[test]
    fn old_spellings_are_understood() {
        for line in [
            "settle /mnt",
            "policies --sifters",
            "devices ufs-3.1 --toml",
            "explain *",
            "foreground --none",
            "trial /mnt --resume",
            "mount /a /b --settled *.log",
        ] {
            let words = ["flashsift"].into_iter().chain(line.split(' ')).map(OsString::from);
            assert!(parsed(words).is_ok(), "{line}");
        }
    }

    /// A list of similar commands once began with `completions` for `comprae`.
    #[test]
    fn a_mistyped_command_gets_a_proposal() {
        let error = parsed(["flashsift", "comprae"].map(OsString::from)).err().unwrap();
        let error = error.to_string();
        assert!(error.contains("compare") && !error.contains("completions"), "{error}");
    }
}
