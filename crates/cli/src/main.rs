//! The binary: parses arguments, connects the parts, schedules, and prints. All decisions are in
//! the core.

use clap::{CommandFactory, Parser, Subcommand};
use logging::Verbosity;
use mount::{control, explain, foreground, helper, sift, top, trial};
use std::{ffi::OsString, io, process::ExitCode};
use usage::Usage;

mod card;
mod compare;
mod completions;
mod describe;
mod devices;
mod diff;
mod doctor;
mod import;
mod load;
mod logging;
mod mount;
mod policies;
mod profile;
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
  flashsift describe trace.xz                     reads and writes, and how long written data lasts
  flashsift compare trace.xz                      every policy at five sizes, as a table
  flashsift compare trace.xz --policy lru,spatialclock --memory 4MiB,64MiB --json
  sudo flashsift record -o t.parquet -- PROGRAM   the reads and writes of a program
  sudo flashsift doctor                           writers of this machine's flash, and remedies
  flashsift compare trace.xz --report r.html      the same as a page with figures
  flashsift recommend trace.xz                    settings that would write less, and their price
  sudo flashsift tune readahead --live /          what the kernel reads ahead in vain
  flashsift diff before.json after.json           the differences between two saved runs
  flashsift replay after.parquet --target /mnt/card/file       the time that a real device takes
  flashsift profile --target /mnt/card/file -o card.toml       measure a card, for compare --device
  flashsift mount ~/.cache/chromium ~/.cache/chromium          keep new files in RAM first
  flashsift top                                   the mounts, refreshed each second
  flashsift policies mglru                        purpose, parameters and costs of a policy
  flashsift devices                               modelled devices, and the wear of your flash
  flashsift import trace.xz -o trace.parquet      convert any format into flashsift's Parquet format
  flashsift synth zipf --requests 1M -o zipf.parquet
  flashsift train *.parquet -o model.safetensors               a model for a sifter; needs Python
  flashsift sweep *.parquet --policy all --device all          many traces, on all cores; likewise

Exit status: 0: success; 1: failure, also because of the content of the trace; 2: invalid command \
                  line."
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
    Mount(mount::Args),
    Status(control::StatusArgs),
    Top(top::Args),
    Sift(sift::Args),
    Explain(explain::Args),
    Foreground(foreground::Args),
    Trial(trial::Args),
    #[command(visible_alias = "flush")]
    Settle(control::SettleArgs),
    Unmount(control::UnmountArgs),
    #[command(hide = true)]
    MountTmpfs(mount::TmpfsArgs),
    #[command(hide = true)]
    MountAnnounce(mount::AnnounceArgs),
    Policies(policies::Args),
    Devices(devices::Args),
    Synth(synth::Args),
    Sweep(sweep::Args),
    Train(train::Args),
    Completions(completions::Args),
    Man(completions::ManArgs),
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    if helper::is_called(&name) {
        return mount_helper(words);
    }
    let words: Vec<_> = words.collect();
    let cli = Cli::parse();
    logging::start(cli.verbosity);
    match run(cli.command, &words) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has closed it (`| head`).
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
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
            match Cli::try_parse_from(ours) {
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
        Command::Mount(args) => mount::run(&args, words),
        Command::Status(args) => control::status(&args),
        Command::Top(args) => top::run(&args),
        Command::Sift(args) => sift::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Foreground(args) => foreground::run(&args),
        Command::Trial(args) => trial::run(&args, words),
        Command::Settle(args) => control::settle(&args),
        Command::Unmount(args) => control::unmount(&args),
        Command::MountTmpfs(args) => mount::send_tmpfs(&args),
        Command::MountAnnounce(args) => mount::announce(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Completions(args) => completions::run(&args, &Cli::command()),
        Command::Man(args) => completions::man(&args, Cli::command()),
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
        None if error.is::<Usage>() => 2,
        None => 1,
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_line_takes_the_options_of_fstab() {
        let options = "rw,nosuid,settle_after=60s,budget=256M,settled=*.db,settled=a=b,\
                       no_passthrough,even_if_used,even_on=tmpfs,force,allow_other";
        let words = ["/srv/a", "/mnt/b", "-o", options].map(OsString::from);
        let Ok(helper::Call::Mount(words)) = helper::translate(words.into_iter()) else {
            panic!("it is a mount");
        };
        let parsed = Cli::try_parse_from([OsString::from("flashsift")].into_iter().chain(words));
        assert!(parsed.is_ok(), "{:?}", parsed.err());
    }

    /// `flush` is what other programs call it; the help shows both names.
    #[test]
    fn flush_is_an_alias_of_settle() {
        let cli = Cli::try_parse_from(["flashsift", "flush", "/mnt"]).ok().unwrap();
        assert!(matches!(cli.command, Command::Settle(_)));
        let help = Cli::command().render_help().to_string();
        assert!(
            help.lines().any(|line| line.contains("settle") && line.contains("flush")),
            "{help}"
        );
    }
}
