//! The pages of `--html` in a real browser: every chart has marks, no script complains, nothing is
//! wider than a phone.
//!
//! Needs a headless Chromium, which `tests/report.sh` looks for (`REAP_CHROMIUM`); so these tests
//! are ignored elsewhere.

mod browser;
mod page;

use std::fs;
use std::path::Path;

use browser::Shown;
use page::Page;

/// A small sweep: several loads.
const SWEEP: &str = "compare --device mem:16M --modes interrupt,poll,adaptive?delay-exponent=0,adaptive?delay-exponent=1 --repeat 2 --loads 10,40,100 --qd 8";
/// The charts that a sweep has, and those of a single scene.
const SWEEP_CHARTS: [&str; 4] = ["pareto", "load", "distribution", "table"];
const PLAIN_CHARTS: [&str; 3] = ["pareto", "distribution", "table"];

/// What is done to a page's data.
type Damage = fn(&mut serde_json::Value);

/// What is wrong with `shown`, which should have these charts.
fn faults(shown: &Shown, charts: &[&str]) -> Vec<String> {
    let mut faults: Vec<String> =
        shown.complaints.iter().map(|line| format!("a script complains: {line}")).collect();
    for chart in charts {
        match shown.marks(chart) {
            None => faults.push(format!("{chart}: there is no such chart")),
            Some(0) => faults.push(format!("{chart}: no marks")),
            Some(_) => {}
        }
    }
    if shown.dom.contains("NaN") {
        faults.push("a mark is nowhere: NaN".into());
    }
    faults
}

#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn sweep_charts_are_drawn() {
    let place = tempfile::tempdir().unwrap();
    let page = Page::of(place.path(), SWEEP);
    assert_eq!(faults(&page.show(), &SWEEP_CHARTS), Vec::<String>::new());
    // On a phone nothing is wider than the screen.
    let phone = page.with(|text| text.replace("</body>", WIDTH_PROBE)).show_wide(390);
    assert!(phone.dom.contains("data-too-wide=\"\""), "{:?}", phone.attribute("data-too-wide"));
    // The broken mutants: what the check is worth.
    let mutants: [(&str, Damage); 3] = [
        ("distribution: there is no such chart", |data| {
            each_row(data, |row| drop(row.remove("lat_curve")))
        }),
        ("pareto: there is no such chart", |data| {
            each_row(data, |row| drop(row.remove("cpu_ns_per_io")))
        }),
        ("a script complains", |data| {
            drop(data["results"].as_object_mut().unwrap().remove("rows"))
        }),
    ];
    for (fault, damage) in mutants {
        let found = faults(&page.damaged(damage).show(), &SWEEP_CHARTS);
        assert!(
            found.iter().any(|found| found.starts_with(fault)),
            "{fault:?} is not among {found:?}"
        );
    }
    // Charts without their marks: the library is there, and draws nothing.
    let empty = page.with(|text| text.replace(", ...marks,", ","));
    assert!(faults(&empty.show(), &["pareto"]).contains(&"pareto: no marks".to_owned()));
}

#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn job_charts_are_drawn() {
    let place = tempfile::tempdir().unwrap();
    fs::write(
        place.path().join("job.fio"),
        "[</script><b>&\"x\"]\nrw=randread\nbs=4k\niodepth=8\n",
    )
    .unwrap();
    let page = Page::of(
        place.path(),
        "compare job.fio --device mem:16M --modes interrupt,interrupt+submit-check,poll --repeat 2",
    );
    assert_eq!(faults(&page.show(), &PLAIN_CHARTS), Vec::<String>::new());
}

/// On a file nothing is known of messages, and system calls are.
#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn file_charts_are_drawn() {
    let place = tempfile::tempdir().unwrap();
    let page = Page::of(
        place.path(),
        "compare --device kernel:disk?size=8M --modes interrupt,poll,adaptive --repeat 2",
    )
    .show();
    assert_eq!(faults(&page, &PLAIN_CHARTS), Vec::<String>::new());
    let headings: Vec<&str> = page
        .dom
        .split("<th ")
        .skip(1)
        .filter_map(|rest| rest.split_once("</th>"))
        .map(|(heading, _)| heading)
        .collect();
    let has = |words: &str| headings.iter().any(|heading| heading.contains(words));
    assert!(has("system calls per I/O") && !has("messages/s") && !has("notify"), "{headings:?}");
}

#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn simulation_charts_are_drawn() {
    let place = tempfile::tempdir().unwrap();
    let page = Page::of(place.path(), "sim --modes interrupt,poll --seeds 3");
    assert_eq!(
        faults(&page.show(), &["pareto", "split", "distribution", "table"]),
        Vec::<String>::new()
    );
    let paths = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/path-loss.toml");
    let page = Page::of(place.path(), &format!("sim {}", paths.display())).show();
    assert_eq!(
        (faults(&page, &["split", "paths", "table"]), page.marks("paths")),
        (Vec::new(), Some(4))
    );
}

/// A reader with a keyboard stays at the same place: the focus, and how far the table is scrolled.
#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn controls_keep_the_focus() {
    let place = tempfile::tempdir().unwrap();
    let page = Page::of(place.path(), SWEEP).with(|text| text.replace("</body>", KEYBOARD_PROBE));
    let held = |page: &Page| page.show_wide(390).attribute("data-held");
    assert_eq!(held(&page).as_deref(), Some("SELECT 0 BUTTON IOPS ↑ true"));
    // Negative test: the position is not kept.
    let forgets = page.with(|text| text.replace("figures.forEach(back);", ""));
    assert_eq!(held(&forgets).as_deref(), Some("BODY  BODY  false"));
}

/// The page begins with the verdict, the date and one chart, whose names do not cover one another,
/// on a desk as on a phone.
#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn page_begins_with_the_verdict() {
    let place = tempfile::tempdir().unwrap();
    let modes = "interrupt,interrupt+submit-check,irq-poll,irq-poll+submit-check,threaded,hybrid-mean,hybrid-min,suspend,poll,adaptive";
    let page = Page::of(place.path(), &format!("sim --modes {modes} --seeds 1"));
    let probed = page.with(|text| text.replace("</body>", NAMES_PROBE));
    for width in [1280, 390] {
        let shown = probed.show_wide(width);
        assert_eq!(
            shown.attribute("data-names").as_deref(),
            Some("10 names, covered: , outside: "),
            "{width}"
        );
        assert!(shown.dom.contains("<h1 id=\"verdict\"><span>In this scenario: "), "{width}");
        let first = shown.dom.find("data-chart=\"").map(|at| &shown.dom[at..at + 19]);
        assert_eq!(first, Some("data-chart=\"pareto\""));
        assert!(
            shown.dom.contains(" UTC</time>") && !shown.dom.contains("inconclusive)"),
            "{width}"
        );
    }
    // The negative test: names at their points cover one another.
    let piled =
        probed.with(|text| text.replace("const free = (box) =>", "const free = (box) => true ||"));
    assert!(!piled.show().attribute("data-names").unwrap().contains("covered: ,"));
    // What is inconclusive says so.
    let doubted = page
        .damaged(|data| each_row(data, |row| drop(row.insert("valid".into(), false.into()))))
        .show();
    assert!(
        doubted.dom.contains("class=\"inconclusive\"") && doubted.dom.contains("(inconclusive)")
    );
    // Nothing shown at all is said.
    let hide = "<script>modes.forEach((mode) => (mode.shown = false)); redraw()</script></body>";
    let hidden = page.with(|text| text.replace("</body>", hide)).show();
    assert!(
        hidden.complaints.is_empty() && hidden.dom.contains("No mode is shown"),
        "{:?}",
        hidden.complaints
    );
}

/// What a chart says of itself to who does not see it.
#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn every_chart_has_a_caption() {
    let place = tempfile::tempdir().unwrap();
    for arguments in ["sim --modes interrupt,poll --seeds 1", SWEEP] {
        let shown = Page::of(place.path(), arguments).show();
        let said: Vec<&str> = shown
            .dom
            .split("role=\"img\" aria-label=\"")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('"')?.0))
            .collect();
        assert!(said.len() > 1, "{said:?}");
        for said in said {
            let words = said.split_once(": ").map_or("", |(_, words)| words);
            assert!(
                !words.trim().is_empty()
                    && !words.starts_with(" against")
                    && !words.ends_with("against "),
                "{said:?}"
            );
        }
    }
}

#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn foreign_text_is_not_markup() {
    let place = tempfile::tempdir().unwrap();
    let page = Page::of(place.path(), "compare --device mem:16M --modes poll --repeat 1");
    let evil = "</script><img src=x onerror=document.body.dataset.owned=1>?delay-exponent=10%";
    let shown = page.damaged(|data| {
        data["title"] = evil.into();
        data["notes"] = vec![evil].into();
        each_row(data, |row| drop(row.insert("mode".into(), evil.into())));
    });
    let shown = shown.show();
    assert!(!shown.dom.contains("data-owned"), "a name became an element");
    assert!(shown.dom.contains("&lt;/script&gt;&lt;img src=x"));
    assert_eq!(faults(&shown, &["pareto", "table"]), Vec::<String>::new());
}

/// Says in the page which elements reach over its right edge.
const WIDTH_PROBE: &str = "<script>document.body.dataset.tooWide = document.documentElement.scrollWidth > innerWidth \
    ? [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.className || e.tagName).join() || 'something' \
    : '';</script></body>";

/// Says in the page how many names the first chart has, which ones cover each other, and which are
/// not in the window.
const NAMES_PROBE: &str = "<script>{
    const names = [...document.querySelectorAll('#first .name')].map((one) => [one.textContent, one.getBoundingClientRect()]);
    const cover = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom - 3 && b.top < a.bottom - 3;
    const covered = names.flatMap(([a, x], at) => names.slice(at + 1).filter(([, y]) => cover(x, y)).map(([b]) => `${a} and ${b}`));
    const outside = names.filter(([, x]) => x.left < 0 || x.right > innerWidth).map(([a]) => a);
    document.body.dataset.names = `${names.length} names, covered: ${covered.join()}, outside: ${outside.join()}`;
}</script></body>";

/// Uses a select and a heading of the table as one does by keyboard, and says in the page where
/// that leaves the focus, and whether the table is scrolled as far as before.
const KEYBOARD_PROBE: &str = "<script>{
    const use = (control, act) => { control.focus(); act(control); return document.activeElement; };
    const select = document.querySelector('figure[data-chart=pareto] select');
    const chosen = use(select, (one) => { one.value = '0'; one.dispatchEvent(new Event('change')); });
    const table = document.querySelector('figure[data-chart=table] .scroll');
    table.scrollLeft = 40;
    const pressed = use(table.querySelectorAll('th button')[2], (one) => one.click());
    const after = document.querySelector('figure[data-chart=table] .scroll');
    document.body.dataset.held = [chosen.tagName, chosen.value, pressed.tagName, pressed.tagName === 'BUTTON' ? pressed.textContent : '',
        after.scrollLeft === 40].join(' ');
}</script></body>";

fn each_row(
    data: &mut serde_json::Value,
    change: impl Fn(&mut serde_json::Map<String, serde_json::Value>),
) {
    for row in data["results"]["rows"].as_array_mut().unwrap() {
        change(row.as_object_mut().unwrap());
    }
}
