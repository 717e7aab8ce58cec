//! Messages of JSON-RPC 2.0.

use serde_json::{Map, Value, json};

/// A message of the client.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    Request {
        id: Value,
        method: String,
        params: Map<String, Value>,
    },
    /// A notification or a reply: neither has an answer.
    Notification,
}

/// An error with its code.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    code: i32,
    message: String,
}

const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;
const METHOD_NOT_FOUND: i32 = -32_601;
const INVALID_PARAMS: i32 = -32_602;

impl RpcError {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(super) fn too_long() -> Self {
        Self::new(INVALID_REQUEST, "the line is too long")
    }

    pub(super) fn no_method(name: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("no method {name:?}"))
    }

    pub(super) fn bad_params(message: &str) -> Self {
        Self::new(INVALID_PARAMS, message)
    }
}

/// The reply to a request that is refused.
pub(super) fn refused(id: Value, error: &RpcError) -> Value {
    let error = json!({"code": error.code, "message": error.message});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

impl Message {
    /// An error comes with the id of the request, or null if that is not known.
    pub(super) fn parse(text: &str) -> Result<Self, (Value, RpcError)> {
        let message: Value = serde_json::from_str(text)
            .map_err(|error| (Value::Null, RpcError::new(PARSE_ERROR, format!("{error}"))))?;
        let known_id = message
            .get("id")
            .filter(|id| id.is_string() || id.is_number());
        let invalid = |why: &str| {
            let id = known_id.cloned().unwrap_or_default();
            (id, RpcError::new(INVALID_REQUEST, why))
        };
        let Value::Object(fields) = &message else {
            return Err(invalid("a message is an object; batches are not possible"));
        };
        if fields.get("jsonrpc") != Some(&json!("2.0")) {
            return Err(invalid("`jsonrpc` must be \"2.0\""));
        }
        let Some(method) = fields.get("method") else {
            let is_reply = fields.contains_key("result") || fields.contains_key("error");
            return match is_reply {
                true => Ok(Self::Notification),
                false => Err(invalid("`method` is missing")),
            };
        };
        let Some(method) = method.as_str() else {
            return Err(invalid("`method` must be a text"));
        };
        if !fields.contains_key("id") {
            return Ok(Self::Notification);
        }
        let Some(id) = known_id else {
            return Err(invalid("`id` must be a text or a number"));
        };
        let params = match fields.get("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params.clone(),
            Some(_) => {
                let error = RpcError::bad_params("`params` must be an object");
                return Err((id.clone(), error));
            }
        };
        Ok(Self::Request {
            id: id.clone(),
            method: method.to_owned(),
            params,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_notifications_are_told_apart() {
        let request = r#"{"jsonrpc": "2.0", "id": "a", "method": "ping"}"#;
        let expected = Message::Request {
            id: json!("a"),
            method: "ping".to_owned(),
            params: Map::new(),
        };
        assert_eq!(Message::parse(request), Ok(expected));
        for quiet in [
            r#"{"jsonrpc": "2.0", "method": "notifications/initialized"}"#,
            r#"{"jsonrpc": "2.0", "id": 1, "result": {}}"#,
        ] {
            assert_eq!(Message::parse(quiet), Ok(Message::Notification));
        }
    }

    #[test]
    fn wrong_messages_have_the_codes_of_the_specification() {
        for (text, id, code) in [
            ("{", Value::Null, PARSE_ERROR),
            ("[]", Value::Null, INVALID_REQUEST),
            ("1", Value::Null, INVALID_REQUEST),
            (r#"{"id": 1, "method": "ping"}"#, json!(1), INVALID_REQUEST),
            (r#"{"jsonrpc": "2.0", "id": 1}"#, json!(1), INVALID_REQUEST),
            (
                r#"{"jsonrpc": "2.0", "id": 1, "method": 2}"#,
                json!(1),
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc": "2.0", "id": [], "method": "x"}"#,
                Value::Null,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc": "2.0", "id": 1, "method": "x", "params": []}"#,
                json!(1),
                INVALID_PARAMS,
            ),
        ] {
            let (said_id, error) = Message::parse(text).unwrap_err();
            assert_eq!((said_id, error.code), (id, code), "{text}");
        }
    }
}
