//! The pages of `--html` in a real browser: every chart has marks, no script complains, nothing is wider than a phone.
//!
//! Needs a headless Chromium, which `tests/report.sh` looks for (`REAP_CHROMIUM`); so these tests are ignored elsewhere.

mod browser;
mod page;

use std::fs;
use std::path::Path;

use browser::Shown;
use page::Page;

/// A small sweep: several loads.
const SWEEP: &str = "compare --device mem:16M --modes interrupt,poll,adaptive?latency-price=0,adaptive?latency-price=0.5 --repeat 2 --loads 10,40,100 --qd 8";
/// All the charts that a sweep has; without loads there are `figures` and `ratios` instead of `load`.
const SWEEP_CHARTS: [&str; 5] = ["plane", "load", "wakeups", "distribution", "table"];
const PLAIN_CHARTS: [&str; 6] = ["plane", "figures", "ratios", "wakeups", "distribution", "table"];

/// What is done to a page's data.
type Damage = fn(&mut serde_json::Value);

/// What is wrong with `shown`, which should have these charts.
fn faults(shown: &Shown, charts: &[&str]) -> Vec<String> {
    let mut faults: Vec<String> = shown.complaints.iter().map(|line| format!("a script complains: {line}")).collect();
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
    // The broken twins: what the check is worth.
    let twins: [(&str, Damage); 3] = [
        ("distribution: there is no such chart", |data| each_row(data, |row| drop(row.remove("lat_curve")))),
        ("wakeups: there is no such chart", |data| each_row(data, |row| drop(row.insert("completions_per_wakeup".into(), 0.into())))),
        ("a script complains", |data| drop(data["results"].as_object_mut().unwrap().remove("rows"))),
    ];
    for (fault, damage) in twins {
        let found = faults(&page.damaged(damage).show(), &SWEEP_CHARTS);
        assert!(found.iter().any(|found| found.starts_with(fault)), "{fault:?} is not among {found:?}");
    }
    // Charts without their marks: the library is there, and draws nothing.
    let empty = page.with(|text| text.replace(", ...marks,", ","));
    assert!(faults(&empty.show(), &["plane"]).contains(&"plane: no marks".to_owned()));
}

#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn job_charts_are_drawn() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("job.fio"), "[</script><b>&\"x\"]\nrw=randread\nbs=4k\niodepth=8\n").unwrap();
    let page = Page::of(place.path(), "compare job.fio --device mem:16M --modes interrupt,interrupt+submit-check,poll --repeat 2");
    assert_eq!(faults(&page.show(), &PLAIN_CHARTS), Vec::<String>::new());
}

/// On a file nothing is known of messages, and system calls are.
#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn file_charts_are_drawn() {
    let place = tempfile::tempdir().unwrap();
    let page = Page::of(place.path(), "compare --device kernel:disk?size=8M --modes interrupt,poll,adaptive --repeat 2").show();
    assert_eq!(faults(&page, &PLAIN_CHARTS), Vec::<String>::new());
    let headings: Vec<&str> =
        page.dom.split("<th ").skip(1).filter_map(|rest| rest.split_once("</th>")).map(|(heading, _)| heading).collect();
    let has = |words: &str| headings.iter().any(|heading| heading.contains(words));
    assert!(has("system calls per I/O") && !has("messages/s") && !has("notify"), "{headings:?}");
}

#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn simulation_charts_are_drawn() {
    let place = tempfile::tempdir().unwrap();
    let page = Page::of(place.path(), "sim --modes interrupt,poll --seeds 3");
    assert_eq!(faults(&page.show(), &["plane", "figures", "ratios", "wakeups", "split", "distribution", "table"]), Vec::<String>::new());
    let paths = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/path-loss.toml");
    let page = Page::of(place.path(), &format!("sim {}", paths.display())).show();
    assert_eq!((faults(&page, &["split", "paths", "table"]), page.marks("paths")), (Vec::new(), Some(4)));
}

/// A reader with a keyboard stays at the same place: the focus, and how far the table is scrolled.
#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn controls_keep_the_focus() {
    let place = tempfile::tempdir().unwrap();
    let page = Page::of(place.path(), "sim --modes interrupt,poll --seeds 1").with(|text| text.replace("</body>", KEYBOARD_PROBE));
    let held = |page: &Page| page.show_wide(390).attribute("data-held");
    assert_eq!(held(&page).as_deref(), Some("SELECT p50 BUTTON IOPS ↑ true"));
    // The broken twin: nobody keeps the place.
    let forgets = page.with(|text| text.replace("figures.forEach(back);", ""));
    assert_eq!(held(&forgets).as_deref(), Some("BODY  BODY  false"));
}

/// A mode that steals nothing is the best there is, and no unknown one.
#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn what_is_0_is_drawn() {
    let place = tempfile::tempdir().unwrap();
    let page = Page::of(place.path(), "sim --modes interrupt,poll,suspend --seeds 1");
    let stolen = |of: fn(&str) -> serde_json::Value| {
        page.damaged(move |data| each_row(data, |row| drop(row.insert("stolen_ns_per_io".into(), of(row["mode"].as_str().unwrap())))))
            .show()
    };
    let said = |shown: &Shown, part: &str| shown.dom.contains(&format!("aria-label=\"Stolen from other work, per I/O: {part}\""));
    let all = stolen(|_| 0.into());
    assert!(said(&all, "interrupt 0 ns, poll 0 ns, suspend 0 ns"), "{:?}", all.complaints);
    let two = stolen(|mode| if mode == "suspend" { 0.into() } else { 20_000.into() });
    let one = stolen(|mode| if mode == "suspend" { serde_json::Value::Null } else { 20_000.into() });
    assert!(said(&two, "interrupt 20 µs, poll 20 µs, suspend 0 ns") && said(&one, "interrupt 20 µs, poll 20 µs"));
    let marks = [&all, &two, &one].map(|shown| shown.marks("figures").unwrap());
    assert!(marks[0] == marks[1] && marks[1] > marks[2], "{marks:?}");
    for shown in [all, two, one] {
        assert_eq!(faults(&shown, &PLAIN_CHARTS), Vec::<String>::new());
    }
    // Nothing shown at all is said.
    let hide = "<script>modes.forEach((mode) => (mode.shown = false)); redraw()</script></body>";
    let hidden = page.with(|text| text.replace("</body>", hide)).show();
    assert!(hidden.complaints.is_empty() && hidden.dom.contains("No mode is shown"), "{:?}", hidden.complaints);
}

/// What a chart says of itself to who does not see it.
#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn every_chart_says_what_it_shows() {
    let place = tempfile::tempdir().unwrap();
    for arguments in ["sim --modes interrupt,poll --seeds 1", SWEEP] {
        let shown = Page::of(place.path(), arguments).show();
        let said: Vec<&str> =
            shown.dom.split("role=\"img\" aria-label=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0)).collect();
        assert!(said.len() > 4, "{said:?}");
        for said in said {
            let words = said.split_once(": ").map_or("", |(_, words)| words);
            assert!(!words.trim().is_empty() && !words.starts_with(" against") && !words.ends_with("against "), "{said:?}");
        }
    }
}

#[test]
#[ignore = "needs Chromium: tests/report.sh"]
fn foreign_text_is_not_markup() {
    let place = tempfile::tempdir().unwrap();
    let page = Page::of(place.path(), "compare --device mem:16M --modes poll --repeat 1");
    let evil = "</script><img src=x onerror=document.body.dataset.owned=1>?latency-price=10%";
    let shown = page.damaged(|data| {
        data["title"] = evil.into();
        data["notes"] = vec![evil].into();
        each_row(data, |row| drop(row.insert("mode".into(), evil.into())));
    });
    let shown = shown.show();
    assert!(!shown.dom.contains("data-owned"), "a name became an element");
    assert!(shown.dom.contains("&lt;/script&gt;&lt;img src=x"));
    assert_eq!(faults(&shown, &["plane", "table"]), Vec::<String>::new());
}

/// Says in the page which elements reach over its right edge.
const WIDTH_PROBE: &str = "<script>document.body.dataset.tooWide = document.documentElement.scrollWidth > innerWidth \
    ? [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.className || e.tagName).join() || 'something' \
    : '';</script></body>";

/// Uses a select and a heading of the table as one does by keyboard, and says in the page where that leaves the focus, and whether the
/// table is scrolled as far as before.
const KEYBOARD_PROBE: &str = "<script>{
    const use = (control, act) => { control.focus(); act(control); return document.activeElement; };
    const select = document.querySelector('figure[data-chart=plane] select');
    const chosen = use(select, (one) => { one.value = 'p50'; one.dispatchEvent(new Event('change')); });
    const table = document.querySelector('figure[data-chart=table] .scroll');
    table.scrollLeft = 40;
    const pressed = use(table.querySelectorAll('th button')[2], (one) => one.click());
    const after = document.querySelector('figure[data-chart=table] .scroll');
    document.body.dataset.held = [chosen.tagName, chosen.value, pressed.tagName, pressed.tagName === 'BUTTON' ? pressed.textContent : '',
        after.scrollLeft === 40].join(' ');
}</script></body>";

fn each_row(data: &mut serde_json::Value, change: impl Fn(&mut serde_json::Map<String, serde_json::Value>)) {
    for row in data["results"]["rows"].as_array_mut().unwrap() {
        change(row.as_object_mut().unwrap());
    }
}
