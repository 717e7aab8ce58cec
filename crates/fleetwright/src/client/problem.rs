//! Turns what a server refused into words, an exit code and advice.

use api_client::Refusal;
use reqwest::StatusCode;

use super::Call;
use crate::failure::{Exit, Failure};

/// The failure for an answer that is not a success.
pub(crate) fn refused(call: &Call, refusal: &Refusal, signed: bool) -> Failure {
    let (status, message) = (refusal.status, text_of(refusal));
    let said = message.as_deref().unwrap_or_default();
    let (exit, advice) = match status.as_u16() {
        300..=399 | 404 | 405 | 501 if message.is_none() => {
            (Exit::Failed, Some(NOT_OUR_SERVER.to_owned()))
        }
        400 | 404 if is_about_provider(said) => {
            let exit = match status {
                StatusCode::NOT_FOUND => Exit::NotFound,
                _ => Exit::Failed,
            };
            (exit, Some(shows_what_there_is("fleetwright provider list")))
        }
        400 if said.contains("data/owner ") => (Exit::Failed, Some(OWNER.to_owned())),
        401 | 403 if !signed => (Exit::NotAllowed, Some(NO_CREDENTIALS.to_owned())),
        401 => (Exit::NotAllowed, Some(WRONG_CREDENTIALS.to_owned())),
        403 if call.api.path().ends_with("/scopes/current") => {
            (Exit::NotAllowed, Some(MORE_SCOPES.to_owned()))
        }
        403 => (
            Exit::NotAllowed,
            Some(format!(
                "`fleetwright scope current` shows what your client may do; {MORE_SCOPES}"
            )),
        ),
        404 => (Exit::NotFound, call.look_with.map(shows_what_there_is)),
        409 if said == "Worker already exists" => (Exit::Conflict, Some(TAKEN_NAME.to_owned())),
        409 => (Exit::Conflict, Some(CONFLICT.to_owned())),
        _ => (Exit::Failed, None),
    };
    let message = message.unwrap_or_else(|| format!("the server answered {status}"));
    let mut failure = Failure::new(exit, format!("could not {}: {message}", call.purpose));
    failure.advice = advice;
    failure
}

/// The failure for a call that got no answer.
pub(crate) fn unreachable(call: &Call, root_url: &str, reason: &str) -> Failure {
    let failure = Failure::new(
        Exit::Unreachable,
        format!(
            "could not {}: no answer from {root_url}: {reason}",
            call.purpose
        ),
    );
    // What a TLS library says of an answer that is not TLS.
    if reason.contains("InvalidContentType") {
        return failure.advise("does it speak TLS? try http://");
    }
    failure.advise("is the server running, and is this its address? `fleetwright up` starts one here; the address is --root-url, TASKCLUSTER_ROOT_URL or root_url of a profile")
}

pub(crate) const NO_CREDENTIALS: &str = "no credentials were given: set TASKCLUSTER_CLIENT_ID and TASKCLUSTER_ACCESS_TOKEN; for a server started by `fleetwright up`, source the file owner.env in its data folder";
const WRONG_CREDENTIALS: &str = "check the client id and the access token, that the client is neither disabled nor expired, and that the clocks of both machines agree";
const MORE_SCOPES: &str = "somebody who may grant the missing scopes can add them with `fleetwright client update` or a role";
const CONFLICT: &str =
    "look at what is there now (the `show` command of the same noun), then decide";

pub(crate) const NOT_OUR_SERVER: &str =
    "this does not look like a Fleetwright or Taskcluster server: is the root URL right?";
const OWNER: &str = "the owner is an e-mail address";
const TAKEN_NAME: &str = "`fleetwright worker show` shows what has this name; that of a removed worker is free again once it has expired";

fn shows_what_there_is(command: &str) -> String {
    format!("`{command}` shows what there is")
}

fn is_about_provider(message: &str) -> bool {
    message == "Invalid Provider"
        || message.starts_with("Provider ") && message.ends_with(" does not exist")
}

/// What the server says, without what only programs need.
fn text_of(refusal: &Refusal) -> Option<String> {
    let message = refusal.message()?;
    Some(match message.strip_prefix(SCHEMA_REFUSED) {
        Some(rest) => unfit(rest),
        None => message,
    })
}

/// How servers begin to say that a request does not fit its schema.
const SCHEMA_REFUSED: &str = "Schema Validation Failed!";

/// What does not fit, without the address of the schema.
fn unfit(text: &str) -> String {
    let said = |line: &&str| !line.starts_with("Rejecting Schema: ") && *line != "Errors:";
    let lines = text.lines().filter(|line| !line.is_empty()).filter(said);
    let lines: Vec<_> = lines.map(|line| format!("\n{line}")).collect();
    format!(
        "the request does not fit what the server takes:{}",
        lines.concat()
    )
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

    fn refusal(status: u16, body: &str) -> Refusal {
        Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            body: body.into(),
        }
    }

    fn failure(status: u16, body: &str, signed: bool) -> Failure {
        refused(&call(), &refusal(status, body), signed)
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
    fn a_request_that_does_not_fit_is_refused_with_its_places_and_no_schema() {
        let message = "\nSchema Validation Failed!\nRejecting Schema: http://x/schemas/y.json#\nErrors:\n  * \
            data/owner must be string\n\n---\n\n* method: y";
        let body = serde_json::json!({ "message": message }).to_string();
        let failure = failure(400, &body, true);
        assert_eq!(
            failure.message,
            "could not show role x: the request does not fit what the server takes:\n  * data/owner must be string"
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
            let body = r#"{"message": "no"}"#;
            assert_eq!(failure(status, body, true).exit, exit, "{status}");
        }
    }

    #[test]
    fn an_address_without_an_api_is_not_taken_for_a_missing_thing() {
        for body in ["", "<html>", "{}"] {
            let failure = failure(404, body, true);
            assert_eq!(failure.exit, Exit::Failed);
            assert_eq!(failure.advice.unwrap(), NOT_OUR_SERVER);
        }
    }

    #[test]
    fn some_refusals_have_advice_of_their_own() {
        for (status, message, part) in [
            (400, "Invalid Provider", "provider list"),
            (404, "Provider x does not exist", "provider list"),
            (400, "* data/owner must match format", "e-mail address"),
            (409, "Worker already exists", "once it has expired"),
        ] {
            let body = serde_json::json!({ "message": message }).to_string();
            let advice = failure(status, &body, true).advice.unwrap();
            assert!(advice.contains(part), "{message}: {advice}");
        }
        let call = Call::get(AUTH, &["scopes", "current"]);
        let advice = refused(&call, &refusal(403, ""), true).advice.unwrap();
        assert!(!advice.contains("scope current"), "{advice}");
    }

    #[test]
    fn an_answer_that_is_not_tls_is_recognised() {
        let reason = "received corrupt message of type InvalidContentType";
        let failure = unreachable(&call(), "https://127.0.0.1:1", reason);
        assert!(failure.advice.unwrap().contains("try http://"));
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
