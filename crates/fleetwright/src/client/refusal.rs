//! Turns error responses into messages, exit codes and hints.

use api_client::Refusal;
use domain::text::one_line;

use super::Call;
use super::owner_hint::with_owner_file;
use crate::failure::{Exit, Failure};

pub(crate) fn refused(call: &Call, refusal: &Refusal, signed: bool) -> Failure {
    let (status, message) = (refusal.status, text_of(refusal));
    let text = message.as_deref().unwrap_or_default();
    let (exit, hint) = match status.as_u16() {
        300..=399 | 404 | 405 | 501 if message.is_none() => {
            (Exit::Failed, Some(NOT_OUR_SERVER.to_owned()))
        }
        400 if text.contains("data/owner ") => (Exit::Failed, Some(OWNER.to_owned())),
        401 | 403 if !signed => (Exit::NotAllowed, Some(with_owner_file(NO_CREDENTIALS))),
        401 => (Exit::NotAllowed, Some(WRONG_CREDENTIALS.to_owned())),
        403 if call.api.path().ends_with("/scopes/current") => {
            (Exit::NotAllowed, Some(MORE_SCOPES.to_owned()))
        }
        403 => (
            Exit::NotAllowed,
            Some(format!(
                "`fleetwright scope current` shows the scopes of your client; {MORE_SCOPES}"
            )),
        ),
        404 => (Exit::NotFound, call.list_command.as_deref().map(list_hint)),
        409 => {
            // Commands that list other items are hints for a 404.
            let shown = call.list_command.as_ref();
            let shown = shown.filter(|command| command.contains(" show "));
            let hint = shown.map(|command| format!("`{command}` shows the current state"));
            (Exit::Conflict, hint.or_else(|| Some(CONFLICT.to_owned())))
        }
        _ => (Exit::Failed, None),
    };
    let message = message.unwrap_or_else(|| match plain_text(refusal) {
        Some(text) => format!("the server answered {status}: {text}"),
        None => format!("the server answered {status}"),
    });
    let mut failure = Failure::new(exit, format!("could not {}: {message}", call.purpose));
    // The server knows more of the case. It writes sentences.
    let advice = refusal
        .advice
        .as_ref()
        .map(|advice| one_line(advice, MAX_PLAIN_CHARS));
    failure.hint = advice.or(hint);
    failure
}

pub(crate) fn unreachable(call: &Call, root_url: &str, reason: &str) -> Failure {
    let failure = Failure::new(
        Exit::Unreachable,
        format!(
            "could not {}: no response from {root_url}: {reason}",
            call.purpose
        ),
    );
    // The error of the TLS library for a response that is not TLS.
    if reason.contains("InvalidContentType") {
        return failure.with_hint("the server may not use TLS: try http://");
    }
    failure.with_hint(
        "check that the server runs and that the root URL is right (--root-url, \
         TASKCLUSTER_ROOT_URL or root_url of a profile); `fleetwright up` starts a server on \
         this machine",
    )
}

const NO_CREDENTIALS: &str = "no credentials are set: set TASKCLUSTER_CLIENT_ID and \
    TASKCLUSTER_ACCESS_TOKEN to those of a client of the server";
const WRONG_CREDENTIALS: &str = "check the client id and the access token, that the client is \
    neither disabled nor expired, and that the clocks of both machines agree";
const MORE_SCOPES: &str = "a client that has the missing scopes can grant them with `fleetwright \
    client update` or a role";
const CONFLICT: &str = "show the current state with the `show` command of the same group";

pub(crate) const NOT_OUR_SERVER: &str =
    "this is not a Fleetwright or Taskcluster server: check the root URL";
const OWNER: &str = "the owner must be an e-mail address";

fn list_hint(command: &str) -> String {
    format!("`{command}` lists what exists")
}

/// The server's message without the parts for programs.
fn text_of(refusal: &Refusal) -> Option<String> {
    let message = refusal.message()?;
    Some(match message.strip_prefix(SCHEMA_REFUSED) {
        Some(rest) => schema_violations(rest),
        None => message,
    })
}

/// A short reply without markup: a listener that cannot speak HTTP as usual says why.
fn plain_text(refusal: &Refusal) -> Option<String> {
    let text = std::str::from_utf8(&refusal.body).ok()?;
    let is_markup = text.trim_start().starts_with(['<', '{', '[']);
    let line = one_line(text, MAX_PLAIN_CHARS);
    (!line.is_empty() && !is_markup).then_some(line)
}

/// Characters of a reply without markup that are shown.
const MAX_PLAIN_CHARS: usize = 200;

/// The start of a server's message about a request that violates its schema.
const SCHEMA_REFUSED: &str = "Schema Validation Failed!";

/// The line that names the violated schema begins so.
const REJECTED: &str = "Rejecting Schema: ";

/// The schema violations, without the address of the schema.
fn schema_violations(text: &str) -> String {
    let schema = text.lines().find_map(|line| line.strip_prefix(REJECTED));
    // The schemas of providers are about this part of a pool.
    let is_config = schema.is_some_and(|schema| schema.contains("/config-"));
    let said = |line: &&str| !line.starts_with(REJECTED) && *line != "Errors:";
    let lines = text.lines().filter(|line| !line.is_empty()).filter(said);
    let lines: Vec<_> = lines
        .map(
            |line| match line.strip_prefix("  * data").filter(|_| is_config) {
                Some(rest) => format!("\n  * config{rest}"),
                None => format!("\n{line}"),
            },
        )
        .collect();
    format!("the request is invalid:{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::*;
    use crate::client::{AUTH, Call};

    fn call() -> Call {
        Call::get(AUTH, &["roles", "x"])
            .to("show role x")
            .list_command("fleetwright role list")
    }

    fn refusal(status: u16, body: &str) -> Refusal {
        Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            body: body.into(),
            advice: None,
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
            failure.hint.unwrap(),
            "`fleetwright role list` lists what exists"
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
            "could not show role x: the request is invalid:\n  * data/owner must be string"
        );
    }

    #[test]
    fn errors_in_the_config_of_a_pool_name_it() {
        let message = "\nSchema Validation Failed!\nRejecting Schema: http://x/schemas/config-fake.json#\nErrors:\n  * \
            data must have required property 'minCapacity'\n  * data/maxCapacity must be integer";
        let body = serde_json::json!({ "message": message }).to_string();
        assert_eq!(
            failure(400, &body, true).message,
            "could not show role x: the request is invalid:\n  * config must have required property \
             'minCapacity'\n  * config/maxCapacity must be integer"
        );
    }

    #[test]
    fn a_reply_of_plain_text_is_shown_on_one_clean_line() {
        let reply = "This port takes TLS only:\n use https:// here\u{1b}[2J\n";
        assert_eq!(
            failure(400, reply, true).message,
            "could not show role x: the server answered 400 Bad Request: This port takes TLS only: \
             use https:// here [2J"
        );
        let long = failure(500, &"x".repeat(10_000), true).message;
        assert!(long.len() < 400, "{long}");
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
            assert_eq!(failure.hint.unwrap(), NOT_OUR_SERVER);
        }
    }

    #[test]
    fn some_errors_have_specific_hints() {
        for (status, message, part) in [
            (400, "* data/owner must match format", "e-mail address"),
            (409, "changed meanwhile", "current state"),
        ] {
            let body = serde_json::json!({ "message": message }).to_string();
            let hint = failure(status, &body, true).hint.unwrap();
            assert!(hint.contains(part), "{message}: {hint}");
        }
        let mut advised = refusal(404, r#"{"message": "Role not found"}"#);
        advised.advice = Some("Look\u{1b} elsewhere".to_owned());
        let hint = refused(&call(), &advised, true).hint;
        assert_eq!(hint.unwrap(), "Look elsewhere");
        let call = Call::get(AUTH, &["scopes", "current"]);
        let hint = refused(&call, &refusal(403, ""), true).hint.unwrap();
        assert!(!hint.contains("scope current"), "{hint}");
    }

    #[test]
    fn an_answer_that_is_not_tls_is_recognised() {
        let reason = "received corrupt message of type InvalidContentType";
        let failure = unreachable(&call(), "https://127.0.0.1:1", reason);
        assert!(failure.hint.unwrap().contains("try http://"));
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
        let hint = failure(403, "", false).hint.unwrap();
        assert!(hint.contains("TASKCLUSTER_ACCESS_TOKEN"), "{hint}");
        assert!(failure(403, "", true).hint.unwrap().contains("scope"));
    }
}
