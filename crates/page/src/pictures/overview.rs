//! The start page: is all well, and every pool.

use api_client::{Call, WORKER_MANAGER};
use maud::html;

use crate::json::Json as _;
use crate::links;
use crate::parts::{empty, heads, more, table};
use crate::view::{Part, Shown, View, Visit};
use crate::words::count_cell;

/// Pools of a page.
const PAGE: u32 = 100;

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let after = visit.query("after");
    let call = Call::get(WORKER_MANAGER, &["worker-pools"])
        .query("limit", Some(PAGE))
        .query("continuationToken", (!after.is_empty()).then_some(after));
    let reply = visit.api.call(call).await?;
    let pools = reply.list("workerPools");
    let rows = html! {
        @for pool in pools {
            @let id = pool.text("workerPoolId");
            tr {
                th scope="row" { a href=(links::pool(id)) { (id) } }
                (count_cell(pool.count("requestedCapacity")))
                (count_cell(pool.count("runningCapacity")))
                (count_cell(pool.count("stoppingCapacity")))
                td .cz { (pool.text("providerId")) }
                td .wrap.cz { (pool.text("owner")) }
            }
        }
    };
    let head = heads(&[
        "Pool",
        "#Starting",
        "#Running",
        "#Leaving",
        "Provider",
        "Owner",
    ]);
    let list = html! {
        h1 { "Pools" }
        @if pools.is_empty() {
            (empty("There are no pools yet. `fleetwright pool create` makes one, and \
                `fleetwright rules create` makes pools from rules."))
        } @else {
            (table("Pools", &head, &rows))
        }
        (more(visit, reply.text("continuationToken")))
    };
    let view = View::new(Part::Overview, "Pools").section("pools", list);
    Ok(view.command("fleetwright pool list"))
}
