//! `flashsift completions` and `flashsift man`: the command line as shells and man(1) want it.

use crate::records;
use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use std::{fs, io::Write as _, path::PathBuf};
use tracing::info;

/// Print the completions of a shell: the subcommands and options that Tab proposes
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift completions bash \\
      > ~/.local/share/bash-completion/completions/flashsift
  flashsift completions zsh > ~/.zfunc/_flashsift     with ~/.zfunc in $fpath
  flashsift completions fish > ~/.config/fish/completions/flashsift.fish")]
pub(crate) struct Args {
    /// Shell that reads the completions
    #[arg(value_name = "SHELL", ignore_case = true)]
    shell: Shell,
}

/// Write the manual pages, one for each subcommand, into a directory
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift man ~/.local/share/man/man1 && man flashsift-compare")]
pub(crate) struct ManArgs {
    /// Directory of the pages; it is created if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(args: &Args, command: &Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(command), "flashsift", &mut script);
    let mut out = records::Output::exact();
    out.write_all(&script)?;
    out.finish()
}

/// Returns the command without its hidden subcommands, which Tab would propose.
fn visible(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let about = command.get_about().cloned().unwrap_or_default();
    Command::new("flashsift")
        .about(about)
        .version(env!("CARGO_PKG_VERSION"))
        // The command has one of its own, which stands behind the other options.
        .disable_help_flag(true)
        .args(command.get_arguments())
        .subcommands(shown)
}

/// Writes `flashsift.1` and `flashsift-SUBCOMMAND.1`. Hidden subcommands have no page.
pub(crate) fn man(args: &ManArgs, command: Command) -> anyhow::Result<()> {
    let at = || args.directory.display().to_string();
    fs::create_dir_all(&args.directory).with_context(at)?;
    clap_mangen::generate_to(command, &args.directory).with_context(at)?;
    info!("wrote the manual pages to {}", args.directory.display());
    Ok(())
}
