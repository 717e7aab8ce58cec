//! The pictures: one file for each, and the addresses that lead to them.

mod canary;
mod changes;
mod decision;
mod drawn;
mod errors;
mod events;
mod health;
mod health_board;
mod images;
mod launch_config;
mod money;
mod names;
mod overview;
mod pool;
mod providers;
pub(crate) mod rules;
mod startup;
mod task;
mod waiting;
mod what_if;
mod worker;
mod worker_life;
mod workers;

use maud::html;

use crate::view::{Problem, Shown, Visit};

/// The page at the address of a visit. Its title is a section, too, because it changes with them.
pub async fn show(visit: &Visit<'_>) -> Shown {
    let view = picture(visit).await?;
    let title = view.window_title();
    Ok(view.section("title", html! { span hidden { (title) } }))
}

async fn picture(visit: &Visit<'_>) -> Shown {
    let path: Vec<&str> = visit.path.iter().map(String::as_str).collect();
    match path.as_slice() {
        [] => overview::show(visit).await,
        ["pools", provisioner, kind] => pool::show(visit, &format!("{provisioner}/{kind}")).await,
        ["launch-configs", provisioner, kind, id] => {
            launch_config::show(visit, &format!("{provisioner}/{kind}"), id).await
        }
        ["waiting"] => waiting::show(visit).await,
        ["what-if"] => what_if::show(visit).await,
        ["workers"] => workers::show(visit).await,
        ["workers", provisioner, kind, group, id] => {
            worker::show(visit, &format!("{provisioner}/{kind}"), group, id).await
        }
        ["tasks", id] => task::show(visit, id).await,
        ["groups", id] => task::group(visit, id).await,
        ["health"] => health::show(visit).await,
        ["start-up"] => startup::show(visit).await,
        ["errors"] => errors::show(visit).await,
        ["images"] => images::list(visit).await,
        ["images", id] => images::show(visit, id).await,
        ["rules"] => rules::list(visit).await,
        ["rules", id] => rules::show(visit, id).await,
        ["money"] => money::show(visit).await,
        ["providers"] => providers::show(visit).await,
        ["events"] => events::show(visit).await,
        _ => Err(Problem::NotFound),
    }
}
