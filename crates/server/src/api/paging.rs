//! Pages of lists.
//!
//! A continuation token is the key of the last item on the page. So every page costs the same, and
//! concurrent inserts and deletes neither repeat nor hide other items.

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::id::BadId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::Part;

use super::error::ApiError;
use super::reply::Reply;

/// Maximum and default size of a page.
pub const MAX_PAGE: u32 = 1_000;

/// A page of large items ends at this size. Reading it and making a reply takes several times as
/// much memory.
pub const MAX_PAGE_BYTES: u64 = 1 << 20;

/// How many items, and after which key; `K` is the key by which the list is ordered.
#[derive(Debug, PartialEq, Eq)]
pub struct Page<K> {
    pub limit: u32,
    pub after: Option<K>,
}

impl<K: Serialize + DeserializeOwned> Page<K> {
    pub fn parse(limit: Option<&str>, token: Option<&str>) -> Result<Self, ApiError> {
        let limit = match limit.and_then(|digits| digits.parse::<u32>().ok()) {
            None | Some(0) => MAX_PAGE,
            Some(limit) => limit.min(MAX_PAGE),
        };
        let after = token.map(decode).transpose()?;
        Ok(Self { limit, after })
    }

    /// One more than fits: it shows whether another page follows.
    pub fn limit_and_one(&self) -> u32 {
        self.limit + 1
    }

    /// The token of a page that begins after this key.
    pub fn token(&self, key: &K) -> String {
        encode(key)
    }

    /// Removes the item that does not fit and makes the token of the next page.
    pub fn cut<T>(&self, items: &mut Vec<T>, key: impl Fn(&T) -> K) -> Option<String> {
        let limit = self.limit as usize;
        if items.len() <= limit {
            return None;
        }
        items.truncate(limit);
        items.last().map(|last| encode(&key(last)))
    }

    /// The same for a list that may have ended earlier because of its size.
    pub fn cut_part<T>(&self, part: Part<T>, key: impl Fn(&T) -> K) -> (Vec<T>, Option<String>) {
        let Part { mut items, is_cut } = part;
        let token = self.cut(&mut items, &key);
        let early = items.last().filter(|_| is_cut && token.is_none());
        let token = early.map(|last| encode(&key(last))).or(token);
        (items, token)
    }

    /// The reply: the items under this name, and the token of the next page.
    pub fn reply<T>(
        &self,
        name: &str,
        items: impl Into<Part<T>>,
        key: impl Fn(&T) -> K,
        show: impl Fn(&T) -> Value,
    ) -> Result<Reply, ApiError> {
        let (items, token) = self.cut_part(items.into(), key);
        Reply::list(name, items.iter().map(show), token)
    }
}

impl Page<(String,)> {
    pub fn after_id<T: FromStr<Err = BadId>>(&self) -> Result<Option<T>, ApiError> {
        let after = self.after.as_ref();
        Ok(after.map(|(id,)| id.parse()).transpose()?)
    }
}

fn encode<K: Serialize>(key: &K) -> String {
    let text = serde_json::to_vec(key).expect("keys are strings and numbers");
    URL_SAFE_NO_PAD.encode(text)
}

fn decode<K: DeserializeOwned>(token: &str) -> Result<K, ApiError> {
    URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        // PostgreSQL stores no texts with U+0000, so no key of ours contains it.
        .filter(|text| !text.windows(6).any(|part| part == br"\u0000"))
        .and_then(|text| serde_json::from_slice(&text).ok())
        .ok_or_else(|| ApiError::input("Invalid continuation token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Names = Page<(String,)>;

    #[test]
    fn a_token_brings_the_next_page() {
        let page = Names::parse(Some("2"), None).unwrap();
        let mut items = vec!["a", "b", "c"];
        let token = page.cut(&mut items, |item| ((*item).to_owned(),)).unwrap();
        assert_eq!(items, ["a", "b"]);
        let next = Names::parse(Some("2"), Some(&token)).unwrap();
        assert_eq!(next.after, Some(("b".to_owned(),)));
    }

    #[test]
    fn a_page_that_ends_early_has_a_token() {
        let page = Names::parse(Some("2"), None).unwrap();
        let cut = |items: Vec<&'static str>, is_cut| {
            let part = Part { items, is_cut };
            let (items, token) = page.cut_part(part, |item| ((*item).to_owned(),));
            let next = token.map(|token| Names::parse(None, Some(&token)).unwrap().after);
            (items, next.flatten().map(|(after,)| after))
        };
        let after = |name: &str| Some(name.to_owned());
        assert_eq!(cut(vec!["a"], true), (vec!["a"], after("a")));
        assert_eq!(cut(vec!["a", "b"], true), (vec!["a", "b"], after("b")));
        assert_eq!(cut(vec!["a", "b", "c"], true), (vec!["a", "b"], after("b")));
        assert_eq!(cut(vec!["a", "b"], false), (vec!["a", "b"], None));
    }

    #[test]
    fn the_last_page_has_no_token() {
        let page = Names::parse(Some("2"), None).unwrap();
        assert_eq!(
            page.cut(&mut vec!["a", "b"], |item| ((*item).to_owned(),)),
            None
        );
    }

    #[test]
    fn a_page_is_never_above_the_maximum_and_never_empty() {
        for count in testing::sizes_around("server::api::paging::MAX_PAGE", MAX_PAGE as usize) {
            let expected = match count {
                0 => MAX_PAGE as usize,
                _ => count.min(MAX_PAGE as usize),
            };
            let page = Names::parse(Some(&count.to_string()), None).unwrap();
            assert_eq!(page.limit as usize, expected);
            assert_eq!(page.limit_and_one() as usize, expected + 1);
        }
        assert_eq!(Names::parse(None, None).unwrap().limit, 1_000);
        assert_eq!(
            Names::parse(Some("99999999999999999999999"), None)
                .unwrap()
                .limit,
            1_000
        );
    }

    #[test]
    fn a_list_of_any_length_comes_in_pages_of_the_maximum_size() {
        const LARGEST: usize = MAX_PAGE as usize;
        for count in testing::sizes_around("server::api::paging::MAX_PAGE", LARGEST) {
            let all: Vec<String> = (0..count).map(|number| format!("{number:05}")).collect();
            let (mut seen, mut token, mut n_pages) = (Vec::new(), None::<String>, 0);
            loop {
                let page = Names::parse(None, token.as_deref()).unwrap();
                let after = page.after.as_ref().map_or("", |(name,)| name.as_str());
                let rest = all.iter().filter(|name| name.as_str() > after);
                let mut items = rest.take(page.limit_and_one() as usize).collect();
                token = page.cut(&mut items, |name| ((*name).clone(),));
                seen.extend(items);
                n_pages += 1;
                if token.is_none() {
                    break;
                }
            }
            assert!(seen.into_iter().eq(&all));
            assert_eq!(n_pages, count.div_ceil(LARGEST).max(1));
        }
    }

    #[test]
    fn an_invalid_token_is_refused() {
        for token in ["!", "bm90IGpzb24", "WzFd", ""] {
            let refused = Names::parse(None, Some(token)).unwrap_err();
            assert_eq!(refused.message, "Invalid continuation token", "{token}");
        }
    }
}
