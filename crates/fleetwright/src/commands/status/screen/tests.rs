//! Tests of the screen of the status.

use serde_json::json;
use testing::sizes_around;

use super::*;

fn now() -> Timestamp {
    Timestamp::from_millis(1_790_000_240_000)
}

const USUAL: Extent = Extent {
    all: false,
    height: USUAL_HEIGHT,
    width: None,
};

fn parts(problems: &[Value], ill: u64, warned: u64) -> Parts {
    Parts::of(json!({
        "isWell": ill == 0, "ill": ill, "warned": warned, "problems": problems,
        "totals": {"waiting": 12, "requested": 0, "booting": 3, "idle": 1, "busy": 40,
            "leaving": 0, "costToday": 12_340_000, "costPerHour": 1_200_000},
        "pools": {"all": 12, "waiting": 3, "ill": 1, "warned": 2, "quiet": 4},
        "missingScopes": ["worker-manager:list-budgets"],
    }))
}

fn problem() -> Value {
    json!({
        "kind": "tasks-wait", "severity": "ill", "since": "2026-09-21T14:13:20.000Z",
        "reason": "12 tasks wait in demo/linux: every launch config is refused",
        "next": "the launch configs are tried again",
        "action": "fleetwright explain pool demo/linux",
    })
}

#[test]
fn a_person_sees_the_worst_first_and_what_to_do() {
    // A reply has a limit, too: of problems that it lacks, the command can show no more.
    let cut = text(&parts(&[problem()], 1, 2), USUAL, now());
    assert!(cut.contains("\n2 more\n"), "{cut}");
    let problems = vec![problem(); MAX_PROBLEMS + 1];
    let cut = text(&parts(&problems, 6, 0), USUAL, now());
    assert!(
        cut.contains("\n1 more: fleetwright status --all\n"),
        "{cut}"
    );
    let all = Extent { all: true, ..USUAL };
    insta::assert_snapshot!(text(&parts(&[problem()], 1, 0), all, now()), @r"
    1 problem is ill.
    ILL: 12 tasks wait in demo/linux: every launch config is refused (4m ago)
      by itself: the launch configs are tried again
      > fleetwright explain pool demo/linux
    Waiting 12; capacity: 3 starting, 40 busy, 1 idle, 0 leaving
    Cost $12.34 today (UTC), now $1.20 an hour
    Pools 12: 1 ill, 2 with warnings, 3 with waiting tasks, 4 quiet
    Left out without these scopes: worker-manager:list-budgets
    ");
}

#[test]
fn problems_beyond_the_limit_are_counted() {
    for count in sizes_around("fleetwright::commands::status::screen::MAX_PROBLEMS", 5) {
        let problems = vec![json!({"severity": "ill", "reason": "r"}); count];
        let text = text(&parts(&problems, count as u64, 0), USUAL, now());
        assert_eq!(text.matches("ILL: r").count(), count.min(MAX_PROBLEMS));
        let more = format!("{} more:", count.saturating_sub(MAX_PROBLEMS));
        assert_eq!(text.contains(&more), count > MAX_PROBLEMS, "{text}");
    }
}

#[test]
fn rows_beyond_the_limit_are_counted() {
    for count in sizes_around("fleetwright::commands::status::screen::MAX_ROWS", 5) {
        let mut parts = parts(&[], 0, 0);
        let item = json!({"budgetId": "b", "per": "day", "limit": 8.0, "spent": 2.0,
            "step": "within"});
        parts.budgets = json!({"budgets": vec![item; count]});
        let process = json!({"host": "h", "pid": 7, "roles": ["api"], "version": "1"});
        parts.processes = json!({"processes": vec![process; count]});
        let text = text(&parts, USUAL, now());
        let shown = count.min(MAX_ROWS);
        let line = "Budget b: 25 % of $8 a day spent\n";
        assert_eq!(text.matches(line).count(), shown, "{text}");
        assert_eq!(text.matches("h:7 ").count(), shown, "{text}");
        let more = format!(
            "and {} more: fleetwright budget list",
            count.saturating_sub(5)
        );
        assert_eq!(text.contains(&more), count > MAX_ROWS, "{text}");
    }
}

fn pool(number: usize, busy: u64) -> Value {
    json!({"workerPoolId": format!("demo/p{number}"), "waiting": 0, "requested": 0,
        "booting": 0, "idle": 0, "busy": busy, "leaving": 0, "maximum": 4, "errors": 0,
        "trouble": []})
}

#[test]
fn few_pools_are_shown_however_small_the_screen_is() {
    for count in sizes_around("fleetwright::commands::status::screen::LEAST_POOLS", 4) {
        let mut parts = parts(&[], 0, 0);
        let pools: Vec<Value> = (0..count).map(|number| pool(number, 1)).collect();
        parts.pools = json!({"pools": pools});
        let tiny = Extent { height: 1, ..USUAL };
        let text = text(&parts, tiny, now());
        assert_eq!(
            text.matches("demo/p").count(),
            count.min(LEAST_POOLS),
            "{text}"
        );
        assert_eq!(text.contains(" more pool"), count > LEAST_POOLS, "{text}");
    }
}

#[test]
fn pools_beyond_the_reply_are_counted() {
    for (matching, said) in [
        (2, ""),
        (3, "and 1 pool without trouble: fleetwright pool list"),
    ] {
        let mut parts = parts(&[], 0, 0);
        parts.pools = json!({"pools": [pool(1, 1), pool(2, 1)], "matching": matching});
        let all = Extent { all: true, ..USUAL };
        let text = text(&parts, all, now());
        assert_eq!(text.contains("without trouble"), matching > 2, "{text}");
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn a_large_fleet_fits_one_screen() {
    for count in sizes_around("fleetwright::commands::status::screen::USUAL_HEIGHT", 24) {
        let mut parts = parts(&[], 0, 0);
        let pools = (0..count).map(|number| pool(number, u64::from(number % 2 == 0)));
        parts.pools = json!({"pools": pools.collect::<Vec<_>>()});
        let shown = text(&parts, USUAL, now());
        assert!(shown.lines().count() <= USUAL_HEIGHT, "{shown}");
        let all = Extent { all: true, ..USUAL };
        let shown = text(&parts, all, now());
        assert_eq!(shown.matches("demo/p").count(), count, "{shown}");
    }
}

#[test]
fn every_part_has_its_place() {
    let mut parts = parts(&[], 0, 0);
    parts.overrides = json!({"overrides": [
        {"overrideId": "o", "workerPoolId": "a/b", "maxCapacity": 2, "inForce": true,
            "until": "2026-09-21T16:13:20.000Z", "reason": "licences"},
        {"overrideId": "p", "workerPoolId": "a/b", "launchConfigId": "lc", "pause": true,
            "inForce": true, "until": "2026-09-21T16:13:20.000Z", "reason": "slow disks"},
        {"overrideId": "q", "region": "r", "pause": true, "inForce": false}]});
    parts.budgets = json!({"budgets": [
        {"budgetId": "small", "per": "month", "limit": 90.0, "spent": 9.0, "step": "within"},
        {"budgetId": "fuzz", "per": "day", "limit": 8.0, "spent": 7.2, "step": "lowered"}]});
    parts.images = json!({"images": [{"imageId": "base"},
        {"imageId": "gpu", "canary": {"build": 2, "share": 0.25}}]});
    parts.providers = json!({"providers": [
        {"providerId": "local", "providerType": "local", "state": "in-service", "failed": 0,
            "workers": {"requested": 0, "running": 2}, "failures": []},
        {"providerId": "aws", "providerType": "aws", "state": "in-service", "failed": 3,
            "workers": {"requested": 1, "running": 9},
            "failures": [{"cause": "quota", "machines": 3}]},
        {"providerId": "racks", "providerType": "exec", "state": "out-of-service", "failed": 0,
            "workers": {"requested": 0, "running": 0}, "problem": "`setup` exited with 3",
            "failures": []}]});
    parts.processes = json!({"processes": [
        {"host": "a", "pid": 7, "version": "0.1.0", "silent": false, "roles": ["api", "scanner"],
            "started": "2026-09-21T14:13:20.000Z", "lastSeen": "2026-09-21T14:17:18.000Z"},
        {"host": "b", "pid": 8, "version": "0.1.0", "silent": true, "roles": ["api"],
            "started": "2026-09-21T14:13:20.000Z", "lastSeen": "2026-09-21T14:16:18.000Z"}]});
    let mut waits = pool(1, 4);
    waits["waiting"] = json!(3);
    waits["booting"] = json!(1);
    waits["costToday"] = json!(1_230_000);
    waits["wait"] = json!({"cause": "quota", "since": "2026-09-21T14:13:20.000Z"});
    waits["trouble"] = json!([{"kind": "tasks-wait", "severity": "ill"},
        {"kind": "errors-new", "severity": "warned"}]);
    parts.pools = json!({"pools": [waits, pool(2, 1), pool(3, 0)]});
    parts.not_allowed = vec!["budgets"];
    parts.errors = vec!["could not list images: no answer".to_owned()];
    insta::assert_snapshot!(text(&parts, USUAL, now()), @r"
    All is well.
    Waiting 12; capacity: 3 starting, 40 busy, 1 idle, 0 leaving
    Cost $12.34 today (UTC), now $1.20 an hour
    Pools 12: 1 ill, 2 with warnings, 3 with waiting tasks, 4 quiet
    Override: launch config lc of a/b paused, ends in 2h: slow disks
    Override: pool a/b at most 2, ends in 2h: licences
    Canary: build 2 of image gpu, 25 % of the new machines: fleetwright explain image gpu
    Budget fuzz: 90 % of $8 a day spent: the maximum of its pools is lowered (`fleetwright budget set fuzz` raises it)
    Budget small: 10 % of $90 a month spent

    PROVIDER  KIND   STATE           STARTING  RUNNING  FAILED 1 H  ERROR
    racks     exec   out of service         0        0           0  `setup` exited with 3
    aws       aws    in service             1        9           3  3 quota
    local     local  in service             0        2           0  -

    PROCESS  VERSION  STARTED  SEEN            ROLES
    b:8      0.1.0    4m ago   silent, 1m ago  api
    a:7      0.1.0    4m ago   2s ago          api, scanner

    POOL     WAITING  STARTING  BUSY  IDLE  MAX  $ TODAY  NOTES
    demo/p1        3         1     4     0    4     1.23  quota 4m; errors-new
    demo/p2        0         0     1     0    4        -  -
    demo/p3        0         0     0     0    4        -  -
    Left out without these scopes: worker-manager:list-budgets
    Left out, since your scopes do not allow to list them: budgets
    Left out: could not list images: no answer
    ");
}
