//! Measures the pages in Chromium, and what many open tabs cost the server.
//!
//! Node drives the browser (`tests/page/speed.mjs`). This program starts the servers, sends the
//! load and makes the changes that are awaited.

mod browser;
mod served;
mod tabs;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::figures::median;
use crate::fleet::Large;
use crate::{machine, output};
use browser::Browser;
use served::Served;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Number of worker pools of the large fleet
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=100_000))]
    pools: u32,
    /// Number of its workers
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    workers: u32,
    /// Visits of each page
    #[arg(long, default_value_t = 15, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    visits: u32,
    /// Changes that are awaited on an open page
    #[arg(long, default_value_t = 15, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    changes: u32,
    /// Open tabs
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2_000))]
    tabs: u32,
    /// Seconds for which the load is watched, twice without tabs and twice with them
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Folder of the Node packages that the tests of pages use
    #[arg(long, default_value = ".check/page", value_name = "DIR")]
    packages: std::path::PathBuf,
}

/// The pages, and where a link to those that need a name is found.
const PAGES: [(&str, Option<&str>); 15] = [
    ("/", None),
    ("/pools/", Some("/")),
    ("/waiting", None),
    ("/start-up", None),
    ("/health", None),
    ("/errors", None),
    ("/workers", None),
    ("/workers/", Some("/workers")),
    ("/tasks/", Some("/workers")),
    ("/images", None),
    ("/images/", Some("/images")),
    ("/rules", None),
    ("/money", None),
    ("/providers", None),
    ("/events", None),
];

pub(crate) async fn run(arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    let mut figures = Map::new();
    figures.insert("machine".to_owned(), machine::describe());
    figures.insert("loadBefore".to_owned(), machine::load().into());
    output::note("measuring: the pages of the demo");
    let demo = Served::demo()?;
    let mut browser = Browser::start(&arguments.packages, &demo)?;
    figures.insert("demo".to_owned(), visits(&mut browser, arguments.visits)?);
    drop((browser, demo));

    output::note(&format!("filling the database: {} pools", arguments.pools));
    let large = Large::make(arguments.pools, arguments.workers).await?;
    let served = Served::start(large.command()?)?;
    let mut browser = Browser::start(&arguments.packages, &served)?;
    output::note("measuring: the pages of the large fleet");
    let mut measured = Map::new();
    measured.insert("pages".to_owned(), visits(&mut browser, arguments.visits)?);
    output::note("measuring: from a change to the page");
    let changes = changes(&mut browser, &served, arguments.changes).await?;
    measured.insert("change".to_owned(), changes);
    output::note("measuring: open tabs");
    let tabs = tabs::measure(&served, &browser, arguments.tabs, arguments.seconds).await?;
    measured.insert("tabs".to_owned(), tabs);
    figures.insert("large".to_owned(), Value::Object(measured));
    figures.insert("loadAfter".to_owned(), machine::load().into());
    output::figures(&Value::Object(figures), as_json, output::lines);
    Ok(())
}

/// Times of each page in milliseconds, and its size.
fn visits(browser: &mut Browser, times: u32) -> anyhow::Result<Value> {
    let mut figures = Map::new();
    for (path, listed) in PAGES {
        let found = match listed {
            None => Some(path.to_owned()),
            Some(list) => browser.find(list, path)?,
        };
        let Some(url) = found else {
            output::note(&format!("no link to {path}"));
            continue;
        };
        let visits = browser.visit(&url, times)?;
        if visits.is_empty() {
            output::note(&format!("{url} cannot be shown"));
            continue;
        }
        let all = |name: &str| -> Vec<f64> {
            let values = visits.iter().filter_map(|visit| visit[name].as_f64());
            values.collect()
        };
        let worst = |name: &str| all(name).into_iter().fold(0.0, f64::max);
        let row = json!({
            "firstByteMs": median(all("firstByteMs")),
            "worstFirstByteMs": worst("firstByteMs"),
            "completeMs": median(all("completeMs")),
            "worstCompleteMs": worst("completeMs"),
            "bytes": median(all("bytes")),
            "bytesSent": median(all("wireBytes")),
            "elements": median(all("elements")),
        });
        output::note(&format!("{url} {row}"));
        figures.insert(path.to_owned(), row);
    }
    Ok(Value::Object(figures))
}

/// Milliseconds from sending `createTask` until the open page of the pool shows something new.
async fn changes(browser: &mut Browser, served: &Served, times: u32) -> anyhow::Result<Value> {
    let mut taken = Vec::new();
    for number in 0..times {
        let pool = format!("bench/pool-{:06}", number % 50);
        browser.watch(&format!("/pools/{pool}"))?;
        let sent = served.create_task(&pool).await?;
        let changed = browser.changed_after(sent)?;
        taken.push(changed - sent);
    }
    let worst = taken.iter().copied().fold(0.0, f64::max);
    Ok(json!({"medianMs": median(taken), "worstMs": worst}))
}
