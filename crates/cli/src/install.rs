//! `reap install`: manual pages and shell completions, generated from the definition of the command
//! line.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Cli, InstallArgs, modes};
use crate::output;

/// Runs `reap install`.
pub fn run(args: &InstallArgs) -> Result<ExitCode> {
    for (path, bytes) in pages()? {
        let path = args.prefix.join(path);
        // Directories of the prefix may not exist yet, as share/zsh in ~/.local.
        let written = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, &bytes));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        output::print(&format!("{}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The files: paths below the prefix, and contents.
fn pages() -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut command = Cli::command();
    // Sets the names of subcommands in manuals, as `reap-run`.
    command.build();
    let mut pages = Vec::new();
    let subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    for page in std::iter::once(&command).chain(subcommands) {
        let name = page.get_display_name().unwrap_or_else(|| page.get_name()).to_owned();
        let mut text = Vec::new();
        Man::new(page.clone()).title(name.to_uppercase()).render(&mut text)?;
        pages.push((format!("share/man/man1/{name}.1").into(), text));
    }
    let places = [
        (Shell::Bash, "share/bash-completion/completions/reap"),
        (Shell::Zsh, "share/zsh/site-functions/_reap"),
        (Shell::Fish, "share/fish/vendor_completions.d/reap.fish"),
    ];
    // Shells complete names of modes, although the options accept parameters as well.
    let mut offering = Cli::command();
    for (command, option, kernels) in
        [("run", "completion", true), ("compare", "modes", true), ("sim", "modes", false)]
    {
        let names: Vec<String> = modes(kernels).map(|mode| mode.to_string()).collect();
        offering = offering.mut_subcommand(command, |sub| {
            sub.mut_arg(option, |arg| arg.value_parser(PossibleValuesParser::new(names)))
        });
    }
    for (shell, place) in places {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut offering, "reap", &mut text);
        pages.push((place.into(), text));
    }
    Ok(pages)
}

#[cfg(test)]
mod tests;
