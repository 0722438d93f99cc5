//! A headless Chromium: what a page has become once its scripts have run.

use std::env;
use std::path::Path;
use std::time::Duration;

/// Longer than a page takes to be drawn on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// What the charting library calls its marks, other than axes, grids, labels and tooltips.
const MARKS: [&str; 6] = ["dot", "line", "area", "bar", "rule", "tick"];

/// A page after its scripts have run.
pub struct Shown {
    /// Its elements, as HTML.
    pub dom: String,
    /// What its scripts said on the console, or of themselves.
    pub complaints: Vec<String>,
}

/// Opens `file` in a window this many pixels wide.
pub fn show(file: &Path, width: u32) -> Shown {
    let browser = env::var("REAP_CHROMIUM")
        .expect("REAP_CHROMIUM names the browser; tests/report.sh sets it");
    let profile = tempfile::tempdir().unwrap();
    let mut command = assert_cmd::Command::new(browser);
    command.timeout(LIMIT).args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
        "--dump-dom",
    ]);
    command
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},2000"));
    // No name resolves: a page that wants the network fails.
    command.arg("--host-resolver-rules=MAP * ~NOTFOUND").arg(format!("file://{}", file.display()));
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut shown = Shown { dom: text(&output.stdout), complaints: Vec::new() };
    shown.complaints = text(&output.stderr)
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .map(str::to_owned)
        .collect();
    shown.complaints.extend(shown.attribute("data-trouble"));
    // The scripts themselves are in the DOM as well: what is asked of it is asked of what they
    // made.
    shown.dom = without_scripts(&shown.dom);
    shown
}

/// Everything but what scripts and styles say.
fn without_scripts(dom: &str) -> String {
    let mut left = String::new();
    let mut rest = dom;
    while let Some((before, after)) = rest.split_once("<script") {
        left += before;
        rest = after.split_once("</script>").map_or("", |(_, after)| after);
    }
    left + rest
}

impl Shown {
    /// The value of the first attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let (_, rest) = self.dom.split_once(&format!(" {name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    }

    /// How many marks the chart has, or rows if it is a table; `None`: it is not there.
    pub fn marks(&self, chart: &str) -> Option<usize> {
        let (_, rest) = self.dom.split_once(&format!("data-chart=\"{chart}\""))?;
        let figure = rest.split_once("</figure>").map_or(rest, |(figure, _)| figure);
        if figure.contains("<table") {
            return Some(figure.matches("<tr").count().saturating_sub(1));
        }
        let of = |mark: &str| {
            let groups = figure
                .split(&format!("<g aria-label=\"{mark}\""))
                .skip(1)
                .map(shapes)
                .collect::<Vec<usize>>();
            groups.iter().sum::<usize>()
        };
        Some(MARKS.iter().map(|mark| of(mark)).sum())
    }
}

/// Shapes that are somewhere, in the group whose inside this begins with.
fn shapes(rest: &str) -> usize {
    let group = rest.split_once("</g>").map_or(rest, |(group, _)| group);
    ["<path d=\"M", "<circle ", "<rect ", "<line "]
        .iter()
        .map(|shape| group.matches(shape).count())
        .sum()
}
