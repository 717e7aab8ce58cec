//! Gathers all pages of a list into one document.

use serde_json::{Map, Value};

use super::{Call, Client};
use crate::failure::Failure;
use crate::output::Progress;

/// The largest page that servers give.
const PAGE_LIMIT: usize = 1_000;
/// More than this is no list for a command line; `--limit` or a filter helps.
const MAX_ITEMS: usize = 1_000_000;

impl Client {
    /// The list under `key`, from as many pages as it takes, up to `limit` items. The document is
    /// the API's, without the token for a next page.
    pub(crate) async fn pages(
        &self,
        call: &Call,
        key: &str,
        limit: Option<usize>,
    ) -> Result<Value, Failure> {
        let mut gathered = Gathered::new(limit.unwrap_or(MAX_ITEMS).min(MAX_ITEMS));
        let mut progress = Progress::start();
        loop {
            let wanted = gathered.room().min(PAGE_LIMIT);
            let page = call
                .clone()
                .query("limit", Some(wanted))
                .query("continuationToken", gathered.token.clone());
            let reply = self.call(&page).await?;
            if !gathered.add(reply, key).map_err(|problem| {
                Failure::failed(format!("could not {}: {problem}", call.purpose))
            })? {
                break;
            }
            progress.tell(|| format!("{}: {} so far", call.purpose, gathered.items.len()));
        }
        if limit.is_none() && gathered.token.is_some() {
            return Err(Failure::failed(format!(
                "could not {}: there are more than {MAX_ITEMS}; give --limit or a filter",
                call.purpose
            )));
        }
        Ok(gathered.into_document(key))
    }
}

struct Gathered {
    most: usize,
    rest: Map<String, Value>,
    items: Vec<Value>,
    token: Option<String>,
}

impl Gathered {
    fn new(most: usize) -> Self {
        Self {
            most,
            rest: Map::new(),
            items: Vec::new(),
            token: None,
        }
    }

    fn room(&self) -> usize {
        self.most - self.items.len()
    }

    /// Takes a page; whether there is another one to ask for.
    fn add(&mut self, page: Value, key: &str) -> Result<bool, String> {
        let Value::Object(mut page) = page else {
            return Err("the reply is not an object".to_owned());
        };
        let token = page.remove("continuationToken");
        let Some(Value::Array(items)) = page.remove(key) else {
            return Err(format!("the reply has no list {key:?}"));
        };
        let room = self.room();
        let is_cut = items.len() > room;
        self.items.extend(items.into_iter().take(room));
        self.rest = page;
        let token = token.as_ref().and_then(Value::as_str).map(str::to_owned);
        if token.is_some() && token == self.token {
            return Err("the server gave the same page twice".to_owned());
        }
        self.token = token;
        Ok(self.token.is_some() && !is_cut && self.room() > 0)
    }

    fn into_document(mut self, key: &str) -> Value {
        self.rest.insert(key.to_owned(), Value::Array(self.items));
        Value::Object(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_become_one_document_without_a_token() {
        let mut gathered = Gathered::new(MAX_ITEMS);
        let first = json!({"workers": [1, 2], "continuationToken": "x", "kind": "k"});
        assert_eq!(gathered.add(first, "workers"), Ok(true));
        let last = json!({"workers": [3], "kind": "k"});
        assert_eq!(gathered.add(last, "workers"), Ok(false));
        assert_eq!(
            gathered.into_document("workers"),
            json!({"workers": [1, 2, 3], "kind": "k"})
        );
    }

    #[test]
    fn the_limit_ends_the_reading_also_when_a_page_has_too_many() {
        let mut gathered = Gathered::new(2);
        let page = json!({"workers": [1, 2, 3], "continuationToken": "x"});
        assert_eq!(gathered.add(page, "workers"), Ok(false));
        assert_eq!(
            gathered.into_document("workers"),
            json!({"workers": [1, 2]})
        );
    }

    #[test]
    fn a_server_that_never_ends_is_noticed() {
        let mut gathered = Gathered::new(MAX_ITEMS);
        let page = json!({"workers": [], "continuationToken": "x"});
        assert_eq!(gathered.add(page.clone(), "workers"), Ok(true));
        assert!(gathered.add(page, "workers").is_err());
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error() {
        for page in [json!([]), json!({}), json!({"workers": {}})] {
            assert!(Gathered::new(9).add(page, "workers").is_err());
        }
    }
}
