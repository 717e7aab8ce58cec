//! Shows past events, and new ones as they happen.

use std::time::Duration;

use clap::{Args, Subcommand};
use domain::event::EXCHANGES;
use domain::time::{MINUTE_MS, Timestamp};
use reqwest::Response;
use serde_json::Value;
use tokio::time::timeout;

use super::{Session, name};
use crate::client::{Call, FLEETWRIGHT, NOT_OUR_SERVER, OpenOutcome};
use crate::failure::Failure;
use crate::{machine, output};

/// A stream without data for this long is broken: the server sends keep-alives more often.
const SILENCE_LIMIT: Duration = Duration::from_secs(45);
/// Maximum duration of a stream; the server ends streams earlier.
const STREAM_LIMIT: Duration = Duration::from_secs(60 * 60);
/// Maximum number of attempts in a row without an event: at first, and after the first event.
const FIRST_TRIES: u32 = 3;
const MAX_TRIES: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_MESSAGE_BYTES: usize = 64 << 20;
const RECENT_MS: i64 = 10 * MINUTE_MS;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Show recent events; with --follow, also new ones
    ///
    /// Shows the events of the last ten minutes, or since the time of --since. With --follow, the
    /// command reconnects after connection failures without missing events. Times are in UTC.
    Tail(Tail),
}

#[derive(Args, Debug)]
pub(crate) struct Tail {
    /// Only events of this pool and its tasks
    #[arg(long, value_name = "POOL", value_parser = name::pool)]
    pool: Option<String>,
    /// Only events of this worker
    #[arg(long, value_name = "WORKER")]
    worker: Option<String>,
    /// Only events of this task
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Only events of this task group
    #[arg(long, value_name = "GROUP")]
    task_group: Option<String>,
    /// Only events of this exchange, such as worker-running; repeatable
    #[arg(long, value_name = "EXCHANGE", value_delimiter = ',')]
    exchange: Vec<String>,
    /// Start: a time such as 2027-01-31T12:00:00Z, or a duration before now such as 90m or 2d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Wait for new events
    #[arg(short, long)]
    follow: bool,
}

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    let Verb::Tail(arguments) = verb;
    let since = arguments.begin(session.now)?;
    arguments.refuse_unknown_exchanges()?;
    let exchanges = (!arguments.exchange.is_empty()).then(|| arguments.exchange.join(","));
    let mut call = Call::get(FLEETWRIGHT, &["events"])
        .query("exchange", exchanges)
        .query("workerPoolId", arguments.pool.as_ref())
        .query("workerId", arguments.worker.as_ref())
        .query("taskId", arguments.task.as_ref())
        .query("taskGroupId", arguments.task_group.as_ref())
        .query("since", Some(since))
        .to("listen to events");
    if !arguments.follow {
        call = call.query("follow", Some("false"));
    }
    follow(session, &call, arguments.follow).await
}

impl Tail {
    fn refuse_unknown_exchanges(&self) -> Result<(), Failure> {
        let mut known = EXCHANGES.iter().map(|known| known.exchange);
        let unknown = self.exchange.iter().find(|name| {
            let last_part = name.rsplit('/').next();
            known.clone().all(|known| Some(known) != last_part)
        });
        let Some(unknown) = unknown else {
            return Ok(());
        };
        let meant = rules::did_you_mean(unknown, known.by_ref());
        Err(
            Failure::usage(format!("there is no exchange {unknown:?}{meant}"))
                .with_hint("docs/events.md lists the exchanges"),
        )
    }

    fn begin(&self, now: Timestamp) -> Result<Timestamp, Failure> {
        let Some(text) = &self.since else {
            return Ok(now.plus_millis(-RECENT_MS));
        };
        output::parse_past_moment(text, now).map_err(Failure::usage)
    }
}

/// Reads streams, each from the end of the previous one.
async fn follow(session: &Session, call: &Call, goes_on: bool) -> Result<(), Failure> {
    let mut place: Option<String> = None;
    let mut tries = 0;
    loop {
        let reason = match session
            .client
            .open(call, place.as_deref(), STREAM_LIMIT)
            .await?
        {
            OpenOutcome::Stream(response) => {
                let before = place.clone();
                let ended = read(session, response, &mut place).await?;
                if place != before {
                    tries = 0;
                }
                match ended {
                    End::Closed if !goes_on => return Ok(()),
                    // The server checks the credentials again, or ends streams for another reason.
                    End::Closed => {
                        machine::pause(FIRST_PAUSE).await;
                        continue;
                    }
                    End::Lost(reason) => reason,
                }
            }
            OpenOutcome::Missing(failure) => return Err(failure),
            OpenOutcome::Redirect(_) => {
                let text = "could not listen to events: the server answered with a redirect";
                return Err(Failure::failed(text).with_hint(NOT_OUR_SERVER));
            }
            OpenOutcome::Broken(reason) => reason,
        };
        tries += 1;
        let has_heard = place.is_some();
        if tries >= if has_heard { MAX_TRIES } else { FIRST_TRIES } {
            return Err(session.client.unreachable(call, &reason));
        }
        if tries == 1 && has_heard {
            output::note(&format!("the connection was lost ({reason}); reconnecting"));
        }
        machine::pause(FIRST_PAUSE * 2_u32.pow(tries.min(6) - 1)).await;
    }
}

enum End {
    /// The server closed the stream.
    Closed,
    Lost(String),
}

/// Prints events, and stores the place of the last one.
async fn read(
    session: &Session,
    mut response: Response,
    place: &mut Option<String>,
) -> Result<End, Failure> {
    let mut received: Vec<u8> = Vec::new();
    loop {
        let chunk = match timeout(SILENCE_LIMIT, response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Ok(End::Lost("the server closed the connection".to_owned())),
            Ok(Err(error)) => return Ok(End::Lost(error.without_url().to_string())),
            Err(_) => return Ok(End::Lost("the server sent no data".to_owned())),
        };
        received.extend_from_slice(&chunk);
        if received.len() > MAX_MESSAGE_BYTES {
            return Err(Failure::failed(
                "could not listen to events: a message has more bytes than any event. Update this program",
            ));
        }
        while let Some(end) = received.windows(2).position(|pair| pair == b"\n\n") {
            let message: Vec<u8> = received.drain(..end + 2).collect();
            let message = Message::parse(&String::from_utf8_lossy(&message));
            if message.id.is_some() {
                place.clone_from(&message.id);
            }
            if let Some(end) = show(session, &message) {
                return Ok(end);
            }
        }
    }
}

/// One message of the stream.
#[derive(Debug, Default, PartialEq)]
struct Message {
    id: Option<String>,
    event: Option<String>,
    payload: Value,
}

impl Message {
    fn parse(text: &str) -> Self {
        let mut message = Self::default();
        for line in text.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => message.id = Some(id.to_owned()),
                Some(("event", event)) => message.event = Some(event.to_owned()),
                Some(("data", text)) => {
                    message.payload = serde_json::from_str(text).unwrap_or_default();
                }
                Some(_) | None => {}
            }
        }
        message
    }
}

/// Prints an event; returns the end of the stream if the message is that.
fn show(session: &Session, message: &Message) -> Option<End> {
    let event = message.event.as_deref()?;
    match event {
        "end" => return Some(End::Closed),
        "missed" => output::note(&format!(
            "some events are missing: the server no longer has those from {} to {}",
            message.payload["after"], message.payload["until"]
        )),
        _ if session.json => output::out(&message.payload.to_string()),
        name => output::out(&line(name, &message.payload)),
    }
    None
}

/// An event as a line: time, exchange, subject.
fn line(name: &str, event: &Value) -> String {
    let payload = &event["payload"];
    // Reasons and titles come from workers, so control characters are removed.
    let text = |value: &Value| value.as_str().map(output::printable);
    let status = &payload["status"];
    let clock = output::clock_of(&event["created"]);
    let worker = match (&payload["workerGroup"], &payload["workerId"]) {
        (Value::String(group), Value::String(id)) => {
            Some(output::printable(&format!("{group}/{id}")))
        }
        _ => None,
    };
    let run = payload["runId"].as_u64().map(|run| format!("run {run}"));
    let words = [
        text(&payload["workerPoolId"]).or_else(|| text(&status["taskQueueId"])),
        text(&status["taskId"]),
        run,
        text(&payload["taskGroupId"]),
        worker,
        text(&payload["launchConfigId"]),
        text(&payload["clientId"]),
        text(&payload["roleId"]),
        text(&payload["artifact"]["name"]),
        text(&payload["reason"]),
        text(&payload["title"]),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    format!("{clock} {name:<22} {}", words.join("  "))
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn tail(since: Option<&str>) -> Tail {
        Tail {
            pool: None,
            worker: None,
            task: None,
            task_group: None,
            exchange: Vec::new(),
            since: since.map(str::to_owned),
            follow: false,
        }
    }

    #[test]
    fn a_listing_begins_in_the_past() {
        let now = at("2027-01-31T12:00:00.000Z");
        for (since, expected) in [
            (None, "2027-01-31T11:50:00.000Z"),
            (Some("2h"), "2027-01-31T10:00:00.000Z"),
            (Some("0s"), "2027-01-31T12:00:00.000Z"),
            (Some("2026-01-01T00:00:00Z"), "2026-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(tail(since).begin(now).unwrap(), at(expected), "{since:?}");
        }
        assert!(tail(Some("yesterday")).begin(now).is_err());
    }

    #[test]
    fn a_misspelt_name_of_an_event_is_noticed() {
        let mut tail = tail(None);
        let names = [
            "worker-running",
            "exchange/taskcluster-queue/v1/task-failed",
            "worker-runing",
        ];
        tail.exchange = names.map(str::to_owned).to_vec();
        let refused = tail.refuse_unknown_exchanges().unwrap_err();
        assert_eq!(
            refused.message,
            "there is no exchange \"worker-runing\", did you mean \"worker-running\"?"
        );
        tail.exchange.truncate(2);
        assert!(tail.refuse_unknown_exchanges().is_ok());
    }

    #[test]
    fn a_message_is_its_lines() {
        let message = Message::parse("id: 7\nevent: worker-running\ndata: {\"a\": 1}\n\n");
        assert_eq!(message.id.as_deref(), Some("7"));
        assert_eq!(message.event.as_deref(), Some("worker-running"));
        assert_eq!(message.payload, json!({"a": 1}));
        assert_eq!(Message::parse("retry: 500\n\n"), Message::default());
    }

    #[test]
    fn an_event_is_a_line_that_people_can_read() {
        let event =
            |payload: Value| json!({"created": "2026-09-21T14:13:20.000Z", "payload": payload});
        let worker = event(json!({"workerPoolId": "demo/linux", "workerGroup": "host",
            "workerId": "w1", "providerId": "local", "capacity": 1}));
        assert_eq!(
            line("worker-running", &worker),
            "2026-09-21 14:13:20Z worker-running         demo/linux  host/w1"
        );
        let task = event(json!({"runId": 0, "status": {"taskId": "T", "taskQueueId": "a/b"}}));
        assert_eq!(
            line("task-pending", &task),
            "2026-09-21 14:13:20Z task-pending           a/b  T  run 0"
        );
        assert_eq!(line("what-may-come", &json!({})), " what-may-come");
        let error = event(json!({"workerPoolId": "a/b", "title": "no\u{1b}[2J\r\nspace"}));
        assert_eq!(
            line("worker-pool-error", &error),
            "2026-09-21 14:13:20Z worker-pool-error      a/b  no\u{fffd}[2J space"
        );
    }
}
