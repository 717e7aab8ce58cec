//! The life of a worker as a line: how long it was asked for, booting, idle, busy and leaving.

use domain::time::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use crate::charts::{Life, LifeLine, Segment, TimeRange, Tone};
use crate::json::Json as _;
use crate::links;

/// A run that the worker does now.
pub(super) struct PresentRun<'a> {
    pub(super) task_id: &'a str,
    pub(super) name: &'a str,
    pub(super) started: Timestamp,
}

/// A part of the life.
#[derive(Debug, PartialEq)]
struct Piece {
    from_ms: i64,
    /// `None`: it goes on.
    to_ms: Option<i64>,
    tone: Tone,
    name: &'static str,
    text: String,
    href: Option<String>,
}

impl Piece {
    fn new(from_ms: i64, to_ms: Option<i64>, tone: Tone, name: &'static str) -> Self {
        Self {
            from_ms,
            to_ms,
            tone,
            name,
            text: String::new(),
            href: None,
        }
    }
}

/// The moments of the API's reply about a life.
struct Moments {
    decided: Option<i64>,
    created: i64,
    registered: Option<i64>,
    first_claim: Option<i64>,
    asked_to_stop: Option<i64>,
    ended: Option<i64>,
}

/// The line, with the runs that are known. `has_more`: older runs are not among them.
pub(super) fn line(
    now: Timestamp,
    life: &Value,
    runs: &[Value],
    present: Option<&PresentRun<'_>>,
    has_more: bool,
) -> Markup {
    let Some(moments) = Moments::of(life) else {
        return html! {};
    };
    let pieces = pieces(&moments, runs, present, has_more);
    let segments = pieces.iter().map(|piece| Segment {
        from_ms: piece.from_ms,
        to_ms: piece.to_ms,
        tone: piece.tone,
        name: piece.name,
        text: &piece.text,
        href: piece.href.as_deref(),
    });
    let segments: Vec<Segment<'_>> = segments.collect();
    let from_ms = segments.first().map_or(0, |first| first.from_ms);
    let to_ms = moments.ended.unwrap_or(now.as_millis());
    html! {
        (LifeLine {
            title: "Life of the worker",
            range: TimeRange::new(from_ms, to_ms.max(from_ms + 1)),
            lives: &[Life {
                name: "",
                segments: &segments,
            }],
        })
    }
}

impl Moments {
    fn of(life: &Value) -> Option<Self> {
        let at = |name: &str| life.moment(name).map(Timestamp::as_millis);
        Some(Self {
            decided: at("decided"),
            created: at("created")?,
            registered: at("registered"),
            first_claim: at("firstClaim"),
            asked_to_stop: at("askedToStop"),
            ended: at("ended"),
        })
    }
}

fn pieces(
    moments: &Moments,
    runs: &[Value],
    present: Option<&PresentRun<'_>>,
    has_more: bool,
) -> Vec<Piece> {
    let mut pieces = Vec::new();
    if let Some(decided) = moments.decided.filter(|at| *at < moments.created) {
        let to = Some(moments.created);
        pieces.push(Piece::new(decided, to, Tone::Requested, "requested"));
    }
    let Some(ready) = moments.registered else {
        let booting = Piece::new(moments.created, moments.ended, Tone::Booting, "booting");
        pieces.push(booting);
        return pieces;
    };
    let booting = Piece::new(moments.created, Some(ready), Tone::Booting, "booting");
    pieces.push(booting);
    let mut from = ready;
    let mut busy = busy(runs, present);
    busy.sort_by_key(|piece| piece.from_ms);
    if let Some(first) = busy.first().filter(|_| has_more) {
        let from_ms = moments.first_claim.unwrap_or(ready);
        let mut earlier = Piece::new(from_ms, Some(first.from_ms), Tone::Ground, "earlier");
        "runs that are not listed".clone_into(&mut earlier.text);
        from = first.from_ms;
        pieces.push(earlier);
    }
    for piece in busy {
        idle(&mut pieces, (from, Some(piece.from_ms)), moments);
        // Workers of several units run tasks at once.
        from = piece.to_ms.map_or(i64::MAX, |to| to.max(from));
        pieces.push(piece);
    }
    if from < i64::MAX {
        idle(&mut pieces, (from, moments.ended), moments);
    }
    pieces
}

fn busy(runs: &[Value], present: Option<&PresentRun<'_>>) -> Vec<Piece> {
    let ended = runs.iter().filter_map(|run| {
        let resolved = run.moment("resolved")?.as_millis();
        let started = run.moment("started")?.as_millis();
        let (tone, name) = match run.text("outcome") {
            "completed" => (Tone::Busy, "busy"),
            _ => (Tone::Failed, "busy, failed"),
        };
        let mut piece = Piece::new(started, Some(resolved.max(started)), tone, name);
        let (task, reason) = (run.text("taskId"), run.text("reasonResolved"));
        piece.text = format!("{task}: {reason}");
        piece.href = Some(links::task(task));
        Some(piece)
    });
    let present = present.map(|run| {
        let mut piece = Piece::new(run.started.as_millis(), None, Tone::Busy, "busy");
        run.name.clone_into(&mut piece.text);
        piece.href = Some(links::task(run.task_id));
        piece
    });
    ended.chain(present).collect()
}

/// A time without a run; from the moment on at which it was asked to stop, it leaves.
fn idle(pieces: &mut Vec<Piece>, (from, to): (i64, Option<i64>), moments: &Moments) {
    if to.is_some_and(|to| to <= from) {
        return;
    }
    let asked = moments.asked_to_stop.map(|asked| asked.max(from));
    let asked = asked.filter(|asked| to.is_none_or(|to| *asked < to));
    let idle_to = asked.or(to);
    if idle_to != Some(from) {
        pieces.push(Piece::new(from, idle_to, Tone::Idle, "idle"));
    }
    if let Some(asked) = asked {
        pieces.push(Piece::new(asked, to, Tone::Leaving, "leaving"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn moments(ended: Option<i64>) -> Moments {
        Moments {
            decided: Some(0),
            created: 10,
            registered: Some(40),
            first_claim: Some(41),
            asked_to_stop: None,
            ended,
        }
    }

    fn names(pieces: &[Piece]) -> Vec<(&str, i64, Option<i64>)> {
        let name = |piece: &Piece| (piece.name, piece.from_ms, piece.to_ms);
        pieces.iter().map(name).collect()
    }

    fn run(started: i64, resolved: i64, outcome: &str) -> Value {
        let text = |at| Timestamp::from_millis(at).to_string();
        json!({"taskId": "t", "outcome": outcome, "reasonResolved": outcome,
            "started": text(started), "resolved": text(resolved)})
    }

    #[test]
    fn a_life_goes_from_the_decision_to_the_end_without_gaps() {
        let runs = [run(90, 95, "failed"), run(50, 80, "completed")];
        let moments = Moments {
            asked_to_stop: Some(97),
            ..moments(Some(100))
        };
        let wanted = [
            ("requested", 0, Some(10)),
            ("booting", 10, Some(40)),
            ("idle", 40, Some(50)),
            ("busy", 50, Some(80)),
            ("idle", 80, Some(90)),
            ("busy, failed", 90, Some(95)),
            ("idle", 95, Some(97)),
            ("leaving", 97, Some(100)),
        ];
        assert_eq!(names(&pieces(&moments, &runs, None, false)), wanted);
    }

    #[test]
    fn a_present_run_and_runs_that_are_not_listed_are_shown() {
        let present = PresentRun {
            task_id: "now",
            name: "build",
            started: Timestamp::from_millis(90),
        };
        let found = pieces(
            &moments(None),
            &[run(60, 80, "completed")],
            Some(&present),
            true,
        );
        let wanted = [
            ("requested", 0, Some(10)),
            ("booting", 10, Some(40)),
            ("earlier", 41, Some(60)),
            ("busy", 60, Some(80)),
            ("idle", 80, Some(90)),
            ("busy", 90, None),
        ];
        assert_eq!(names(&found), wanted);
    }

    #[test]
    fn a_worker_that_never_registered_boots_until_its_end() {
        let never = Moments {
            registered: None,
            ..moments(Some(70))
        };
        let wanted = [("requested", 0, Some(10)), ("booting", 10, Some(70))];
        assert_eq!(names(&pieces(&never, &[], None, false)), wanted);
        let open = Moments {
            asked_to_stop: Some(45),
            ..moments(None)
        };
        let found = pieces(&open, &[], None, false);
        assert_eq!(
            found.last().map(|it| (it.name, it.to_ms)),
            Some(("leaving", None))
        );
    }
}
