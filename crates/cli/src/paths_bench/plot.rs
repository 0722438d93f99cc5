//! The bench as a picture: nanoseconds over hardware queues and over paths, a line for each policy.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use reap::paths::Policy;

use super::row::Row;

const SIZE: (u32, u32) = (1200, 900);

/// What a panel shows: its title, the axis, and the points of a row that belongs to it.
type Panel = (&'static str, &'static str, fn(&Row) -> Option<f64>);

const PANELS: [Panel; 4] = [
    ("2 paths, 1 thread", "hardware queues", |row| (row.paths == 2 && row.threads == 1).then_some(row.queues.into())),
    ("2 paths, 2 threads", "hardware queues", |row| (row.paths == 2 && row.threads == 2).then_some(row.queues.into())),
    ("64 hardware queues, 1 thread", "paths", |row| (row.queues == 64 && row.threads == 1).then_some(row.paths.into())),
    ("64 hardware queues, 2 threads", "paths", |row| (row.queues == 64 && row.threads == 2).then_some(row.paths.into())),
];

/// An SVG.
///
/// # Errors
/// What the drawing library says.
pub fn draw(rows: &[Row]) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(said)?;
        let root = root.titled("Choosing a path: ns for choose + start + end", ("sans-serif", 24)).map_err(said)?;
        for (panel, area) in PANELS.iter().zip(root.split_evenly((2, 2))) {
            draw_panel(panel, rows, &area)?;
        }
        root.present().map_err(said)?;
    }
    Ok(svg)
}

fn draw_panel(panel: &Panel, rows: &[Row], area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Result<()> {
    let (title, axis, place) = panel;
    let mut lines: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows {
        let policy = Policy::ALL.iter().position(|policy| policy.name() == row.policy);
        if let (Some(policy), Some(x)) = (policy, place(row)) {
            lines.entry(policy).or_default().push((x, row.ns));
        }
    }
    let all = || lines.values().flatten();
    let (most_x, most) = all().fold((2.0, 10.0), |(x, y): (f64, f64), point| (x.max(point.0), y.max(point.1)));
    let least = all().map(|point| point.1).fold(1.0f64, f64::min).max(0.1);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d((1.0..most_x * 1.05).log_scale(), (least..most * 1.3).log_scale())
        .map_err(said)?;
    chart.configure_mesh().x_desc(*axis).y_desc("ns").light_line_style(BLACK.mix(0.04)).draw().map_err(said)?;
    for (policy, points) in lines {
        let color = Palette99::pick(policy).stroke_width(2);
        let series = LineSeries::new(points, color).point_size(3);
        let name = Policy::ALL.get(policy).map_or("", |policy| policy.name());
        let drawn = chart.draw_series(series).map_err(said)?;
        drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8)).draw().map_err(said)?;
    Ok(())
}

fn said(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the picture cannot be drawn: {error}")
}
