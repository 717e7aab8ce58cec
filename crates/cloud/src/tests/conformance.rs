//! A conformance run on a provider under test.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use domain::pool::Pool;
use domain::time::Timestamp;
use serde_json::Value;

use super::fixture::Fixture;
use crate::{
    ConformanceFinding, ConformanceHost, ConformanceResult, ConformanceRun, ProviderQuestion,
};

/// Looks until a cloud has done what it was asked, at most.
const MAX_WAITS: usize = 1_000;

/// The surroundings of a conformance run in a test.
struct TestHost<'a> {
    fixture: &'a dyn Fixture,
    n_waits: AtomicUsize,
    findings: Mutex<Vec<ConformanceFinding>>,
}

#[async_trait]
impl ConformanceHost for TestHost<'_> {
    fn now(&self) -> Timestamp {
        self.fixture.now()
    }

    async fn wait(&self) -> bool {
        self.fixture.settle().await;
        self.n_waits.fetch_add(1, Ordering::Relaxed) < MAX_WAITS
    }

    fn note(&self, finding: ConformanceFinding) {
        self.findings
            .lock()
            .expect("no test panicked")
            .push(finding);
    }
}

/// Among its questions: two orders with one token make one machine.
pub(crate) async fn a_conformance_run_finds_no_fault(fixture: &dyn Fixture, pool: Pool) {
    let host = TestHost {
        fixture,
        n_waits: AtomicUsize::new(0),
        findings: Mutex::default(),
    };
    let run = ConformanceRun {
        provider_id: &fixture.id(),
        provider: fixture.provider(),
        root_url: &fixture.root_url(),
        pool: Some(pool),
        is_made_up: true,
        pool_data: Value::Null,
        token: "BBBBBBBBQQCBBBBBBBBBBQ".parse().ok(),
    };
    run.ask(&host).await;
    let findings = host.findings.into_inner().expect("no test panicked");
    let failed: Vec<_> = findings
        .iter()
        .filter(|it| it.result == ConformanceResult::Failed)
        .collect();
    assert_eq!(failed, Vec::<&ConformanceFinding>::new());
    let gone = findings
        .iter()
        .find(|it| it.question == ProviderQuestion::Gone);
    let gone = gone.expect("a machine was made");
    assert_eq!(gone.result, ConformanceResult::Passed, "{findings:?}");
}
