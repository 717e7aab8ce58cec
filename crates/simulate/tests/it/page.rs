//! The page of a study: one file, with charts, without scripts and resources.

use simulate::page::{page, pool_delays};
use simulate::scenario::ScenarioName;
use simulate::study::Study;

use crate::common::NoTraces;

fn page_of(scenarios: &[ScenarioName], strategies: &[&str], seeds: &[u64]) -> String {
    let study = Study {
        scenarios: scenarios.to_vec(),
        strategies: strategies.iter().map(|it| it.parse().unwrap()).collect(),
        seeds: seeds.to_vec(),
    };
    let results = study.run(&NoTraces, 2, &|_| ()).unwrap();
    page(&study, &results)
}

/// The tags that are open at the end, or the first tag that is closed wrongly.
fn open_tags(page: &str) -> Result<Vec<String>, String> {
    const EMPTY: [&str; 2] = ["!DOCTYPE", "meta"];
    let mut open: Vec<String> = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, _) = part.split_once('>').ok_or("a tag without an end")?;
        let name = tag
            .trim_end_matches('/')
            .split_whitespace()
            .next()
            .unwrap_or_default();
        if let Some(closed) = name.strip_prefix('/') {
            let last = open.pop();
            if last.as_deref() != Some(closed) {
                return Err(format!("{last:?} is closed by {closed}"));
            }
        } else if !EMPTY.contains(&name) {
            open.push(name.to_owned());
        }
    }
    Ok(open)
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_else() {
    let scenarios = [ScenarioName::Long, ScenarioName::Fair];
    let page = page_of(&scenarios, &["taskcluster", "weighted"], &[1, 2]);
    assert_eq!(open_tags(&page), Ok(Vec::new()));
    for part in ["http", "<script", "src=", "@import"] {
        assert!(!page.contains(part), "{part}");
    }
    // Hatches of the page itself.
    assert_eq!(page.matches("url(").count(), page.matches("url(#h").count());
    for part in [
        "<h2 id=\"long\">",
        "J compared with taskcluster",
        "simulated/small",
        "seeds 1, 2.",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // One chart of all, and two of each scenario; a third over time.
    assert_eq!(page.matches("class=\"rows\"").count(), 1 + 2 * 2);
    assert_eq!(page.matches("data-cursor=").count(), 2);
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn one_strategy_and_one_seed_have_neither_differences_nor_intervals() {
    let page = page_of(&[ScenarioName::Long], &["weighted"], &[1]);
    assert_eq!(open_tags(&page), Ok(Vec::new()));
    assert!(!page.contains("compared with") && !page.contains('±'));
    assert!(!page.contains("class=\"ci\""));
    assert!(!page.contains("NaN"));
}

#[test]
fn the_delay_of_a_pool_is_its_mean_over_the_seeds() {
    let study = Study {
        scenarios: vec![ScenarioName::Fair],
        strategies: vec!["weighted".parse().unwrap()],
        seeds: vec![1, 2],
    };
    let results = study.run(&NoTraces, 2, &|_| ()).unwrap();
    let strategies = &results[0].strategies;
    let delays = pool_delays(strategies);
    let (strategy, pools) = &delays[0];
    let names: Vec<_> = pools.iter().map(|(pool, _)| pool.as_str()).collect();
    assert_eq!(*strategy, "weighted");
    assert_eq!(
        names,
        ["simulated/large-1", "simulated/large-2", "simulated/small"]
    );
    let of_seed = |seed: usize| strategies[0].seeds[seed].metrics.pools[2].delay.mean;
    assert!((pools[2].1 - (of_seed(0) + of_seed(1)) / 2.0).abs() < 1e-9);
}
