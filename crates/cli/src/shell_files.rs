//! `pleach completions` and `pleach man-pages`: what packages install beside the program.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use lab::CommandOutcome;

/// Print the completions of a shell.
#[derive(clap::Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

const COMPLETIONS_HELP: &str = "\
Examples:
  pleach completions bash > ~/.local/share/bash-completion/completions/pleach
  pleach completions zsh > ~/.zfunc/_pleach
  pleach completions fish > ~/.config/fish/completions/pleach.fish";

/// Write the manual pages of all commands.
#[derive(clap::Args)]
pub(crate) struct ManPagesArgs {
    /// Folder for the pages; it is made if it does not exist
    folder: PathBuf,
}

pub(crate) fn print_completions(arguments: &CompletionsArgs, mut command: Command) -> Result<CommandOutcome> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "pleach", &mut text);
    std::io::stdout().write_all(&text).context("cannot write the completions")?;
    Ok(CommandOutcome::Passed)
}

pub(crate) fn write_man_pages(arguments: &ManPagesArgs, command: Command) -> Result<CommandOutcome> {
    let folder = &arguments.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("cannot write manual pages to {}", folder.display()))?;
    Ok(CommandOutcome::Passed)
}
