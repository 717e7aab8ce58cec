//! Benchmarks of rule sets: 200 rules, 400 worker types, 7,200 launch configs.
//!
//! Compiling and editing are measured in a child process, so that its memory can be read. For
//! comparison it also measures the least work of a compilation: computing the id of each launch
//! config from finished content.

mod sample;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use api_client::{Call, WORKER_MANAGER};
use clap::Args;
use domain::configuration::{Compilation, Configuration};
use domain::launch_config::id_of;
use serde_json::{Value, json};

use super::child::{self, Child, Database, figures_of, this_program};
use super::figures::median;
use super::load;
use super::prepare;
use crate::machine::Stopwatch;
use crate::output;

/// Number of compilations from nothing.
const COLD_ROUNDS: usize = 9;
/// Number of edits of a rule, each based on the previous one.
const EDITS: u32 = 200;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// How long evaluate requests are sent
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

pub(crate) async fn run(arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    output::note("compiling and editing");
    let mut figures = figures_of(this_program()?.arg("rules-part"))?;
    output::note("evaluating by the API");
    figures["evaluate"] =
        evaluate(load::Length::For(Duration::from_secs(arguments.seconds))).await?;
    output::figures(&figures, as_json, text);
    Ok(())
}

pub(crate) fn part() -> anyhow::Result<()> {
    let market = Arc::new(sample::catalog());
    let document = sample::document(0);
    let compile = || -> anyhow::Result<Compilation> {
        let configuration = Configuration::parse(&document).map_err(strange)?;
        Compilation::new(configuration, Arc::clone(&market)).map_err(strange)
    };
    let before = child::own_resident_bytes();
    let mut compilation = compile()?;
    let after = child::own_resident_bytes();
    let n_configs: usize = compilation
        .pools
        .iter()
        .map(|pool| pool.launch_configs().count())
        .sum();
    let (mut cold, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..COLD_ROUNDS {
        let watch = Stopwatch::start();
        let fresh = compile()?;
        cold.push(millis(&watch));
        let watch = Stopwatch::start();
        for pool in &fresh.pools {
            for (_, config) in pool.launch_configs() {
                id_of(pool.pool_id(), &config.configuration).map_err(strange)?;
            }
        }
        bare.push(millis(&watch));
    }
    let mut edits = Vec::new();
    for number in 1..=EDITS {
        let next = Configuration::parse(&sample::document(number)).map_err(strange)?;
        let watch = Stopwatch::start();
        compilation = compilation
            .succeed(next, Arc::clone(&market))
            .map_err(strange)?;
        edits.push(millis(&watch));
    }
    edits.sort_by(f64::total_cmp);
    let ratios = cold.iter().zip(&bare).map(|(cold, bare)| cold / bare);
    output::json(&json!({
        "rules": compilation.configuration.rules.rules().len(),
        "pools": compilation.pools.len(),
        "launchConfigs": n_configs,
        "coldMs": median(cold.iter().copied()),
        "idsAloneMs": median(bare.iter().copied()),
        "coldByIdsAlone": median(ratios),
        "editMs": median(edits.iter().copied()),
        "editP99Ms": edits[edits.len() * 99 / 100],
        "memoryBytes": after.zip(before).map(|(after, before)| after.saturating_sub(before)),
    }));
    Ok(())
}

/// Requests for one evaluation with origins: on one connection to measure the latency, and on many
/// to measure the rate.
async fn evaluate(length: load::Length) -> anyhow::Result<Value> {
    let folder = child::Folder::new(&Database::Sqlite)?;
    let (server, _) = Child::ours(&folder).await?;
    let path = ["worker-configuration", "bench"];
    let mut connection = load::Connection::open(server.address)
        .await
        .context("cannot connect to the measured server")?;
    let create = Call::put(WORKER_MANAGER, &path, &sample::unprovisioned());
    let request = prepare::signed(&create, server.address, Some(&server.credentials));
    let made = load::timed(&mut connection, request).await;
    made.context("cannot make the worker configuration")?;
    let requests = (0..1_000).map(|number| {
        let body = json!({"conditions": sample::conditions(number)});
        let path = ["worker-configuration", "bench", "evaluate"];
        let call = Call::post(WORKER_MANAGER, &path, &body);
        prepare::signed(&call, server.address, Some(&server.credentials))
    });
    let requests = load::Requests::repeated(requests);
    load::run(server.address, &requests, length.divided(5)).await?;
    let alone = load::run_on(1, server.address, &requests, length).await?;
    let many = load::run(server.address, &requests, length).await?;
    server.end().await;
    Ok(json!({
        "p50Ms": alone.percentile_ms(50),
        "p99Ms": alone.percentile_ms(99),
        "perSecond": many.per_second(),
    }))
}

fn millis(watch: &Stopwatch) -> f64 {
    watch.elapsed().as_secs_f64() * 1_000.0
}

fn strange(problem: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the sample is not valid: {problem}")
}

fn text(figures: &Value) -> String {
    let number = |pointer: &str| {
        figures
            .pointer(pointer)
            .and_then(Value::as_f64)
            .unwrap_or(f64::NAN)
    };
    format!(
        "\
{} rules, {} pools, {} launch configs

compiled from nothing  {:.0} ms ({:.1} times what their ids alone take: {:.0} ms)
one rule edited        {:.2} ms median, {:.2} ms p99
memory                 {:.0} MiB
evaluate request       {:.2} ms median, {:.2} ms p99; {:.0}/s with many at once
",
        figures["rules"],
        figures["pools"],
        figures["launchConfigs"],
        number("/coldMs"),
        number("/coldByIdsAlone"),
        number("/idsAloneMs"),
        number("/editMs"),
        number("/editP99Ms"),
        number("/memoryBytes") / f64::from(1 << 20),
        number("/evaluate/p50Ms"),
        number("/evaluate/p99Ms"),
        number("/evaluate/perSecond"),
    )
}
