//! Assistants read the fleet, over MCP.
//!
//! A server of the Model Context Protocol on standard input and output. It reads the fleet with the
//! credentials of the client commands, and changes nothing: its tools can only be made of requests
//! that read, and of the preview of files.

mod answer;
mod file_plan;
mod lines;
mod message;
mod tool;
mod tools;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::session::Session;
use file_plan::FilePlan;
use lines::Line;
use message::{Message, RpcError};

/// Versions of the protocol, newest first.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const INSTRUCTIONS: &str = "Reads a fleet of CI workers: whether all is well, why tasks wait, what \
                            machines cost, and what changes of files would do. It changes nothing.";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Folder whose files the tool `plan` may compare with the server; without it, there is no such
    /// tool
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    let server = Server {
        session,
        plan: arguments.folder.map(FilePlan::of).transpose()?,
    };
    let (lines, received) = mpsc::channel(1);
    // A thread, so that connections to the server are served while the client says nothing.
    std::thread::spawn(move || lines::read_all(io::stdin().lock(), &lines));
    serve(received, io::stdout(), &server).await
}

/// Answers one message after the other, until the input ends.
async fn serve(
    mut lines: mpsc::Receiver<io::Result<Line>>,
    mut output: impl Write,
    server: &Server<'_>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::failed(format!("cannot talk to the client: {error}"));
    while let Some(line) = lines.recv().await {
        let reply = match line.map_err(failed)? {
            Line::TooLong => Some(message::refused(Value::Null, &RpcError::too_long())),
            Line::Text(text) if text.trim().is_empty() => None,
            Line::Text(text) => server.reply(&text).await,
        };
        if let Some(reply) = reply {
            writeln!(output, "{reply}").map_err(failed)?;
            output.flush().map_err(failed)?;
        }
    }
    Ok(())
}

struct Server<'a> {
    session: &'a Session,
    plan: Option<FilePlan>,
}

impl Server<'_> {
    /// `None` for a notification, which has no reply.
    async fn reply(&self, text: &str) -> Option<Value> {
        match Message::parse(text) {
            Ok(Message::Notification) => None,
            Ok(Message::Request { id, method, params }) => {
                Some(match self.call(&method, &params).await {
                    Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                    Err(error) => message::refused(id, &error),
                })
            }
            Err((id, error)) => Some(message::refused(id, &error)),
        }
    }

    async fn call(&self, method: &str, params: &Map<String, Value>) -> Result<Value, RpcError> {
        match method {
            "initialize" => Ok(initialize(params)),
            "ping" => Ok(json!({})),
            "tools/list" => {
                let tools = tools::ALL.iter().map(tool::Tool::describe);
                let plan = self.plan.as_ref().map(|_| file_plan::describe());
                Ok(json!({ "tools": tools.chain(plan).collect::<Vec<_>>() }))
            }
            "tools/call" => self.call_tool(params).await,
            other => Err(RpcError::no_method(other)),
        }
    }

    async fn call_tool(&self, params: &Map<String, Value>) -> Result<Value, RpcError> {
        let name = params.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| RpcError::bad_params("`name` must be a text"))?;
        let nothing = Map::new();
        let arguments = match params.get("arguments") {
            None | Some(Value::Null) => &nothing,
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(RpcError::bad_params("`arguments` must be an object")),
        };
        if let (Some(plan), file_plan::NAME) = (&self.plan, name) {
            return Ok(answer::of_text(plan.show(arguments, self.session).await));
        }
        let mut tools = tools::ALL.iter();
        let tool = tools.find(|tool| tool.name == name);
        let tool = tool.ok_or_else(|| RpcError::bad_params(&format!("no tool {name:?}")))?;
        Ok(answer::of_value(tool.call(arguments, self.session).await))
    }
}

fn initialize(params: &Map<String, Value>) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    let version = VERSIONS.into_iter().find(|version| asked == Some(*version));
    json!({
        "protocolVersion": version.unwrap_or(VERSIONS[0]),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "fleetwright", "version": env!("CARGO_PKG_VERSION")},
        "instructions": INSTRUCTIONS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_version_is_taken_and_for_others_the_newest_is_offered() {
        let version = |asked: &str| {
            let params = json!({ "protocolVersion": asked });
            initialize(params.as_object().unwrap())["protocolVersion"].clone()
        };
        for known in VERSIONS {
            assert_eq!(version(known), known);
        }
        assert_eq!(version("1999-01-01"), VERSIONS[0]);
    }
}
