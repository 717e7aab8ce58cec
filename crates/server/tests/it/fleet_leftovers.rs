//! Machines that could not be made after all, and what machines have left.

use std::sync::Arc;

use cloud::{Leftover, MachineEnd};
use domain::launch::Cause;
use engine::fleet::Scanner;

use crate::fleet_world::{MINUTE_MS, POOL, fleet_test, plain_pool};

fleet_test!(
    a_machine_that_cannot_be_made_after_all_is_reported_with_its_cause,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 requested");
        let end = MachineEnd::not_made("QUOTA_EXCEEDED: 24 CPUs".to_owned(), Some(Cause::Quota));
        fleet.one.fail_machines(end);
        assert_eq!(fleet.scan().await["stopped"], 1);
        let report = ("creation-error".to_owned(), "quota".to_owned());
        assert_eq!(fleet.errors(POOL).await, [report]);
        fleet.scan().await;
        assert_eq!(fleet.errors(POOL).await.len(), 1, "it is reported once");
    }
);

fleet_test!(leftovers_are_removed_now_and_then, |fleet| {
    let disk = || Leftover {
        kind: "disk",
        name: "d".to_owned(),
    };
    let id = "one".parse().unwrap();
    let mut scanner = Scanner::new(Arc::clone(&fleet.app.engine), id);
    fleet.one.leave([disk()]);
    scanner.scan().await.unwrap();
    let n_regions = fleet.one.leave([]);
    assert!(n_regions > 0);
    scanner.scan().await.unwrap();
    assert_eq!(fleet.one.leave([]), n_regions, "it was a moment ago");
    fleet.pass_ms(10 * MINUTE_MS);
    scanner.scan().await.unwrap();
    assert_eq!(fleet.one.leave([]), 2 * n_regions);
});
