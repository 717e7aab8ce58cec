//! The benchmark of the API: each kind of request, in turn with a bare HTTP server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::child::{Child, Database, Folder};
use crate::databases::{Age, Databases, YearOldArgument};
use crate::load::{self, CONNECTIONS, Length, Requests};
use crate::prepare::{self, World};
use crate::processor::Meter;
use crate::report::{Report, Starts};
use crate::scenario::{Contender, Outcome, Pace, Round};
use crate::{machine, output, paced, postgres};

/// Rounds of each side per scenario.
const ROUNDS: u32 = 5;
/// A database that was just filled has work to do before it is idle.
const SETTLING_LIMIT: Duration = Duration::from_secs(60);
/// How long a server is left idle before its memory is read.
const SETTLING: Duration = Duration::from_secs(1);
/// How long a round waits for work that its requests leave behind, such as publishing events.
const TAIL: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// `sqlite`, or the URL of a PostgreSQL server whose user may create databases
    #[arg(long, default_value = "sqlite", value_name = "sqlite|URL")]
    database: Database,
    /// Seconds for which each side is measured in each scenario
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Send this number of requests in each scenario, to show that everything works
    #[arg(long, value_name = "N", hide = true)]
    requests: Option<usize>,
    #[command(flatten)]
    year_old: YearOldArgument,
    /// Measure this older program too, on a new database
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
}

/// The measured servers, and how they are measured.
pub(crate) struct Settings {
    pub(crate) database: Database,
    pub(crate) pace: Pace,
    /// The program of an earlier version.
    pub(crate) before: Option<PathBuf>,
}

/// A server that is measured.
struct Measured {
    contender: Contender,
    server: Child,
    world: World,
    meter: Meter,
    database: Database,
    /// Removed when dropped, after the server has ended.
    _folder: Folder,
}

pub(crate) async fn run(arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    let pace = match arguments.requests {
        Some(most) => Pace::smallest(most),
        None => Pace {
            length: Length::For(Duration::from_secs(arguments.seconds)),
            rounds: ROUNDS,
            settling: SETTLING_LIMIT,
        },
    };
    let settings = Settings {
        database: arguments.database,
        pace,
        before: arguments.before,
    };
    let mut databases = Databases::new(&settings.database, arguments.year_old);
    let report = measure(settings, &mut databases).await?;
    databases.remove().await?;
    if as_json {
        output::json(&report.document());
    } else {
        output::out(&report.text());
    }
    Ok(())
}

pub(crate) async fn measure(
    settings: Settings,
    databases: &mut Databases,
) -> anyhow::Result<Report> {
    let Settings {
        database,
        pace,
        before,
    } = settings;
    let mut contenders = vec![(Contender::Fresh, None)];
    if databases.ages().contains(&Age::YearOld) {
        contenders.push((Contender::YearOld, None));
    }
    if let Some(program) = &before {
        contenders.push((Contender::Before, Some(program.as_path())));
    }
    let mut starts = None;
    let mut measured = Vec::new();
    for (contender, program) in contenders {
        output::note(&format!("starting: {}", contender.name()));
        let (server, of_server) = start(contender, program, databases, pace).await?;
        starts = starts.or(Some(of_server));
        measured.push(server);
    }
    let bare = Child::bare().await?;
    output::note("measuring reads while workers register");
    let mut mixed = None;
    if let Some(fresh) = measured.first() {
        mixed = Some(paced::measure(fresh.server.address, &fresh.world, pace).await?);
    }
    let scenarios = scenarios(&bare, &measured, pace).await?;
    bare.end().await;
    for measured in measured {
        measured.server.end().await;
        databases.discard(&measured.database).await?;
    }
    Ok(Report {
        database: database.name(),
        length: pace.length,
        connections: CONNECTIONS,
        rounds: pace.rounds,
        scenarios,
        mixed: mixed.context("no server was measured")?,
        starts: starts.context("no server was measured")?,
    })
}

/// Starts a server on a database of its own, and prepares its pools.
async fn start(
    contender: Contender,
    program: Option<&Path>,
    databases: &mut Databases,
    pace: Pace,
) -> anyhow::Result<(Measured, Starts)> {
    let age = match contender {
        Contender::Fresh | Contender::Before => Age::Fresh,
        Contender::YearOld => Age::YearOld,
    };
    // A database on a server has to be there at the first start. Where it is a file, the first
    // start makes its folder.
    let on_server = databases.on_server();
    let unused = Path::new("");
    let database = if on_server {
        databases.make(age, unused).await?
    } else {
        Database::Sqlite
    };
    let folder = Folder::of(program, &database)?;
    let (first, first_start) = Child::ours(&folder).await?;
    first.end().await;
    if !on_server {
        databases.make(age, &folder.database_file()).await?;
    }
    let (server, later_start) = Child::ours(&folder).await?;
    machine::pause(SETTLING.min(pace.settling)).await;
    let starts = Starts {
        first: first_start,
        later: later_start,
        resident_bytes: server.resident_bytes(),
    };
    let meter = Meter {
        server: server.process(),
        database: postgres::postmaster(&database.url(unused)).await?,
    };
    let world = World::make(&server, pace.round()).await?;
    meter.settle(pace.settling).await;
    let measured = Measured {
        contender,
        server,
        world,
        meter,
        database,
        _folder: folder,
    };
    Ok((measured, starts))
}

async fn scenarios(
    bare: &Child,
    measured: &[Measured],
    pace: Pace,
) -> anyhow::Result<Vec<Outcome>> {
    let round = pace.round();
    let hello = prepare::hello();
    let of_bare = Meter {
        server: bare.process(),
        database: None,
    };
    let mut outcomes = Vec::new();
    let mut sources: Vec<_> = measured
        .iter()
        .map(|measured| measured.world.scenarios().into_iter())
        .collect();
    loop {
        // Each server has the same scenarios, with its own pools.
        let mut scenarios: Vec<_> = sources.iter_mut().filter_map(Iterator::next).collect();
        let Some(name) = scenarios.first().map(|scenario| scenario.name) else {
            return Ok(outcomes);
        };
        output::note(&format!("measuring {name}"));
        let mut of_minimum = Vec::new();
        let mut rounds: Vec<_> = measured
            .iter()
            .map(|measured| (measured.contender, Vec::new()))
            .collect();
        load::run(bare.address, &hello, round.divided(2)).await?;
        for (measured, scenario) in measured.iter().zip(&mut scenarios) {
            let warm_up = round.divided(2);
            load::run(measured.server.address, &scenario.next_round(), warm_up).await?;
        }
        for _ in 0..pace.rounds {
            of_minimum.push(one_round(bare, of_bare, &hello, pace).await?);
            let sides = measured.iter().zip(&mut scenarios).zip(&mut rounds);
            for ((measured, scenario), (_, rounds)) in sides {
                let requests = scenario.next_round();
                let Measured { server, meter, .. } = measured;
                rounds.push(one_round(server, *meter, &requests, pace).await?);
            }
        }
        outcomes.push(Outcome::new(name, &of_minimum, &rounds));
    }
}

async fn one_round(
    server: &Child,
    meter: Meter,
    requests: &Requests,
    pace: Pace,
) -> anyhow::Result<Round> {
    let before = meter.read();
    let sample = load::run(server.address, requests, pace.round()).await?;
    machine::pause(TAIL.min(pace.settling)).await;
    let used = meter
        .read()
        .zip(before)
        .map(|(after, before)| after - before);
    Ok(Round { sample, used })
}
