//! Checks the query of a request against the endpoint's parameters.

use contract::patterns;

use super::endpoint::Endpoint;
use super::error::{ApiError, Code};

/// An error message lists at most this many problems, and the number of the others.
const MAX_PROBLEMS: usize = 10;

/// The parameters by name, decoded.
pub(super) fn checked(
    endpoint: &Endpoint,
    query: &str,
) -> Result<Vec<(&'static str, String)>, ApiError> {
    let mut checked: Vec<(&'static str, String)> = Vec::new();
    let mut problems: Vec<String> = Vec::new();
    let mut n_others: usize = 0;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match check(endpoint, pair, &checked) {
            Ok(None) => {}
            Ok(Some(known)) => checked.push(known),
            Err(problem) if problems.len() < MAX_PROBLEMS => problems.push(problem),
            Err(_) => n_others += 1,
        }
    }
    if problems.is_empty() {
        return Ok(checked);
    }
    if n_others > 0 {
        problems.push(format!("And {n_others} more"));
    }
    let text = problems.join("\n");
    Err(ApiError::new(Code::InvalidRequestArguments, text))
}

/// Checks one parameter, unless it belongs to the signature.
fn check(
    endpoint: &Endpoint,
    pair: &str,
    before: &[(&'static str, String)],
) -> Result<Option<(&'static str, String)>, String> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let (Some(name), Some(value)) = (form_decoded(name), form_decoded(value)) else {
        return Err(format!(
            "Query-string parameter: {pair} is not valid UTF-8!"
        ));
    };
    if name == "bewit" {
        return Ok(None);
    }
    let Some(known) = endpoint.query.iter().find(|known| known.name == name) else {
        return Err(format!("Query-string parameter: {name} is not supported!"));
    };
    if before.iter().any(|(seen, _)| *seen == known.name) {
        return Err(format!("Query-string parameter: {name} must be a string!"));
    }
    if value.contains('\0') || !patterns::matches(known.pattern, &value) {
        return Err(format!(
            "Query-string parameter: {name}=\"{value}\" does not match expression: /{}/",
            known.pattern
        ));
    }
    Ok(Some((known.name, value)))
}

/// `+` is a space in a query.
pub(super) fn form_decoded(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    percent_encoding::percent_decode_str(&text)
        .decode_utf8()
        .ok()
        .map(String::from)
}
