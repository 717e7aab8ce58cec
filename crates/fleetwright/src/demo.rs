//! The demo: a made-up fleet.
//!
//! `scene.yaml` has its data: three fake clouds, a week of history, a load that goes on. `past.rs`
//! makes the history: people act over the API of a server whose clock a script moves, and the
//! product's own code builds images, judges canaries and decides. Only the accounts of the week are
//! simulated (`week.rs`), because to run a week of tasks would take minutes. `load.rs` and
//! `floor.rs` then act as the clients and the machines of the running server, over HTTP.

mod accounts;
mod api;
mod clouds;
mod floor;
mod load;
mod past;
mod past_images;
mod past_series;
mod scene;
mod site;
mod week;
mod worker;

pub(crate) use api::{Api, Cast};
pub(crate) use clouds::Clouds;
pub(crate) use floor::Floor;
pub(crate) use load::Load;
pub(crate) use past::{begin, make as make_past};
pub(crate) use scene::Scene;
