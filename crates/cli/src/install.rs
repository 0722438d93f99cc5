//! `reap install`: manual pages and shell completions, made of the command line's own description.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Cli, InstallArgs};
use crate::output;

/// A file: where it goes below the prefix, and what is in it.
type Page = (PathBuf, Vec<u8>);

/// Writes them, and says which.
///
/// # Errors
/// One cannot be written.
pub fn run(args: &InstallArgs) -> Result<ExitCode> {
    for (path, bytes) in pages()? {
        let path = args.prefix.join(path);
        write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
        output::print(&format!("{}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, bytes)
}

fn pages() -> Result<Vec<Page>> {
    let mut command = Cli::command();
    // Subcommands get the names that they have in manuals: `reap-run`.
    command.build();
    let mut pages = Vec::new();
    let subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    for page in std::iter::once(&command).chain(subcommands) {
        pages.push(manual(page)?);
    }
    let places = [
        (Shell::Bash, "share/bash-completion/completions/reap"),
        (Shell::Zsh, "share/zsh/site-functions/_reap"),
        (Shell::Fish, "share/fish/vendor_completions.d/reap.fish"),
    ];
    for (shell, place) in places {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "reap", &mut text);
        pages.push((place.into(), text));
    }
    Ok(pages)
}

fn manual(command: &Command) -> Result<Page> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut text = Vec::new();
    Man::new(command.clone()).title(name.to_uppercase()).render(&mut text)?;
    Ok((format!("share/man/man1/{name}.1").into(), text))
}

#[cfg(test)]
mod tests;
