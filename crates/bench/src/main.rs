//! Benchmarks of the shipped program, next to the least that this machine needs for the same.
#![doc = include_str!("../README.md")]

mod accounts;
mod all;
mod api;
mod bare;
mod child;
mod databases;
mod figures;
mod fleet;
mod images;
mod load;
mod machine;
mod output;
mod paced;
mod pages;
mod postgres;
mod prepare;
mod processor;
mod report;
mod rules;
mod scenario;
mod tree;
mod zookeeper;

use clap::{Parser, Subcommand};

/// A request makes some hundred small strings. With the allocator of the system, this takes a third
/// of the time of a read.
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
    /// Starts a server with its own database in a temporary folder, or on the given PostgreSQL
    /// server. Next to it runs a minimal hyper server: a process of the same program, with the same
    /// runtime. Short rounds of both alternate. Every figure is the median of the rounds, and a
    /// ratio compares rounds that ran next to each other.
    ///
    /// Latencies are those of a client: sending, the server's work, and reading the complete reply,
    /// over connections that stay open. They do not include signing the requests. All servers
    /// share the machine's cores with the client that sends the load. Processor time is that of the
    /// server and of all processes of its database; that of the client is given beside it.
    Api(api::Arguments),
    /// Measure the fleet: decisions, rounds, scans, claims
    ///
    /// Clouds are simulated; store, planner, background tasks and API are real. Each part runs in
    /// its own process, with its own database in a temporary folder, or on the given PostgreSQL
    /// server.
    Fleet(fleet::Arguments),
    /// Measure everything that has an aim, and print it beside its aims
    ///
    /// Runs `api` and `fleet` on SQLite and on private PostgreSQL servers, without and with fsync,
    /// each on new databases and on databases as they are after a year. Then it does what `year`
    /// does. It takes more than an hour, and temporary files take up to 20 GB.
    All(all::Arguments),
    /// Measure what requests and rounds cost on a database as it is after a year
    ///
    /// Sends each kind of request to a server on a filled database, one after the other, and prints
    /// its transactions, statements, rows and time, and the time of every statement.
    Year(fleet::year::Arguments),
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
    /// Measure the pages in Chromium: first byte, complete page, a change, many open tabs
    ///
    /// The pages of `fleetwright demo`, and of a server with a large fleet and a day of history. It
    /// needs Chromium, Node and the packages that `./check` installs for the tests of pages.
    Pages(pages::Arguments),
    /// Measure the tree: calls, the hand-over of a lock, an idle client
    ///
    /// The embedded tree and ZooKeeper. Run it by `scripts/with-zookeeper`.
    Tree(tree::Arguments),
    /// The part of `all` that runs beside a PostgreSQL server
    #[command(hide = true)]
    AllOnPostgres(all::Arguments),
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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { json, verb } = Arguments::parse();
    run(verb, json).await
}

async fn run(verb: Verb, as_json: bool) -> anyhow::Result<()> {
    match verb {
        Verb::Api(arguments) => api::run(arguments, as_json).await,
        Verb::All(arguments) => all::run(arguments, as_json).await,
        Verb::AllOnPostgres(arguments) => all::on_postgres(arguments).await,
        Verb::Fleet(arguments) => fleet::run(arguments, as_json).await,
        Verb::Year(arguments) => fleet::year::run(arguments, as_json).await,
        Verb::Accounts(arguments) => accounts::run(arguments, as_json).await,
        Verb::FleetPart(arguments) => fleet::part(arguments).await,
        Verb::Rules(arguments) => rules::run(arguments, as_json).await,
        Verb::Images(arguments) => images::run(arguments, as_json).await,
        Verb::Pages(arguments) => pages::run(arguments, as_json).await,
        Verb::Tree(arguments) => tree::run(arguments, as_json).await,
        Verb::RulesPart => rules::part(),
        Verb::Bare => bare::serve().await,
    }
}
