//! A page, as written or as damaged on purpose.

use std::fs;
use std::path::{Path, PathBuf};

use crate::browser::{Shown, show};

/// Longer than any of the commands takes.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(120);
/// Where a page's data begins.
const DATA: &str = "id=\"data\">";

/// A page in a directory.
pub struct Page {
    directory: PathBuf,
    text: String,
}

impl Page {
    /// What `reap` writes with these arguments and `--html`.
    pub fn of(directory: &Path, arguments: &str) -> Page {
        let mut command = assert_cmd::Command::cargo_bin("reap").unwrap();
        command
            .current_dir(directory)
            .timeout(LIMIT)
            .args(arguments.split_whitespace())
            .args(["--html", "report.html"]);
        command.assert().success();
        Page {
            directory: directory.to_owned(),
            text: fs::read_to_string(directory.join("report.html")).unwrap(),
        }
    }

    /// The same page with another text.
    pub fn with(&self, change: impl FnOnce(&str) -> String) -> Page {
        let text = change(&self.text);
        assert_ne!(text, self.text, "nothing was changed");
        Page { directory: self.directory.clone(), text }
    }

    /// The same page with other data.
    pub fn damaged(&self, damage: impl FnOnce(&mut serde_json::Value)) -> Page {
        let (before, rest) = self.text.split_once(DATA).unwrap();
        let (data, after) = rest.split_once("</script>").unwrap();
        let mut data: serde_json::Value = serde_json::from_str(data).unwrap();
        damage(&mut data);
        let data = data.to_string().replace('<', "\\u003c");
        self.with(|_| format!("{before}{DATA}{data}</script>{after}"))
    }

    /// In a browser as wide as a desk's.
    pub fn show(&self) -> Shown {
        self.show_wide(1280)
    }

    /// In a browser this many pixels wide.
    pub fn show_wide(&self, width: u32) -> Shown {
        let file = self.directory.join("shown.html");
        fs::write(&file, &self.text).unwrap();
        show(&file, width)
    }
}
