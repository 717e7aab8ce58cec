//! The panels and the alerts.
//!
//! Several processes of a deployment may show the same gauge, so gauges are asked for by `max` or
//! `min`, and never added up over processes.

/// A picture of the dashboard.
pub(super) struct Panel {
    pub(super) row: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    /// A unit of Grafana.
    pub(super) unit: &'static str,
    /// Whether its series are put on top of each other.
    pub(super) is_stacked: bool,
    /// Each with the name of its series.
    pub(super) queries: &'static [(&'static str, &'static str)],
}

/// A situation that a person should look at.
pub(super) struct Alert {
    pub(super) name: &'static str,
    pub(super) query: &'static str,
    /// It holds for this long.
    pub(super) minutes: u32,
    pub(super) severity: &'static str,
    pub(super) summary: &'static str,
    pub(super) action: &'static str,
}

const TASKS: &str = "Tasks";
const FLEET: &str = "Workers";
const CLOUDS: &str = "Providers";
const SERVER: &str = "Server";

macro_rules! panels {
    ($($row:ident, $title:literal, $unit:literal, $stacked:literal, $description:literal:
       $($legend:literal = $query:literal),+;)+) => {
        &[$(Panel {
            row: $row,
            title: $title,
            description: $description,
            unit: $unit,
            is_stacked: $stacked,
            queries: &[$(($legend, $query)),+],
        }),+]
    };
}

pub(super) static PANELS: &[Panel] = panels! {
    TASKS, "Waiting tasks", "short", true, "Tasks that wait for a worker, by pool.":
        "{{workerPoolId}}" =
        r#"max by (workerPoolId) (fleetwright_tasks{state="pending", workerPoolId=~"$pool"})"#;
    TASKS, "Why they wait", "short", true, "Waiting tasks by the cause for which the next one waits: `fleetwright explain task` says more.":
        "{{cause}}" =
        r#"sum by (cause) (max by (workerPoolId, cause) (fleetwright_waiting_tasks{workerPoolId=~"$pool"}))"#;
    TASKS, "The longest wait", "s", false, "How long the task that waits longest has waited.":
        "{{workerPoolId}}" =
        r#"max by (workerPoolId) (fleetwright_oldest_pending_task_seconds{workerPoolId=~"$pool"})"#;
    TASKS, "Running tasks", "short", true, "Tasks that workers run, by pool.":
        "{{workerPoolId}}" =
        r#"max by (workerPoolId) (fleetwright_tasks{state="running", workerPoolId=~"$pool"})"#;
    TASKS, "Ended runs", "ops", true, "Runs that ended in a second, by outcome.":
        "{{outcome}}" = "sum by (outcome) (rate(fleetwright_task_runs_total[5m]))";
    FLEET, "Units", "short", true, "Units of machines, by state. A unit runs one task at a time.":
        "{{state}}" =
        r#"sum by (state) (max by (workerPoolId, state) (fleetwright_capacity{workerPoolId=~"$pool"}))"#;
    FLEET, "Use of the maximum", "percentunit", false, "Units of each pool, of those that it may have.":
        "{{workerPoolId}}" =
        r#"sum by (workerPoolId) (max by (workerPoolId, state) (fleetwright_capacity{workerPoolId=~"$pool"})) / (max by (workerPoolId) (fleetwright_capacity_maximum{workerPoolId=~"$pool"}) > 0)"#;
    FLEET, "Cost an hour", "currencyUSD", true, "The price of the machines of each pool now.":
        "{{workerPoolId}}" =
        r#"max by (workerPoolId) (fleetwright_cost_per_hour{workerPoolId=~"$pool"})"#;
    FLEET, "Cost today", "currencyUSD", true, "Since midnight (UTC).":
        "{{workerPoolId}}" =
        r#"max by (workerPoolId) (fleetwright_cost_today{workerPoolId=~"$pool"})"#;
    FLEET, "Errors in the last hour", "short", true, "Errors that workers and providers reported, by pool.":
        "{{workerPoolId}}" =
        r#"max by (workerPoolId) (fleetwright_worker_pool_errors{workerPoolId=~"$pool"})"#;
    FLEET, "Time of each step of a launch", "s", false, "Nine of ten machines took no longer for this step.":
        "{{phase}}" =
        "histogram_quantile(0.9, sum by (le, phase) (rate(fleetwright_machine_phase_seconds_bucket[30m])))";
    CLOUDS, "Problems", "short", true, "As `fleetwright status` shows them.":
        "{{severity}}: {{kind}}" = "max by (kind, severity) (fleetwright_problems)";
    CLOUDS, "In service", "bool_yes_no", false, "0 if the set-up of the provider has not succeeded.":
        "{{providerId}}" = "min by (providerId) (fleetwright_provider_in_service)";
    CLOUDS, "Answers to launches", "ops", true, "Launches in a second, by provider and outcome.":
        "{{providerId}} {{outcome}}" =
        "sum by (providerId, outcome) (rate(fleetwright_launch_seconds_count[5m]))";
    CLOUDS, "Time of a launch", "s", false, "Nine of ten calls took no longer.":
        "{{providerId}}" =
        "histogram_quantile(0.9, sum by (le, providerId) (rate(fleetwright_launch_seconds_bucket[30m])))";
    SERVER, "Requests", "reqps", true, "Requests in a second, by status.":
        "{{status}}" = "sum by (status) (rate(http_requests_total[5m]))";
    SERVER, "Time of requests", "s", false, "99 of 100 requests took no longer.":
        "all" =
        "histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket[5m])))";
    SERVER, "Time of transactions", "s", false, "99 of 100 transactions of the database took no longer.":
        "{{engine}}" =
        "histogram_quantile(0.99, sum by (le, engine) (rate(fleetwright_store_seconds_bucket[5m])))";
    SERVER, "Busiest transactions", "s", true, "Seconds of each second in which such transactions ran.":
        "{{name}}" = "topk(10, sum by (name) (rate(fleetwright_transaction_seconds_sum[5m])))";
    SERVER, "Background tasks", "s", false, "Time since their last success.":
        "{{name}}" =
        "time() - max by (name) (fleetwright_task_last_success_timestamp_seconds)";
};

macro_rules! alerts {
    ($($name:literal, $severity:literal, $minutes:literal, $query:literal,
       $summary:literal, $action:literal;)+) => {
        &[$(Alert {
            name: $name,
            query: $query,
            minutes: $minutes,
            severity: $severity,
            summary: $summary,
            action: $action,
        }),+]
    };
}

pub(super) static ALERTS: &[Alert] = alerts! {
    "FleetwrightDown", "critical", 3, r#"up{job="fleetwright"} == 0"#,
        "A server of Fleetwright cannot be asked for its metrics.",
        "See whether it runs. `fleetwright doctor` on its machine checks its settings.";
    "FleetwrightProviderOutOfService", "critical", 5,
        "min by (providerId) (fleetwright_provider_in_service) == 0",
        "No worker starts with the provider {{ $labels.providerId }}.",
        "`fleetwright provider list` shows its last error.";
    "FleetwrightProblem", "critical", 15,
        r#"max by (kind) (fleetwright_problems{severity="ill"}) > 0"#,
        "Something is ill for a quarter of an hour: {{ $labels.kind }}.",
        "`fleetwright status` says where, why, and which command says more.";
    "FleetwrightTasksWait", "warning", 10,
        "max by (workerPoolId) (fleetwright_oldest_pending_task_seconds) > 1800",
        "A task of {{ $labels.workerPoolId }} has waited for more than half an hour.",
        "`fleetwright explain pool {{ $labels.workerPoolId }}` says why.";
    "FleetwrightLaunchesRefused", "warning", 15,
        r#"sum by (providerId) (rate(fleetwright_launch_seconds_count{outcome!="accepted"}[15m])) / sum by (providerId) (rate(fleetwright_launch_seconds_count[15m])) > 0.5"#,
        "{{ $labels.providerId }} refuses more than half of the launches.",
        "`fleetwright health` shows which launch configs fail, and why.";
    "FleetwrightBudgetSpent", "warning", 0,
        "min by (budgetId) (fleetwright_budget_left) <= 0",
        "The budget {{ $labels.budgetId }} is spent: it starts no machine.",
        "`fleetwright budget list` shows when its next period begins.";
    "FleetwrightBackgroundTaskLate", "warning", 5,
        "time() - max by (name) (fleetwright_task_last_success_timestamp_seconds) > 1800",
        "The background task {{ $labels.name }} has not succeeded for half an hour.",
        "The log of the servers has its error, and `fleetwright process list` shows the servers.";
    "FleetwrightRequestsFail", "warning", 10,
        r#"sum(rate(http_requests_total{status=~"5.."}[5m])) / sum(rate(http_requests_total[5m])) > 0.02"#,
        "More than 2 % of the requests end with an error of the server.",
        "The log of the servers has their incidents; `fleetwright doctor` checks the database.";
    "FleetwrightNoticesFail", "warning", 30,
        "min by (channel) (fleetwright_notices_up) == 0",
        "Notices cannot be sent by {{ $labels.channel }}.",
        "`fleetwright doctor` checks mail servers and webhooks.";
    "FleetwrightClockWrong", "warning", 5,
        "max by (instance) (abs(fleetwright_clock_skew_seconds)) > 5",
        "The clock of {{ $labels.instance }} differs from that of the database.",
        "Let a time service (NTP) keep both right. `fleetwright doctor` shows the difference.";
};
