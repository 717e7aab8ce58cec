//! Gathers all pages of a list into one document.

use serde_json::{Map, Value};

use super::{Call, Client};
use crate::failure::Failure;
use crate::output::Progress;

/// Maximum size of a page that servers return.
const PAGE_LIMIT: usize = 1_000;
/// Maximum number of items in a list; `--limit` or a filter reduces it.
const MAX_ITEMS: usize = 1_000_000;

/// Limits of one page and of the complete list.
#[derive(Clone, Copy)]
struct Bounds {
    page: usize,
    items: usize,
}

impl Bounds {
    const USUAL: Self = Self {
        page: PAGE_LIMIT,
        items: MAX_ITEMS,
    };
}

struct PageRequest {
    page: Call,
    n_so_far: usize,
}

impl Client {
    /// Reads the list under `key` from all pages, up to `limit` items. Returns the API's document
    /// without the continuation token.
    pub(crate) async fn pages(
        &self,
        call: &Call,
        key: &str,
        limit: Option<usize>,
    ) -> Result<Value, Failure> {
        let mut progress = Progress::start();
        let ask = async |request: PageRequest| {
            let PageRequest { page, n_so_far } = request;
            if n_so_far > 0 {
                progress.report(|| format!("{}: {n_so_far} so far", call.purpose));
            }
            self.call(&page).await
        };
        gather(call, key, limit, Bounds::USUAL, ask).await
    }
}

async fn gather(
    call: &Call,
    key: &str,
    limit: Option<usize>,
    bounds: Bounds,
    mut ask: impl AsyncFnMut(PageRequest) -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    // One item more than the maximum shows that there are too many.
    let most = limit.unwrap_or(usize::MAX).min(bounds.items + 1);
    let mut gathered = Gathered::new(most);
    loop {
        let n_wanted = gathered.room().clamp(1, bounds.page);
        let page = call
            .clone()
            .query("limit", Some(n_wanted))
            .query("continuationToken", gathered.token.clone());
        let n_so_far = gathered.items.len();
        let reply = ask(PageRequest { page, n_so_far }).await?;
        let added = gathered.add(reply, key);
        let goes_on = added
            .map_err(|error| Failure::failed(format!("could not {}: {error}", call.purpose)))?;
        if !goes_on {
            break;
        }
    }
    if gathered.items.len() > bounds.items {
        let (purpose, most) = (&call.purpose, bounds.items);
        return Err(Failure::failed(format!(
            "could not {purpose}: more than {most} items; set --limit or a filter"
        )));
    }
    Ok(gathered.into_document(key))
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

    /// Adds a page; returns whether to request another one.
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
            return Err("the server returned the same page twice".to_owned());
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
    use testing::sizes_around;

    use super::*;
    use crate::client::AUTH;

    const FEW: Bounds = Bounds {
        page: 10,
        items: 35,
    };

    /// Gathers from a server that has `there` items. Returns also how many were asked for, page
    /// by page.
    async fn gathered(
        there: usize,
        limit: Option<usize>,
        bounds: Bounds,
    ) -> (Result<usize, String>, Vec<usize>) {
        let call = Call::get(AUTH, &["clients"]).to("list clients");
        let mut asked = Vec::new();
        let ask = async |request: PageRequest| {
            let of = |name: &str| -> Option<usize> {
                let (_, query) = request.page.api.resource.split_once('?')?;
                let mut parameters = query.split('&').filter_map(|part| part.split_once('='));
                let (_, value) = parameters.find(|(known, _)| *known == name)?;
                Some(value.parse().unwrap())
            };
            let first = of("continuationToken").unwrap_or(0);
            assert_eq!(request.n_so_far, first);
            asked.push(of("limit").unwrap());
            let end = there.min(first + of("limit").unwrap());
            let mut page = json!({"items": (first..end).collect::<Vec<_>>()});
            if end < there {
                page["continuationToken"] = json!(end.to_string());
            }
            Ok(page)
        };
        let document = gather(&call, "items", limit, bounds, ask).await;
        let count = document.map(|document| {
            let items = document["items"].as_array().unwrap();
            assert!(items.iter().enumerate().all(|(at, item)| *item == at));
            items.len()
        });
        (count.map_err(|failure| failure.message), asked)
    }

    #[tokio::test]
    async fn a_list_is_asked_for_in_pages_and_none_too_many() {
        let bounds = Bounds {
            items: 1_000,
            ..FEW
        };
        for there in sizes_around("fleetwright::client::pages::PAGE_LIMIT", bounds.page) {
            let n_pages = there.div_ceil(bounds.page).max(1);
            let (count, asked) = gathered(there, None, bounds).await;
            assert_eq!((count, asked), (Ok(there), vec![bounds.page; n_pages]));
            let (count, asked) = gathered(1_000, Some(there), bounds).await;
            assert_eq!((count, asked.len()), (Ok(there), n_pages));
            assert_eq!(asked.iter().sum::<usize>(), there.max(1));
        }
        assert_eq!(PAGE_LIMIT, server::api::paging::MAX_PAGE as usize);
        let (count, asked) = gathered(PAGE_LIMIT + 1, None, Bounds::USUAL).await;
        assert_eq!((count, asked), (Ok(PAGE_LIMIT + 1), vec![PAGE_LIMIT; 2]));
    }

    #[tokio::test]
    async fn a_list_of_too_many_is_refused_and_not_cut() {
        let most = FEW.items;
        for there in sizes_around("fleetwright::client::pages::MAX_ITEMS", most) {
            for limit in [None, Some(most + 1), Some(usize::MAX)] {
                let (count, asked) = gathered(there, limit, FEW).await;
                assert!(asked.len() <= 4, "{asked:?}");
                match count {
                    Ok(count) => assert_eq!((count, there <= most), (there, true)),
                    Err(refused) => {
                        assert!(there > most, "{there}: {refused}");
                        let expected = "could not list clients: more than 35 items; ";
                        assert!(refused.starts_with(expected), "{refused}");
                    }
                }
            }
            let (count, _) = gathered(there, Some(most), FEW).await;
            assert_eq!(count, Ok(there.min(most)));
        }
    }

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
