//! Rate limits of clouds hold, however many pools need machines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use cloud::{Call, CloudError, LaunchOutcome, Provider};
use domain::id::ProviderId;
use domain::launch::Cause;
use domain::time::Clock;
use engine::fleet::Scanner;
use engine::random::Random;
use engine::rate_limit::RateLimits;
use engine::rate_limit::{RateLimitedProvider, Timer};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;
use server::app::App;
use server::start::start_with;

use crate::fleet_world::{Fleet, fleet_on_sqlite_first, machine, pool, round};
use crate::world::TestClock;

const N_POOLS: usize = 100;
/// However slow the machine is on which the test runs.
const FOREVER: Duration = Duration::from_secs(3_600);
const LIMITS: RateLimits = RateLimits {
    reads_per_second: 4.0,
    launches_per_second: 2.0,
    ends_per_second: 2.0,
};

/// By then pauses have doubled to the longest one.
const SETTLED_S: i64 = 110;

/// Waiting moves the clock.
struct TestTimer(Arc<TestClock>);

#[async_trait]
impl Timer for TestTimer {
    async fn wait(&self, duration: Duration) {
        self.0
            .advance_ms(i64::try_from(duration.as_millis()).unwrap());
    }
}

impl Fleet {
    /// Another process, which keeps to limits.
    async fn limited(&self) -> Arc<App> {
        let limit = |(id, provider): (ProviderId, Arc<dyn Provider>)| {
            let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
            let pauses = Arc::new(TestTimer(Arc::clone(&self.clock)));
            let limited = RateLimitedProvider::new(id.clone(), provider, LIMITS, clock, pauses)
                .with_records(true);
            (id, Arc::new(limited) as Arc<dyn Provider>)
        };
        let providers = self.providers().into_iter().map(limit).collect();
        let random = Random::new(StdRng::seed_from_u64(9));
        let (config, clock) = (self.app.config.clone(), Arc::clone(&self.clock));
        let started = start_with(config, clock, random, providers);
        Box::pin(started).await.unwrap()
    }

    async fn pool_in(&self, name: &str, region: &str) {
        let mut config = machine("a");
        config["region"] = json!(region);
        self.make_pool(name, pool("one", 0, 4, &[config])).await;
        self.tasks(name, 1).await;
    }
}

/// Calls to launch by region and second, as the cloud heard them.
type Heard = Arc<Mutex<BTreeMap<(String, i64), u64>>>;

fleet_on_sqlite_first!(
    a_region_that_asks_to_slow_down_is_left_alone_by_all_pools_and_others_are_not,
    |fleet| {
        for number in 0..N_POOLS {
            fleet.pool_in(&format!("pp/hot-{number:03}"), "hot").await;
        }
        let app = fleet.limited().await;
        let (heard, clock) = (Heard::default(), Arc::clone(&fleet.clock));
        let told = Arc::clone(&heard);
        fleet.one.fake.decide_with(move |order| {
            let region = order.launch_config.configuration["region"].clone();
            let region = region.as_str().unwrap().to_owned();
            let is_hot = region == "hot";
            let second = clock.now().as_millis() / 1_000;
            *told.lock().unwrap().entry((region, second)).or_default() += 1;
            if is_hot {
                LaunchOutcome::Refused(Cause::Throttled)
            } else {
                LaunchOutcome::Made
            }
        });
        let begin = fleet.now();
        for step in 0..30 {
            fleet.pass_ms(10_000);
            if step == 10 {
                fleet.pool_in("pp/cold", "cold").await;
            }
            round(&app).await;
            app.engine.launch_tracker.finish().await;
            if step == 10 {
                assert_eq!(fleet.states("pp/cold").await, "1 requested");
            }
        }
        let begin = begin.as_millis() / 1_000;
        let heard = heard.lock().unwrap().clone();
        let hot = heard.iter().filter(|((region, _), _)| region == "hot");
        let hot: Vec<_> = hot
            .map(|((_, second), count)| (second - begin, *count))
            .collect();
        // A first burst, including calls whose turn came before it was answered, and then one try
        // after each pause: 1, 2, 4, … 64 s, and 64 s.
        let (first, later): (Vec<_>, Vec<_>) = hot.iter().partition(|(at, _)| *at <= SETTLED_S);
        let n_first: u64 = first.iter().map(|(_, count)| count).sum();
        assert!((4..=40).contains(&n_first), "{hot:?}");
        assert!((2..=4).contains(&later.len()), "{hot:?}");
        assert!(later.iter().all(|(_, count)| *count == 1), "{hot:?}");
        let is_apart = |two: &[(i64, u64)]| two[1].0 - two[0].0 >= 64;
        assert!(later.windows(2).all(is_apart), "{hot:?}");
        app.engine.store.close().await;
    }
);

fleet_on_sqlite_first!(
    a_cloud_that_takes_everything_is_asked_at_a_steady_rate,
    |fleet| {
        for number in 0..N_POOLS {
            fleet.pool_in(&format!("pp/hot-{number:03}"), "hot").await;
        }
        let app = fleet.limited().await;
        let begin = fleet.now();
        let mut n_rounds = 0;
        while fleet.machines().len() < N_POOLS {
            n_rounds += 1;
            assert!(n_rounds < 200, "{} machines", fleet.machines().len());
            fleet.pass_ms(10_000);
            round(&app).await;
            app.engine.launch_tracker.finish().await;
        }
        let seconds = fleet.now().millis_since(begin) / 1_000;
        // Five seconds' worth at first, and two a second after that.
        assert!(seconds >= (N_POOLS as i64 - 10) / 2, "{seconds} s");
        assert_eq!(fleet.one.fake.n_calls(Call::Launch), N_POOLS as u64);
        app.engine.store.close().await;
    }
);

fleet_on_sqlite_first!(
    a_scan_that_is_throttled_pauses_its_region_and_says_so,
    |fleet| {
        fleet.pool_in("pp/one", "here").await;
        fleet.round().await;
        let app = fleet.limited().await;
        let mut scanner = Scanner::new(Arc::clone(&app.engine), "one".parse().unwrap());
        let busy = || CloudError::Throttled("slow down".to_owned());
        fleet.one.fake.fail_next(Call::Owned, busy());
        fleet.one.fake.fail_next(Call::Look, busy());
        let begin = fleet.now();
        assert_eq!(
            scanner.scan_for(FOREVER).await.unwrap().unwrap().problems,
            2
        );
        // The look waited until the pause after the list was over.
        assert!(fleet.now().millis_since(begin) >= 1_000);
        let scanned = scanner.scan_for(FOREVER).await.unwrap().unwrap();
        assert_eq!((scanned.problems, scanned.seen), (0, 1));
        assert!(fleet.now().millis_since(begin) >= 3_000);
        let records = fleet.log.lines("record.fields=");
        for (kind, field) in [
            ("cloud-api-paused", "\"reason\":\"rateLimit\""),
            ("cloud-api-resumed", "\"providerId\":\"one\""),
        ] {
            let mut of_kind = records.iter().filter(|line| line.contains(kind));
            assert!(
                of_kind.any(|line| line.contains(field)),
                "{kind}: {records:?}"
            );
        }
        app.engine.store.close().await;
    }
);
