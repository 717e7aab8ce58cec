//! Events and the audit log: who changed what, when and why.

use api_client::{Call, FLEETWRIGHT};
use maud::{Markup, html};
use serde_json::Value;

use crate::json::Json as _;
use crate::links;
use crate::parts::{empty, heads, more, table};
use crate::view::{Part, Shown, View, Visit};
use crate::words::ago;

const PAGE: u32 = 100;
const FILTERS: [(&str, &str, &str); 4] = [
    ("type", "entityType", "Kind"),
    ("entity", "entityId", "Name"),
    ("client", "clientId", "By"),
    ("since", "since", "Since"),
];

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let after = visit.query("after");
    let call = Call::get(FLEETWRIGHT, &["audit"])
        .query("limit", Some(PAGE))
        .query("continuationToken", (!after.is_empty()).then_some(after));
    let call = FILTERS
        .into_iter()
        .fold(call, |call, (name, parameter, _)| {
            let value = visit.query(name);
            call.query(parameter, (!value.is_empty()).then_some(value))
        });
    let reply = visit.api.call(call).await?;
    let entries = reply.list("entries");
    let content = html! {
        h1 { "Events" }
        form .filter role="search" {
            @for (name, _, label) in FILTERS {
                label { span { (label) } input name=(name) value=(visit.query(name)); }
            }
            button .btn { "Find" }
        }
        @if entries.is_empty() {
            (empty("Nothing was changed that fits these filters."))
        } @else {
            (list(visit, entries))
        }
        (more(visit, reply.text("continuationToken")))
    };
    let view = View::new(Part::Events, "Events").section("events", content);
    Ok(view.command("fleetwright audit list"))
}

fn list(visit: &Visit<'_>, entries: &[Value]) -> Markup {
    let rows = html! {
        @for entry in entries {
            @let (kind, id) = (entry.text("entityType"), entry.text("entityId"));
            tr {
                td { (ago(entry.moment("created"), visit.now)) }
                td { (entry.text("clientId")) }
                td { (entry.text("actionType")) }
                td .cz { (kind) }
                th scope="row" { (object(kind, id)) }
                td .wrap { (entry.text("detail.reason")) }
            }
        }
    };
    let head = heads(&["When", "Who", "Did", "Kind", "Name", "Reason"]);
    table("Events", &head, &rows)
}

/// The object of an entry, with a link if it has a page.
fn object(kind: &str, id: &str) -> Markup {
    let url = match kind {
        "worker-pool" => Some(links::pool(id)),
        "image" => Some(links::image(id)),
        "worker-configuration" => Some(links::to("rules", &[id])),
        "worker" => Some(links::to("workers", &id.split('/').collect::<Vec<_>>())),
        _ => None,
    };
    html! {
        @match url {
            Some(url) => a href=(url) { (id) },
            None => (id),
        }
    }
}
