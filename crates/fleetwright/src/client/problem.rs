//! Turns what a server refused into words, an exit code and advice.

use reqwest::StatusCode;
use serde_json::Value;

use super::Call;
use crate::failure::{Exit, Failure};

/// The failure for an answer that is not a success.
pub(crate) fn refused(call: &Call, status: StatusCode, body: &[u8], signed: bool) -> Failure {
    let (exit, advice) = match status.as_u16() {
        401 | 403 if !signed => (Exit::NotAllowed, Some(NO_CREDENTIALS.to_owned())),
        401 => (Exit::NotAllowed, Some(WRONG_CREDENTIALS.to_owned())),
        403 => (Exit::NotAllowed, Some(TOO_FEW_SCOPES.to_owned())),
        404 => (
            Exit::NotFound,
            call.look_with
                .map(|command| format!("`{command}` shows what there is")),
        ),
        409 => (Exit::Conflict, Some(CONFLICT.to_owned())),
        _ => (Exit::Failed, None),
    };
    let mut failure = Failure::new(
        exit,
        format!("could not {}: {}", call.purpose, text_of(status, body)),
    );
    failure.advice = advice;
    failure
}

/// The failure for a call that got no answer.
pub(crate) fn unreachable(call: &Call, root_url: &str, reason: &str) -> Failure {
    Failure::new(
        Exit::Unreachable,
        format!("could not {}: no answer from {root_url}: {reason}", call.purpose),
    )
    .advise("is the server running, and is this its address? `fleetwright up` starts one here; the address is --root-url, TASKCLUSTER_ROOT_URL or root_url of a profile")
}

pub(crate) const NO_CREDENTIALS: &str = "no credentials were given: set TASKCLUSTER_CLIENT_ID and TASKCLUSTER_ACCESS_TOKEN; for a server started by `fleetwright up`, source the file owner.env in its data folder";
const WRONG_CREDENTIALS: &str = "check the client id and the access token, that the client is neither disabled nor expired, and that the clocks of both machines agree";
const TOO_FEW_SCOPES: &str = "`fleetwright scope current` shows what your client may do; somebody who may grant the missing scopes can add them with `fleetwright client update` or a role";
const CONFLICT: &str =
    "look at what is there now (the `show` command of the same noun), then decide";

/// The message of an error reply, without the trailer that repeats what we know.
fn text_of(status: StatusCode, body: &[u8]) -> String {
    let reply: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let message = reply["message"].as_str().or(reply["error"].as_str());
    let message = message.map(|text| text.split("\n---\n").next().unwrap_or(text).trim());
    match message {
        Some(text) if !text.is_empty() => text.to_owned(),
        Some(_) | None => format!("the server answered {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{AUTH, Call};

    fn call() -> Call {
        Call::get(AUTH, &["roles", "x"])
            .to("show role x")
            .look_with("fleetwright role list")
    }

    fn failure(status: u16, body: &str, signed: bool) -> Failure {
        let status = StatusCode::from_u16(status).unwrap();
        refused(&call(), status, body.as_bytes(), signed)
    }

    #[test]
    fn the_message_is_the_servers_without_its_trailer() {
        let body =
            r#"{"code":"ResourceNotFound","message":"Role not found\n\n---\n\n* method: role"}"#;
        let failure = failure(404, body, true);
        assert_eq!(failure.message, "could not show role x: Role not found");
        assert_eq!(
            failure.advice.unwrap(),
            "`fleetwright role list` shows what there is"
        );
    }

    #[test]
    fn each_refusal_has_its_exit_code() {
        for (status, exit) in [
            (400, Exit::Failed),
            (401, Exit::NotAllowed),
            (403, Exit::NotAllowed),
            (404, Exit::NotFound),
            (409, Exit::Conflict),
            (500, Exit::Failed),
        ] {
            assert_eq!(failure(status, "", true).exit, exit, "{status}");
        }
    }

    #[test]
    fn a_reply_that_is_no_api_error_is_named_by_its_status() {
        for body in ["", "<html>", "[]", "{\"message\": \"\"}"] {
            assert_eq!(
                failure(502, body, true).message,
                "could not show role x: the server answered 502 Bad Gateway"
            );
        }
    }

    #[test]
    fn a_refusal_without_credentials_says_how_to_give_them() {
        assert!(
            failure(403, "", false)
                .advice
                .unwrap()
                .contains("owner.env")
        );
        assert!(failure(403, "", true).advice.unwrap().contains("scope"));
    }
}
