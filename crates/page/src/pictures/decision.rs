//! The decisions about a pool: the one of a moment with its offers, and the way to the others.

use domain::time::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use crate::api::Refusal;
use crate::charts::TimeRange;
use crate::json::Json as _;
use crate::links;
use crate::numbers;
use crate::parts::{empty, heads, refused, table};
use crate::view::Visit;
use crate::words::{ago, count, count_cell, time_taken, timed};

type Explained<'a> = Result<&'a Value, &'a Refusal>;

/// The decisions that are known, as the API explains them.
pub(super) struct Decisions<'a> {
    pub(super) pool: &'a str,
    pub(super) newest: Explained<'a>,
    /// The decisions up to the moment of the cursor, if it does not stand at the present.
    pub(super) earlier: Option<(Timestamp, Explained<'a>)>,
}

impl<'a> Decisions<'a> {
    /// Why the pool has what it has, in a sentence.
    pub(super) fn reason(&self) -> Option<String> {
        let reasons = self.newest.ok()?.list("now.plan.plan.reasons");
        let first = reasons.first().and_then(Value::as_str)?;
        let mut text = first.to_owned();
        text.get_mut(..1)?.make_ascii_uppercase();
        Some(format!("{text}."))
    }

    /// The command that shows the same.
    pub(super) fn command(&self) -> String {
        let at = self.earlier.map(|(at, _)| format!(" --at {at}"));
        format!(
            "fleetwright explain pool {}{}",
            self.pool,
            at.unwrap_or_default()
        )
    }

    /// The decisions for the marks of a chart, oldest first, with their texts and addresses.
    pub(super) fn moments(&self, visit: &Visit<'_>) -> Vec<(i64, String, String)> {
        let moment = |plan: &&Value| {
            let number = plan.count("number");
            let text = plan.text("text").lines().next().unwrap_or_default();
            let at = plan.moment("created")?;
            let text = format!("decision {number}: {text}");
            Some((at.as_millis(), text, address(visit, at)))
        };
        self.plans().iter().filter_map(moment).collect()
    }

    /// All that are known, oldest first.
    fn plans(&self) -> Vec<&'a Value> {
        let replies = [Some(self.newest), self.earlier.map(|(_, reply)| reply)];
        let replies = replies.into_iter().flatten().flatten();
        let mut plans: Vec<&Value> = replies.flat_map(|reply| reply.list("plans")).collect();
        // Only one of two equal ones has its offers.
        plans.sort_by_key(|plan| (plan.count("number"), plan.at("offers").is_null()));
        plans.dedup_by_key(|plan| plan.count("number"));
        plans
    }

    /// The decision of the moment, with the offers that were taken and those that were not.
    pub(super) fn show(&self, visit: &Visit<'_>) -> Markup {
        let (at, explained) = match self.earlier {
            Some((at, explained)) => (Some(at), explained),
            None => (None, self.newest),
        };
        let explained = match explained {
            Ok(explained) => explained,
            Err(refusal) => return refused("Decision", refusal),
        };
        let known = self.plans();
        let shown = explained.list("plans").first();
        html! {
            h2 {
                "Decision"
                @if let Some(at) = at { " at " (moment_text(at)) }
            }
            (ways(visit, &known, shown, at.is_some()))
            @match shown {
                Some(plan) => (self.plan(plan, visit)),
                None if at.is_some() => (empty("No decision from before this moment is kept.")),
                None => (empty("Nothing has been decided yet: a decision is made when a task waits.")),
            }
            (launches(visit, explained.list("launches"), shown))
        }
    }

    fn plan(&self, plan: &Value, visit: &Visit<'_>) -> Markup {
        let text = plan.text("text");
        let mut lines = text.lines();
        let is_reason = |line: &&str| line.starts_with("because ");
        html! {
            p {
                "Decision " b { (plan.count("number")) } ", "
                (ago(plan.moment("created"), visit.now)) ": " (lines.next().unwrap_or_default()) "."
            }
            ul .changes {
                @for line in lines.clone().filter(|line| !is_reason(line)) { li { (timed(line, visit.now)) } }
            }
            @for line in lines.filter(is_reason) { p .note { (timed(line, visit.now)) } }
            (offers(self.pool, plan.list("offers")))
        }
    }
}

/// The page with its cursor at a decision.
fn address(visit: &Visit<'_>, at: Timestamp) -> String {
    let at = at.as_millis().to_string();
    format!("{}#decision", visit.with("at", &at))
}

fn moment_text(at: Timestamp) -> String {
    // Within an hour, texts have seconds.
    TimeRange::new(at.as_millis() - 1, at.as_millis()).text(at.as_millis())
}

/// Links to the decisions before and after the shown one.
fn ways(visit: &Visit<'_>, known: &[&Value], shown: Option<&Value>, is_past: bool) -> Markup {
    let number = shown.map_or(0, |plan| plan.count("number"));
    let mut later = known.iter().filter(|plan| plan.count("number") > number);
    let mut earlier = known.iter().rev();
    let earlier = earlier.find(|plan| plan.count("number") < number);
    let link = |plan: &&Value, text: &str| {
        let at = plan.moment("created");
        html! {
            @if let Some(at) = at { a href=(address(visit, at)) { (text) " " i { (ago(Some(at), visit.now)) } } }
        }
    };
    html! {
        nav .views aria-label="Other decisions" {
            @if let Some(plan) = earlier { (link(plan, "← Earlier")) }
            @if let Some(plan) = later.next() { (link(plan, "Later →")) }
            @if is_past { a href={ (visit.with("at", "")) "#decision" } { "Newest" } }
        }
    }
}

fn offers(pool: &str, offers: &[Value]) -> Markup {
    let n_taken = offers.iter().filter(|it| it.count("taken") > 0).count();
    let mut offers: Vec<&Value> = offers.iter().collect();
    // Taken ones first; the others stay in the order of the decision.
    offers.sort_by_key(|offer| offer.count("taken") == 0);
    let price = |dollars: Option<f64>| dollars.map_or_else(|| "–".to_owned(), numbers::dollars);
    let rows = html! {
        @for offer in &offers {
            @let taken = offer.count("taken");
            tr {
                th scope="row" {
                    a href=(links::launch_config(pool, offer.text("launchConfigId"))) {
                        (offer.text("place"))
                    }
                }
                td .cz { (offer.text("providerId")) }
                td .n { (price(offer.number("price"))) }
                td .n { (price(offer.number("pricePerUsefulHour"))) }
                td .n { (time_taken(offer.number("readyMs"))) }
                (count_cell(offer.count("offered")))
                td .n .took[taken > 0] .z[taken == 0] { (count(taken)) }
                td .wrap.cz { (offer.text("why")) }
            }
        }
    };
    let head = heads(&[
        "Place",
        "Provider",
        "#Price an hour",
        "#Per useful hour",
        "#Ready after",
        "#Offered",
        "#Taken",
        "Why",
    ]);
    html! {
        @if !offers.is_empty() {
            h3 { (n_taken) " of " (offers.len()) " offers taken" }
            (table("Offers", &head, &rows))
        }
    }
}

/// The launches up to the moment; those of the shown decision are marked.
fn launches(visit: &Visit<'_>, launches: &[Value], shown: Option<&Value>) -> Markup {
    let number = shown.map(|plan| plan.count("number"));
    let rows = html! {
        @for launch in launches {
            @let is_of_plan = launch.at("plan").as_u64().is_some_and(|plan| Some(plan) == number);
            tr {
                td .n .took[is_of_plan] { (launch.count("plan")) }
                td { (ago(launch.moment("created"), visit.now)) }
                th scope="row" { (launch.text("launchConfigId")) }
                td .cz { (launch.text("providerId")) }
                (count_cell(launch.count("machines")))
                (count_cell(launch.count("made")))
                td { (launch.text("state")) }
                td .wrap.cz { (problem(launch)) }
            }
        }
    };
    let head = heads(&[
        "#Decision",
        "When",
        "Launch config",
        "Provider",
        "#Asked for",
        "#Made",
        "State",
        "Problem",
    ]);
    html! {
        @if !launches.is_empty() {
            h3 { "Launches up to then" }
            (table("Launches", &head, &rows))
        }
    }
}

/// The problem of a launch. Most begin with their cause.
fn problem(launch: &Value) -> String {
    let (cause, problem) = (launch.text("cause"), launch.text("problem"));
    match problem.starts_with(cause) {
        true => problem.to_owned(),
        false => format!("{cause}: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(plans: &Value) -> Value {
        json!({"plans": plans})
    }

    #[test]
    fn decisions_of_both_replies_are_listed_once_with_their_offers() {
        let plan = |number: u32| json!({"number": number, "created": "1970-01-01T01:00:00.000Z"});
        let newest = reply(&json!([plan(5), plan(4)]));
        let mut with_offers = plan(4);
        with_offers["offers"] = json!([]);
        let earlier = reply(&json!([with_offers, plan(3)]));
        let decisions = Decisions {
            pool: "a/b",
            newest: Ok(&newest),
            earlier: Some((Timestamp::from_millis(0), Ok(&earlier))),
        };
        let plans = decisions.plans();
        let numbers: Vec<u64> = plans.iter().map(|plan| plan.count("number")).collect();
        assert_eq!(numbers, [3, 4, 5]);
        assert!(plans[1].at("offers").is_array());
        assert_eq!(
            decisions.command(),
            "fleetwright explain pool a/b --at 1970-01-01T00:00:00.000Z"
        );
    }
}
