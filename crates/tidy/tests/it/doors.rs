//! Handlers write nothing themselves: a handler parses, calls a workflow, replies.

use regex::Regex;

use crate::repository::{rust_files, shipped};

/// Calls that only workflows make.
const WRITES: &str = r#"\bchange\.tx\b|\.write(_durably)?\(\s*"|\baudit_insert\b"#;

#[test]
fn doors_write_nothing_and_their_transactions_do_not_know_the_errors_of_the_api() {
    let mut found = Vec::new();
    let mut n_transactions = 0;
    for (path, text) in rust_files(&["src/api"]) {
        if !path.starts_with("crates/server/") {
            continue;
        }
        let text = shipped(text);
        n_transactions += transactions(&text).len();
        found.extend(faults(&text).iter().map(|fault| format!("{path}: {fault}")));
    }
    assert!(
        n_transactions > 50,
        "{n_transactions} transactions are found"
    );
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_door_that_writes_or_decides_in_a_transaction_is_found() {
    for (text, n_faults) in [
        ("store.read(\"a\", move |tx| store::a(tx))", 0),
        (
            "store.read(\"a\", move |tx| { b(); Err(ApiError::input(\"c\")) }) // d",
            1,
        ),
        ("call.change(\"a\", move |change| a::make(change, &b()))", 0),
        ("call.change(\"a\", move |change| store::put(change.tx))", 1),
        ("store.write(\"a\", move |tx| store::put(tx))", 1),
        ("fn a(tx: &mut Tx<'_>) -> Result<B, StoreError> { c() }", 0),
        (
            "fn a(tx: &mut Tx<'_>,\n    b: B,\n) -> Result<B, ApiError> { c() }",
            1,
        ),
        ("fn a() -> Result<B, ApiError> { store.read(\"a\", b) }", 0),
    ] {
        assert_eq!(faults(text).len(), n_faults, "{text}");
    }
}

fn faults(text: &str) -> Vec<String> {
    let writes = Regex::new(WRITES).unwrap();
    let writes = writes.find_iter(text);
    let mut faults: Vec<String> = writes.map(|write| write.as_str().to_owned()).collect();
    for transaction in transactions(text) {
        if transaction.contains("ApiError") {
            faults.push(format!(
                "a transaction that names `ApiError`: {transaction}"
            ));
        }
    }
    // The first error that is named behind a transaction is that of who takes it.
    let takes_tx = Regex::new(r"Tx<'_>[^{]*?->[^{]*?\b(\w*Error)\b").unwrap();
    for taken in takes_tx.captures_iter(text) {
        if &taken[1] == "ApiError" {
            faults.push(format!("part of a transaction: {}", &taken[0]));
        }
    }
    faults
}

/// The arguments of the functions that begin transactions.
fn transactions(text: &str) -> Vec<&str> {
    let begins = Regex::new(r#"\.(?:change|read|scan)\(\s*["\w]"#).unwrap();
    let starts = begins.find_iter(text).map(|start| start.start());
    starts.map(|start| arguments(&text[start..])).collect()
}

/// From here to the end of the first pair of parentheses.
fn arguments(text: &str) -> &str {
    let mut depth = 0;
    for (place, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return &text[..=place];
        }
    }
    text
}
