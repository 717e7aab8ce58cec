//! `rules evaluate`: answers requests of other programs, each a line of JSON.

use std::io::{self, BufRead, ErrorKind, IsTerminal as _, Read as _, Write};

use rules::{Attributes, Evaluator, Problem, Problems, RuleSet, Sets, did_you_mean};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output;

/// Maximum size of a line, as of a file and of a request to the server.
const MAX_LINE_BYTES: u64 = 10 << 20;
/// Maximum number of conditions in a request, as in the API.
const MAX_CONDITIONS: usize = 64;
/// Maximum length of a condition's name and of its value, as in the API.
const MAX_CONDITION_BYTES: usize = 1_024;

const KEYS: [&str; 5] = ["id", "sets", "rules", "conditions", "pointer"];

/// The errors of an evaluation in an answer.
pub(super) const EVALUATION_ERRORS: &str = "evaluationErrors";

/// Answers until the input ends, or the reader of the answers closes its pipe.
pub(super) fn run() -> Result<(), Failure> {
    let input = io::stdin();
    if input.is_terminal() {
        output::note("reading requests from standard input: a JSON object in each line");
    }
    let mut requests = Requests::default();
    match requests.answer_all(input.lock(), io::stdout().lock()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!(
            "cannot read requests or write answers: {error}"
        ))),
        Ok(()) if requests.n_errors == 0 => Ok(()),
        Ok(()) => Err(Failure::failed(format!(
            "{} had errors, see their answers",
            output::counted(requests.n_errors, "request")
        ))),
    }
}

/// The requests of an input. A request without rules is about those of an earlier one.
#[derive(Default)]
struct Requests {
    evaluator: Option<Evaluator>,
    n_lines: u64,
    n_errors: u64,
}

/// The errors of one request; their paths begin at the request.
struct Errors {
    list: Vec<Problem>,
    n_more: usize,
}

impl Errors {
    fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        let error = Problem {
            path: path.into(),
            rule_id: None,
            message: message.into(),
        };
        Self {
            list: vec![error],
            n_more: 0,
        }
    }

    fn below(path: &str, problems: &Problems) -> Self {
        let list = problems.list().iter().map(|error| Problem {
            path: format!("{path}{}", error.path),
            ..error.clone()
        });
        Self {
            list: list.collect(),
            n_more: problems.more(),
        }
    }
}

impl Requests {
    fn answer_all(&mut self, mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
        let mut line = Vec::new();
        while let Some(request) = read_line(&mut input, &mut line)? {
            self.n_lines += 1;
            let answer = match request {
                Line::Text if line.trim_ascii().is_empty() => continue,
                Line::Text => self.answer(&line),
                Line::TooLong => {
                    let message = format!("the line has more than {MAX_LINE_BYTES} bytes");
                    self.finish(None, Err(Errors::at("", message)))
                }
            };
            let mut answer = answer.to_string().into_bytes();
            answer.push(b'\n');
            output.write_all(&answer)?;
            // The other program may wait for this answer before its next request.
            output.flush()?;
        }
        Ok(())
    }

    fn answer(&mut self, line: &[u8]) -> Value {
        match serde_json::from_slice(line) {
            Ok(Value::Object(request)) => {
                let answer = self.evaluate(&request);
                self.finish(request.get("id"), answer)
            }
            Ok(_) => self.finish(None, Err(Errors::at("", "a request is a JSON object"))),
            Err(error) => {
                let message = invalid_json(&error);
                self.finish(None, Err(Errors::at("", message)))
            }
        }
    }

    /// The answer with the line and the id of its request.
    fn finish(&mut self, id: Option<&Value>, answer: Result<Value, Errors>) -> Value {
        if let Ok(answer) = &answer {
            self.n_errors += u64::from(answer.get(EVALUATION_ERRORS).is_some());
        }
        let mut answer = answer.unwrap_or_else(|errors| {
            self.n_errors += 1;
            json!({ "errors": errors.list, "more": errors.n_more })
        });
        answer["line"] = json!(self.n_lines);
        if let Some(id) = id {
            answer["id"] = id.clone();
        }
        answer
    }

    fn evaluate(&mut self, request: &Map<String, Value>) -> Result<Value, Errors> {
        if let Some(rules) = request.get("rules") {
            // Later requests must not be about older rules than their author believes.
            self.evaluator = None;
            let sets = request.get("sets").unwrap_or(&Value::Null);
            self.evaluator = Some(Evaluator::new(&parse_rules(rules, sets)?));
        } else if request.contains_key("sets") {
            return Err(Errors::at("/sets", "sets without rules: send both"));
        }
        if let Some(key) = request.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let meant = did_you_mean(key, KEYS);
            let known = KEYS.join(", ");
            let message = format!("unknown key {key:?}, a request has {known}{meant}");
            return Err(Errors::at("", message));
        }
        let attributes = attributes(request.get("conditions"))?;
        let evaluator = self.evaluator.as_ref().ok_or_else(|| {
            Errors::at(
                "/rules",
                "no rules: neither this request nor an earlier one has valid rules",
            )
        })?;
        let mut answer = reply(evaluator, &attributes);
        match request.get("pointer") {
            None => {}
            Some(Value::String(pointer)) => {
                let explanation = evaluator.explain(&attributes, pointer);
                answer["text"] = json!(explanation.to_string());
                answer["explanation"] = json!(explanation);
            }
            Some(_) => return Err(Errors::at("/pointer", "expected a text")),
        }
        Ok(answer)
    }
}

/// The result as the API replies it.
pub(super) fn reply(evaluator: &Evaluator, attributes: &Attributes) -> Value {
    let evaluation = evaluator.evaluate_with_origins(attributes);
    let applying = evaluator.applying(attributes);
    let applying: Vec<_> = applying.iter().map(|rule| rule.id()).collect();
    let mut reply = json!({
        "conditions": attributes,
        "values": evaluation.values,
        "origins": evaluation.origins,
        "applying": applying,
    });
    if !evaluation.errors.is_empty() {
        reply[EVALUATION_ERRORS] = json!(evaluation.errors);
    }
    reply
}

fn parse_rules(rules: &Value, sets: &Value) -> Result<RuleSet, Errors> {
    let sets = Sets::parse(sets).map_err(|problems| Errors::below("/sets", &problems))?;
    RuleSet::parse_with(rules, sets).map_err(|problems| Errors::below("/rules", &problems))
}

fn attributes(conditions: Option<&Value>) -> Result<Attributes, Errors> {
    let conditions = match conditions {
        None => return Ok(Attributes::nothing()),
        Some(Value::Object(conditions)) if conditions.len() <= MAX_CONDITIONS => conditions,
        Some(Value::Object(_)) => {
            let message = format!("more than {MAX_CONDITIONS} conditions");
            return Err(Errors::at("/conditions", message));
        }
        Some(_) => {
            return Err(Errors::at(
                "/conditions",
                "expected an object of names and texts",
            ));
        }
    };
    let pairs = conditions.iter().map(|(name, value)| {
        if name.len() > MAX_CONDITION_BYTES {
            let message = format!("a name has more than {MAX_CONDITION_BYTES} bytes");
            return Err(Errors::at("/conditions", message));
        }
        let path = || format!("/conditions/{}", name.replace('~', "~0").replace('/', "~1"));
        match value.as_str() {
            Some(value) if value.len() <= MAX_CONDITION_BYTES => Ok((name.as_str(), value)),
            Some(_) => {
                let message = format!("the value has more than {MAX_CONDITION_BYTES} bytes");
                Err(Errors::at(path(), message))
            }
            None => Err(Errors::at(path(), "expected a text")),
        }
    });
    pairs.collect()
}

/// Without the number of the line, which counts within the request.
fn invalid_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (what, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    format!("not JSON: {what} at column {}", error.column())
}

enum Line {
    Text,
    TooLong,
}

/// Reads a line without its end; `None` at the end of the input. A longer line is skipped.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<Line>> {
    line.clear();
    let n_bytes = input
        .by_ref()
        .take(MAX_LINE_BYTES + 1)
        .read_until(b'\n', line)?;
    if n_bytes == 0 {
        return Ok(None);
    }
    if line.pop_if(|last| *last == b'\n').is_some() || n_bytes as u64 <= MAX_LINE_BYTES {
        return Ok(Some(Line::Text));
    }
    input.skip_until(b'\n')?;
    Ok(Some(Line::TooLong))
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    /// The answers, and the number of requests with errors.
    fn answers(input: &[u8]) -> (Vec<Value>, u64) {
        let (mut requests, mut output) = (Requests::default(), Vec::new());
        requests.answer_all(input, &mut output).unwrap();
        let lines = output.split_inclusive(|byte| *byte == b'\n');
        let answers = lines.map(|line| serde_json::from_slice(line).unwrap());
        (answers.collect(), requests.n_errors)
    }

    /// The only error of a request.
    fn error(request: &str) -> (String, String) {
        let (answers, n_errors) = answers(request.as_bytes());
        assert_eq!((answers.len(), n_errors), (1, 1), "{answers:?}");
        let errors = answers[0]["errors"].as_array().unwrap();
        assert_eq!(errors.len(), 1, "{errors:?}");
        let text = |key: &str| errors[0][key].as_str().unwrap().to_owned();
        (text("path"), text("message"))
    }

    #[test]
    fn later_requests_are_about_the_rules_of_an_earlier_one() {
        let input = br#"{"id": "a", "rules": [{"ruleId": "r", "values": {"x": 1}}]}

{"id": 2, "conditions": {"zone": "z"}, "pointer": "/x"}
{"rules": [{"ruleId": "s", "conditions": {"zone": "z"}, "values": {"x": 2}}], "conditions": {"zone": "z"}}"#;
        let (answers, n_errors) = answers(input);
        assert_eq!(n_errors, 0);
        assert_eq!(
            answers[0],
            json!({
                "line": 1, "id": "a", "conditions": {}, "values": {"x": 1}, "applying": ["r"],
                "origins": {"/x": {"ruleId": "r"}},
            })
        );
        assert_eq!(
            (&answers[1]["line"], &answers[1]["id"]),
            (&json!(3), &json!(2))
        );
        assert_eq!(
            answers[1]["text"],
            "/x with zone=z:\n  \"r\" sets 1\nresult: 1"
        );
        assert_eq!(answers[1]["explanation"]["value"], 1);
        assert_eq!(answers[2]["values"], json!({"x": 2}));
        assert_eq!(answers[2].get("id"), None);
    }

    #[test]
    fn an_error_names_its_place_and_the_next_request_is_answered() {
        let input = br#"{"rules": [{"ruleId": "r", "values": {}, "condition": 1}, 7], "id": [1]}
{"conditions": {}}
nonsense
{"rules": []}"#;
        let (answers, n_errors) = answers(input);
        assert_eq!(n_errors, 3);
        let (path, rule) = ("/rules/0", "r");
        assert_eq!(answers[0]["errors"][0]["path"], path);
        assert_eq!(answers[0]["errors"][0]["ruleId"], rule);
        assert_eq!(answers[0]["errors"][1]["path"], "/rules/1");
        assert_eq!(
            (&answers[0]["id"], &answers[0]["more"]),
            (&json!([1]), &json!(0))
        );
        assert_eq!(answers[1]["errors"][0]["path"], "/rules");
        assert_eq!(
            answers[2],
            json!({
                "line": 3, "more": 0,
                "errors": [{"path": "", "message": "not JSON: expected ident at column 2"}],
            })
        );
        assert_eq!(answers[3]["values"], json!({}));
    }

    #[test]
    fn sets_belong_to_their_rules_and_an_evaluation_may_have_errors() {
        let input = br#"{"sets": {"s": ["a*"]}, "rules": [{"ruleId": "r", "references": true, "conditions": {"zone": {"set": "s"}}, "values": {"x": "${size}"}}]}
{"conditions": {"zone": "ab", "size": "7"}}
{"conditions": {"zone": "ab"}}
{"sets": {}}
{"sets": {"s": 1}, "rules": []}"#;
        let (answers, n_errors) = answers(input);
        assert_eq!(n_errors, 3);
        assert_eq!(answers[0]["values"], json!({}));
        assert_eq!(answers[1]["values"], json!({"x": "7"}));
        assert_eq!(answers[1]["origins"]["/x"]["references"], json!(["size"]));
        assert_eq!(answers[2]["values"], json!({"x": "${size}"}));
        let errors = &answers[2]["evaluationErrors"];
        assert_eq!(
            (&errors[0]["pointer"], &errors[0]["ruleId"]),
            (&json!("/x"), &json!("r"))
        );
        assert_eq!(answers[3]["errors"][0]["path"], "/sets");
        assert_eq!(answers[4]["errors"][0]["path"], "/sets/s");
    }

    #[test]
    fn each_part_of_a_request_is_checked() {
        for (request, path, message) in [
            ("[]", "", "a request is a JSON object"),
            (
                r#"{"rules": [], "condition": {}}"#,
                "",
                "unknown key \"condition\", a request has id, sets, rules, conditions, pointer, \
                 did you mean \"conditions\"?",
            ),
            (
                r#"{"rules": [], "conditions": []}"#,
                "/conditions",
                "expected an object of names and texts",
            ),
            (
                r#"{"rules": [], "conditions": {"a/b": 1}}"#,
                "/conditions/a~1b",
                "expected a text",
            ),
            (
                r#"{"rules": [], "pointer": 1}"#,
                "/pointer",
                "expected a text",
            ),
            (
                r#"{"rules": {}}"#,
                "/rules",
                "rules are a list, found a mapping",
            ),
        ] {
            let expected = (path.to_owned(), message.to_owned());
            assert_eq!(error(request), expected, "{request}");
        }
    }

    #[test]
    fn conditions_are_few_and_short() {
        let request = |conditions: Value| json!({"rules": [], "conditions": conditions});
        for count in sizes_around(
            "fleetwright::commands::rules::stream::MAX_CONDITIONS",
            MAX_CONDITIONS,
        ) {
            let names = (0..count).map(|number| (number.to_string(), json!("")));
            let request = request(names.collect()).to_string();
            let (_, n_errors) = answers(request.as_bytes());
            assert_eq!(n_errors == 0, count <= MAX_CONDITIONS, "{count}");
        }
        for (length, n_expected) in [(MAX_CONDITION_BYTES, 0), (MAX_CONDITION_BYTES + 1, 1)] {
            let long = "x".repeat(length);
            for conditions in [json!({long.as_str(): ""}), json!({"a": long.as_str()})] {
                let (_, n_errors) = answers(request(conditions).to_string().as_bytes());
                assert_eq!(n_errors, n_expected, "{length}");
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_reported() {
        let longest = usize::try_from(MAX_LINE_BYTES).unwrap();
        for (length, end, is_refused) in [
            (longest, "\n", false),
            (longest, "", false),
            (longest + 1, "\n", true),
            (longest + 1, "", true),
            (2 * longest, "\n", true),
        ] {
            let start = r#"{"rules": []"#;
            let filler = " ".repeat(length - start.len() - 1);
            let input = format!("{start}{filler}}}{end}");
            let (answers, n_errors) = answers(input.as_bytes());
            assert_eq!(answers.len(), 1);
            assert_eq!(n_errors == 1, is_refused, "{length} {end:?}");
        }
        let too_long = "x".repeat(longest + 1);
        let (answers, n_errors) = answers(format!("{too_long}\n{{\"rules\": []}}\n").as_bytes());
        assert_eq!(
            answers[0]["errors"][0]["message"],
            "the line has more than 10485760 bytes"
        );
        assert_eq!((&answers[1]["values"], n_errors), (&json!({}), 1));
    }
}
