//! `fleetwright provider test`: asks a provider what every provider must answer well.

use std::time::Duration;

use access::slugid;
use api_client::pause;
use clap::Args;
use serde_json::{Value, json};

use super::{Session, name};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::input::read_document;
use crate::machine;
use crate::output;

/// How long one reply may wait.
const WAIT_SECONDS: u64 = 20;
/// A test takes ten minutes at most, and each call of it some more.
const MAX_CALLS: u32 = 200;
/// Another process of the server may answer a call; the next one may reach the right process.
const MAX_STRAYS: u32 = 30;
const STRAY_PAUSE: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Provider id, such as aws
    #[arg(value_name = "PROVIDER")]
    provider: String,
    /// Ask about the launch configs of this pool
    #[arg(long, value_name = "POOL", value_parser = name::pool, conflicts_with = "launch_config")]
    pool: Option<String>,
    /// Ask about the launch config in this file: YAML, JSON or TOML (`-`: standard input)
    #[arg(long, value_name = "FILE")]
    launch_config: Option<String>,
    /// Make one machine, look at it, list it and end it
    #[arg(long)]
    launch: bool,
}

pub(crate) async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    if arguments.launch && arguments.pool.is_none() && arguments.launch_config.is_none() {
        return Err(Failure::usage(
            "--launch needs a launch config: give --pool or --launch-config",
        ));
    }
    let mut body = json!({
        "testId": slugid::nice(&mut machine::random_source()),
        "launch": arguments.launch,
        "waitSeconds": WAIT_SECONDS,
    });
    if let Some(pool) = &arguments.pool {
        body["workerPoolId"] = json!(pool);
    }
    if let Some(file) = &arguments.launch_config {
        body["launchConfig"] = read_document(file)?;
    }
    let reply = follow(&arguments.provider, body, session).await?;
    if session.json {
        output::json(&reply);
    }
    let failed = questions(&reply).filter(|it| it["result"] == "failed");
    match failed.count() {
        0 => Ok(()),
        n => Err(Failure::failed(format!(
            "provider {} did not answer {} as it must",
            arguments.provider,
            output::counted(n, "question")
        ))),
    }
}

/// Begins the test, and asks until it has ended. Prints each answer when it comes.
async fn follow(provider: &str, mut body: Value, session: &Session) -> Result<Value, Failure> {
    let (mut n_shown, mut n_strays) = (0, 0);
    for _ in 0..MAX_CALLS {
        let path = ["provider", provider, "test"];
        let call = Call::post(WORKER_MANAGER, &path, body.clone())
            .to(format!("test provider {provider}"))
            .list_command("fleetwright provider list");
        let reply = match session.client.call(&call).await {
            Err(failure)
                if failure.exit == Exit::NotFound
                    && body["continue"] == true
                    && n_strays < MAX_STRAYS =>
            {
                n_strays += 1;
                pause(STRAY_PAUSE).await;
                continue;
            }
            reply => reply?,
        };
        body["continue"] = json!(true);
        if !session.json {
            for question in questions(&reply).skip(n_shown) {
                show(question);
            }
        }
        n_shown = questions(&reply).count();
        if reply["state"] == "done" {
            return Ok(reply);
        }
    }
    Err(Failure::failed(format!(
        "the test of provider {provider} did not end in time; it goes on in the server. Look at its log"
    )))
}

fn questions(reply: &Value) -> impl Iterator<Item = &Value> {
    reply["questions"].as_array().into_iter().flatten()
}

/// One line for a question, and one for the next step if it failed.
fn show(question: &Value) {
    let text = |key: &str| output::printable(question[key].as_str().unwrap_or_default());
    let mark = match question["result"].as_str() {
        Some("passed") => "ok",
        Some("failed") => "FAILED",
        Some(_) | None => "-",
    };
    output::out(&format!("{mark:<6} {} {}", text("text"), text("answer")));
    if question["advice"].is_string() {
        output::out(&format!("       next: {}", text("advice")));
    }
}
