//! Chromium, driven by Node, which reads and writes lines of JSON.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::served::Served;

/// The scripts that run in the folder of packages.
const SCRIPTS: [(&str, &str); 2] = [
    (
        "browser.mjs",
        include_str!("../../../../tests/page/browser.mjs"),
    ),
    (
        "speed.mjs",
        include_str!("../../../../tests/page/speed.mjs"),
    ),
];

/// A browser that has signed in; ended when dropped.
pub(super) struct Browser {
    node: Child,
    answers: Lines<BufReader<ChildStdout>>,
    root: String,
    pub(super) cookie: String,
    /// A session belongs to the browser with this name.
    pub(super) agent: String,
}

impl Browser {
    pub(super) fn start(packages: &Path, served: &Served) -> anyhow::Result<Self> {
        let installed = packages.join("node_modules/playwright-core");
        anyhow::ensure!(
            installed.is_dir(),
            "{} does not exist: run `./check`, which installs what drives the browser, or name another folder by `--packages`",
            installed.display()
        );
        for (name, text) in SCRIPTS {
            let file = packages.join(name);
            std::fs::write(&file, text)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        let mut node = Command::new("node")
            .arg(packages.join("speed.mjs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start node")?;
        let stdout = node.stdout.take().context("node has an output")?;
        let mut browser = Self {
            node,
            answers: BufReader::new(stdout).lines(),
            root: format!("http://{}", served.address),
            cookie: String::new(),
            agent: String::new(),
        };
        let signed_in = browser.ask(&json!({"link": browser.url(&served.link)}))?;
        text(&signed_in["cookie"]).clone_into(&mut browser.cookie);
        text(&signed_in["agent"]).clone_into(&mut browser.agent);
        Ok(browser)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.root)
    }

    /// The first link of a page that begins with this path and goes on.
    pub(super) fn find(&mut self, page: &str, path: &str) -> anyhow::Result<Option<String>> {
        let found = self.ask(&json!({"find": path, "on": self.url(page)}))?;
        Ok(found["found"].as_str().map(str::to_owned))
    }

    pub(super) fn visit(&mut self, path: &str, times: u32) -> anyhow::Result<Vec<Value>> {
        let visited = self.ask(&json!({"url": self.url(path), "times": times}))?;
        Ok(visited["visits"].as_array().cloned().unwrap_or_default())
    }

    /// Opens a page, and closes the one that was watched before.
    pub(super) fn watch(&mut self, path: &str) -> anyhow::Result<()> {
        let question = json!({"watch": self.url(path)});
        self.say(&question)?;
        while self.answer()?.get("watching").is_none() {}
        Ok(())
    }

    /// When the watched page changed first after this moment, in milliseconds.
    pub(super) fn changed_after(&mut self, moment: f64) -> anyhow::Result<f64> {
        loop {
            let changed = self.answer()?["changedAt"].as_f64().unwrap_or_default();
            if changed >= moment {
                return Ok(changed);
            }
        }
    }

    fn ask(&mut self, question: &Value) -> anyhow::Result<Value> {
        self.say(question)?;
        self.answer()
    }

    fn say(&mut self, question: &Value) -> anyhow::Result<()> {
        let input = self.node.stdin.as_mut().context("node has an input")?;
        writeln!(input, "{question}").context("node has ended")
    }

    fn answer(&mut self) -> anyhow::Result<Value> {
        let line = self.answers.next().context("node has ended")??;
        serde_json::from_str(&line).with_context(|| format!("node said: {line}"))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Drop for Browser {
    fn drop(&mut self) {
        // At the end of its input it ends the browser, and itself.
        drop(self.node.stdin.take());
        let _gone_already = self.node.wait();
    }
}
