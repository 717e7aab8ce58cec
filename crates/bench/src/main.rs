//! Benchmarks of the shipped program, next to the least that this machine needs for the same.
#![doc = include_str!("../README.md")]

mod accounts;
mod bare;
mod child;
mod figures;
mod fleet;
mod images;
mod load;
mod machine;
mod output;
mod paced;
mod prepare;
mod report;
mod rules;
mod scenario;
mod tree;
mod zookeeper;

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use child::{Child, Database};
use report::{Report, Starts};

/// Rounds of each side per scenario.
const ROUNDS: usize = 5;
/// Number of connections that send the load.
const CONNECTIONS: usize = 16;
/// How long a server is left idle before its memory is read.
const SETTLING: Duration = Duration::from_secs(1);

/// A request makes some hundred small strings; docs/performance.md has the effect of this
/// allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure Fleetwright on this machine
///
/// The measured program is `fleetwright` in the folder of this program, or the program in
/// FLEETWRIGHT_BINARY.
#[derive(Parser, Debug)]
#[command(name = "bench")]
struct Arguments {
    /// Print the figures as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Measure the API against a bare HTTP server
    ///
    /// Starts a server with its own database in a temporary folder, or with the given PostgreSQL
    /// database, which keeps the pools of the benchmark. Next to it runs a minimal axum server: a
    /// process of the same program, with the same runtime. Short rounds of both alternate. Every
    /// figure is the median of the rounds, and a ratio compares rounds that ran next to each other.
    ///
    /// Latencies are those of a client: sending, the server's work, and reading the complete reply,
    /// over connections that stay open. They do not include signing the requests. Both servers
    /// share the machine's cores with the client that sends the load.
    Api(ApiArguments),
    /// Measure the fleet: decisions, rounds, scans, claims
    ///
    /// Clouds are simulated; store, planner, background tasks and API are real. Each part runs in
    /// its own process, with its own database in a temporary folder, or with the given empty
    /// PostgreSQL database, which keeps the data of the benchmark.
    Fleet(fleet::Arguments),
    /// Measure the accounts of waits and costs: the size of a year, and reports over 30 days
    Accounts(accounts::Arguments),
    /// Measure how rule sets are compiled, edited and evaluated
    ///
    /// 200 rules for 400 worker types, 6 regions and 3 zones, which make 7,200 launch configs:
    /// compiled from nothing, compiled after an edit of a rule for one worker type, and evaluated
    /// by requests to a server.
    Rules(rules::Arguments),
    /// Measure builders of images: latency, throughput, idle load, take-over
    ///
    /// Run it by `scripts/with-zookeeper`, which starts a private ZooKeeper. Builders are
    /// processes; builds are short shell commands, and uploads are simulated.
    Images(images::Arguments),
    /// Measure the tree: calls, the hand-over of a lock, an idle client
    ///
    /// The embedded tree and ZooKeeper. Run it by `scripts/with-zookeeper`.
    Tree(tree::Arguments),
    /// A part of that benchmark
    #[command(hide = true)]
    RulesPart,
    /// A part of that benchmark
    #[command(hide = true)]
    FleetPart(fleet::PartArguments),
    /// The minimal server to compare with
    #[command(hide = true)]
    Bare,
}

#[derive(Args, Debug)]
struct ApiArguments {
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "sqlite|URL")]
    database: Database,
    /// Seconds for which each side is measured in each scenario
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { json, verb } = Arguments::parse();
    run(verb, json).await
}

async fn run(verb: Verb, as_json: bool) -> anyhow::Result<()> {
    match verb {
        Verb::Api(arguments) => {
            let report = measure(&arguments).await?;
            match as_json {
                true => output::json(&report.document()),
                false => output::out(&report.text()),
            }
            Ok(())
        }
        Verb::Fleet(arguments) => fleet::run(arguments, as_json).await,
        Verb::Accounts(arguments) => accounts::run(arguments, as_json).await,
        Verb::FleetPart(arguments) => fleet::part(arguments).await,
        Verb::Rules(arguments) => rules::run(arguments, as_json).await,
        Verb::Images(arguments) => images::run(arguments, as_json).await,
        Verb::Tree(arguments) => tree::run(arguments, as_json).await,
        Verb::RulesPart => rules::part(),
        Verb::Bare => bare::serve().await,
    }
}

async fn measure(arguments: &ApiArguments) -> anyhow::Result<Report> {
    let total = Duration::from_secs(arguments.seconds);
    let round = total / u32::try_from(ROUNDS).expect("the number of rounds is small");

    let folder = child::Folder::new(&arguments.database)?;
    let (first, first_start) = Child::ours(&folder).await?;
    first.end().await;
    let (ours, later_start) = Child::ours(&folder).await?;
    machine::pause(SETTLING).await;
    let starts = Starts {
        first: first_start,
        later: later_start,
        resident_bytes: ours.resident_bytes(),
    };
    let bare = Child::bare().await?;

    let world = prepare::World::make(&ours).await?;
    let hello = prepare::hello();
    let mut scenarios = Vec::new();
    for mut scenario in world.scenarios() {
        output::note(&format!("measuring {}", scenario.name));
        let mut rounds = Vec::new();
        load::run(bare.address, &hello, round / 2).await?;
        load::run(ours.address, &scenario.next_round(), round / 2).await?;
        for _ in 0..ROUNDS {
            let bare = load::run(bare.address, &hello, round).await?;
            let requests = scenario.next_round();
            let ours = load::run(ours.address, &requests, round).await?;
            rounds.push((bare, ours));
        }
        scenarios.push(scenario::Outcome::new(scenario.name, &rounds));
    }
    output::note("measuring reads while workers register");
    let mixed = paced::measure(ours.address, &world, total).await?;
    bare.end().await;
    ours.end().await;
    Ok(Report {
        database: arguments.database.name(),
        seconds: arguments.seconds,
        connections: CONNECTIONS,
        rounds: ROUNDS,
        scenarios,
        mixed,
        starts,
    })
}
