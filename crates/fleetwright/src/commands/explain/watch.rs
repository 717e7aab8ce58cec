//! `explain --watch`: prints an explanation again whenever it has changed.

use std::time::Duration;

use super::Session;
use crate::client::Call;
use crate::failure::Failure;
use crate::machine::pause;
use crate::output;

/// An explanation is requested this often.
const EVERY: Duration = Duration::from_secs(2);

/// Prints the explanation; with `again`, also each later change, until Ctrl-C.
pub(super) async fn show(
    call: &Call,
    again: bool,
    session: &Session,
    text: impl Fn(&serde_json::Value) -> String,
) -> Result<(), Failure> {
    let mut last = String::new();
    loop {
        let reply = session.client.call(call).await?;
        let shown = text(&reply);
        // The time of the request is no news.
        let news = shown.lines().skip(1).collect::<Vec<_>>().join("\n");
        if news != last || !again {
            match session.json {
                true => output::json(&reply),
                false => output::out(shown.trim_end()),
            }
            last = news;
        }
        if !again {
            return Ok(());
        }
        pause(EVERY).await;
    }
}
