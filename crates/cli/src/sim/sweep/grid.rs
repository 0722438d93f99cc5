//! Which cells there are: what the arguments leave of a grid, and what is told of one that was drawn.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use ::sim::file;
use ::sim::sweep::{self, Cell, Grid};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use crate::args::{SimArgs, once};
use crate::{jobs, output};

/// What the arguments leave of the whole.
///
/// # Errors
/// An unknown profile or price list.
pub fn grid(args: &SimArgs, seed: u64) -> Result<Grid> {
    let mut grid = match (args.unseen, args.quick) {
        (true, _) => Grid::unseen(seed)?,
        (_, true) => Grid::quick(seed),
        _ => Grid::whole(seed),
    };
    let known = |names: Vec<&str>| names.join(", ");
    if let Some(costs) = &args.costs {
        let all = grid.costs.clone();
        grid.costs.retain(|prices| prices.name == *costs);
        if grid.costs.is_empty() {
            bail!("--sweep knows no price list '{costs}': it has {}", known(all.iter().map(|prices| &*prices.name).collect()));
        }
    }
    if !args.profiles.is_empty() {
        // The last one is the drawn one, under whatever name.
        let all = std::mem::take(&mut grid.profiles);
        for wanted in &args.profiles {
            if wanted.ends_with(".toml") {
                let text = jobs::text(Path::new(wanted)).with_context(|| format!("profile {wanted}"))?;
                let profile = file::read_profile(wanted, &String::from_utf8_lossy(&text))?;
                let name = &profile.name;
                ensure!(
                    !sweep::ships(name),
                    "profile {wanted}: it would be called '{name}', as one that ships: give the file another name"
                );
                grid.profiles.push(profile);
                continue;
            }
            let found = all.iter().find(|profile| profile.name == *wanted || wanted == "drawn" && profile.name.starts_with("drawn"));
            let names = || known(all.iter().map(|profile| profile.name.as_str()).collect());
            grid.profiles.push(
                found
                    .with_context(|| {
                        format!(
                            "the sweep has no profile '{wanted}', but {} (or: drawn); one of your own is a file that ends in .toml",
                            names()
                        )
                    })?
                    .clone(),
            );
        }
    }
    // By the names that they have there: the drawn one has two.
    once("--profiles", &grid.profiles.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>())?;
    once("--qd", &args.qd)?;
    once("--loads", &args.loads)?;
    if !args.qd.is_empty() {
        grid = grid.at_depths(&args.qd);
    }
    if !args.loads.is_empty() {
        grid = grid.at_loads(&args.loads);
    }
    Ok(grid)
}

/// The cells of a grid that `--cells` leaves.
///
/// # Errors
/// None is left.
pub fn cells(grid: &Grid, filter: Option<&str>) -> Result<Vec<Cell>> {
    let mut cells = grid.cells();
    let Some(filter) = filter else { return Ok(cells) };
    let groups: Vec<Vec<String>> = filter.split_whitespace().map(|group| group.split(',').map(str::to_owned).collect()).collect();
    let some = cells.iter().step_by(cells.len().div_ceil(4).max(1)).map(|cell| format!("  {cell}")).collect::<Vec<_>>().join("\n");
    cells.retain(|cell| cell.is_named(&groups));
    ensure!(
        !cells.is_empty(),
        "--cells '{filter}' picks none: a cell has all of these words, or one of several with commas between. Some cells:\n{some}"
    );
    Ok(cells)
}

/// Devices and price list of a grid that was drawn, as a scenario file has them.
///
/// # Errors
/// A figure that no file can say.
pub fn told(grid: &Grid) -> Result<String> {
    let tables = grid.tables()?;
    let named: Vec<String> = tables.iter().map(|(name, text)| format!("# {name}\n{text}\n")).collect();
    Ok(named.concat() + &format!("# Depths {:?}, loads {:?}\n\n", grid.depths, grid.loads))
}

/// The same, for scripts.
///
/// # Errors
/// A figure that no file can say.
pub fn json(grid: &Grid, cells: &[Cell]) -> Result<Value> {
    let tables: Map<String, Value> = grid.tables()?.into_iter().map(|(name, text)| (name, text.into())).collect();
    let cells: Vec<String> = cells.iter().map(Cell::to_string).collect();
    Ok(json!({ "depths": grid.depths, "loads": grid.loads, "tables": tables, "cells": cells }))
}

/// Writes each cell as a scenario file, and says where.
///
/// # Errors
/// A file cannot be written, and there must be none of its name yet.
pub fn write(cells: &[Cell], dir: &Path, ios: u64, seed: u64) -> Result<ExitCode> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
    for cell in cells {
        let capacity = if cell.kind.is_open() { cell.capacity(seed)? } else { 0.0 };
        let path = dir.join(cell.to_string().replace(' ', ",") + ".toml");
        let mut file = File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
        file.write_all(cell.text(capacity, ios, seed)?.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    output::print(&format!("{} scenario files in {}: reap sim FILE runs one\n", cells.len(), dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
