//! The aims, and where their figures are.

use serde_json::{Map, Value, json};

use super::Kind;
use crate::databases::Age;

/// Figures on a year-old database may take this many times as long as on a new one.
pub(super) const MAX_SLOWDOWN: f64 = 1.2;

/// Less than this is the difference of two times, or counted in too few steps of the clock.
const MIN_COMPARED_SECONDS: f64 = 0.1;

/// A figure, and its aims.
pub(super) struct Aim {
    pub(super) name: &'static str,
    place: Place,
    pub(super) unit: Unit,
    /// The age of the database that the aim is for.
    pub(super) age: Age,
    sqlite: Option<f64>,
    postgres: Option<f64>,
}

/// Where a figure is in the figures of a database.
#[derive(Clone, Copy)]
enum Place {
    /// Of a scenario of the API, by a JSON pointer.
    Api(&'static str, &'static str),
    Fleet(&'static str),
    Rounds(&'static str),
    /// Measured on a new database only.
    Start(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// At least as many; all others are upper limits.
    PerSecond,
    /// Of the rate of the bare server, at least.
    OfBare,
    Millis,
    Seconds,
    Bytes,
}

const RATE: &str = "/requestsPerSecond";
const PROCESSOR: &str = "/processorTime/answeringMs";

pub(super) const AIMS: &[Aim] = &[
    Aim::rate(
        "`workerPool`, signed",
        Place::Api("workerPool", RATE),
        50_000.0,
        18_000.0,
    ),
    Aim {
        name: "… of the rate of the bare server",
        place: Place::Api("workerPool", "/ofBare"),
        unit: Unit::OfBare,
        age: Age::Fresh,
        sqlite: Some(0.38),
        postgres: None,
    },
    Aim::most(
        "list of 100 workers: processor time",
        Place::Api("listWorkersForWorkerPool (100)", PROCESSOR),
        Unit::Millis,
        (0.12, 0.25),
    ),
    Aim::most(
        "list of 1,000 workers: processor time",
        Place::Api("listWorkersForWorkerPool (1,000)", PROCESSOR),
        Unit::Millis,
        (1.2, 1.8),
    ),
    Aim::rate(
        "`createWorker`",
        Place::Api("createWorker", RATE),
        13_000.0,
        8_000.0,
    ),
    Aim::rate(
        "`registerWorker`",
        Place::Api("registerWorker", RATE),
        18_000.0,
        7_500.0,
    ),
    Aim::rate(
        "`createWorkerPool`",
        Place::Api("createWorkerPool", RATE),
        12_000.0,
        8_000.0,
    ),
    Aim::rate(
        "`createTask`",
        Place::Api("createTask", RATE),
        10_000.0,
        5_000.0,
    ),
    Aim::rate(
        "claims, 64 workers",
        Place::Fleet("/claims/0/perSecond"),
        7_000.0,
        5_000.0,
    ),
    Aim::rate(
        "claims, 1,000 workers",
        Place::Fleet("/claims/1/perSecond"),
        7_000.0,
        5_000.0,
    ),
    Aim::rate(
        "claims, 5,000 workers",
        Place::Fleet("/claims/2/perSecond"),
        7_000.0,
        5_000.0,
    ),
    Aim::most(
        "round, 10,000 pools, 1,000,000 workers",
        Place::Rounds("/round/seconds"),
        Unit::Seconds,
        (1.0, 2.0),
    )
    .year_old(),
    Aim::most(
        "scan of 100,000 workers, without the cloud",
        Place::Fleet("/scan/ownSecondsPer100000"),
        Unit::Seconds,
        (0.3, 0.5),
    ),
    Aim::none(
        "… processor time",
        Place::Fleet("/scan/processorSecondsPer100000"),
        Unit::Seconds,
    ),
    Aim::most(
        "`createTask` to launch call, p99",
        Place::Fleet("/latency/p99Ms"),
        Unit::Millis,
        (10.0, 15.0),
    )
    .year_old(),
    Aim::none("… median", Place::Fleet("/latency/medianMs"), Unit::Millis),
    Aim {
        name: "memory of an idle `up`",
        place: Place::Start("/idleResidentBytes"),
        unit: Unit::Bytes,
        age: Age::Fresh,
        sqlite: Some(45.0 * 1_048_576.0),
        postgres: None,
    },
];

/// Each figure that is measured on this database, by its name and age; null if it is missing.
pub(super) fn figures(kind: Kind, figures: &Value) -> Value {
    let aims = AIMS.iter().filter(|aim| aim.is_measured(kind));
    let aims = aims.map(|aim| {
        let mut ages = json!({"fresh": aim.value(figures, Age::Fresh)});
        if !matches!(aim.place, Place::Start(_)) {
            ages["yearOld"] = aim.value(figures, Age::YearOld).into();
        }
        (aim.name.to_owned(), ages)
    });
    aims.collect::<Map<String, Value>>().into()
}

impl Aim {
    const fn rate(name: &'static str, place: Place, sqlite: f64, postgres: f64) -> Self {
        Self {
            name,
            place,
            unit: Unit::PerSecond,
            age: Age::Fresh,
            sqlite: Some(sqlite),
            postgres: Some(postgres),
        }
    }

    const fn most(
        name: &'static str,
        place: Place,
        unit: Unit,
        (sqlite, postgres): (f64, f64),
    ) -> Self {
        Self {
            name,
            place,
            unit,
            age: Age::Fresh,
            sqlite: Some(sqlite),
            postgres: Some(postgres),
        }
    }

    /// A figure that explains the one before.
    const fn none(name: &'static str, place: Place, unit: Unit) -> Self {
        Self {
            name,
            place,
            unit,
            age: Age::Fresh,
            sqlite: None,
            postgres: None,
        }
    }

    const fn year_old(mut self) -> Self {
        self.age = Age::YearOld;
        self
    }

    /// The limit on this database. The disk decides what is possible with fsync.
    pub(super) fn limit(&self, kind: Kind) -> Option<f64> {
        match kind {
            Kind::Sqlite => self.sqlite,
            Kind::Postgres => self.postgres,
            Kind::PostgresFsync => None,
        }
    }

    /// Of the memory, the database is a part only if it is a file.
    pub(super) fn is_measured(&self, kind: Kind) -> bool {
        self.unit != Unit::Bytes || kind == Kind::Sqlite
    }

    pub(super) fn is_missed(&self, value: f64, limit: f64) -> bool {
        match self.unit {
            Unit::PerSecond | Unit::OfBare => value < limit,
            Unit::Millis | Unit::Seconds | Unit::Bytes => value > limit,
        }
    }

    /// The figure among those of a database.
    pub(super) fn value(&self, figures: &Value, age: Age) -> Option<f64> {
        let of_age = |of: &'static str| match age {
            Age::Fresh => figures.get(of),
            Age::YearOld => figures.get(of)?.get("yearOld"),
        };
        let found = match self.place {
            Place::Api(scenario, pointer) => {
                let scenarios = figures["api"]["scenarios"].as_array()?;
                let scenario = scenarios.iter().find(|known| known["name"] == scenario)?;
                let server = match age {
                    Age::Fresh => "fresh",
                    Age::YearOld => "year-old",
                };
                scenario["servers"].get(server)?.pointer(pointer)
            }
            Place::Fleet(pointer) => of_age("fleet")?.pointer(pointer),
            Place::Rounds(pointer) => of_age("rounds")?.pointer(pointer),
            Place::Start(pointer) => match age {
                Age::Fresh => figures["api"].pointer(pointer),
                Age::YearOld => None,
            },
        };
        found.and_then(Value::as_f64)
    }

    /// How many times as long it takes on a year-old database.
    pub(super) fn slowdown(&self, fresh: f64, year_old: f64) -> Option<f64> {
        match self.unit {
            Unit::Seconds if fresh.max(year_old) < MIN_COMPARED_SECONDS => None,
            Unit::PerSecond => Some(fresh / year_old.max(f64::MIN_POSITIVE)),
            Unit::Millis | Unit::Seconds => Some(year_old / fresh.max(f64::MIN_POSITIVE)),
            Unit::OfBare | Unit::Bytes => None,
        }
    }
}
