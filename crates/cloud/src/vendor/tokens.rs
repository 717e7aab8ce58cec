//! Bearer tokens of a vendor, kept until shortly before they expire.

use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use async_trait::async_trait;
use domain::time::{Clock, MINUTE_MS, Timestamp};
use tokio::sync::Mutex;

use super::error::Failure;

/// Tokens are replaced this long before they expire. Google's metadata server hands out the same
/// token until about four minutes before.
const REFRESH_BEFORE_MS: i64 = 3 * MINUTE_MS;
/// Time limit for getting a token.
const FETCH_LIMIT: Duration = Duration::from_secs(15);

/// A token and its end.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) secret: Secret,
    pub(crate) expires: Timestamp,
}

/// Gets new tokens, for example for a key.
#[async_trait]
pub(crate) trait TokenSource: Send + Sync {
    /// Fails with `NoCredentials`, or with `NoTokenService` if the same credentials may work later.
    async fn fetch(&self, now: Timestamp) -> Result<Token, Failure>;
}

/// Keeps the token of one source. Clones share it.
#[derive(Clone)]
pub(crate) struct Tokens(Arc<KeptToken>);

struct KeptToken {
    source: Box<dyn TokenSource>,
    clock: Arc<dyn Clock>,
    token: Mutex<Option<Token>>,
}

impl Tokens {
    pub(crate) fn new(source: Box<dyn TokenSource>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(KeptToken {
            source,
            clock,
            token: Mutex::new(None),
        }))
    }

    /// A token that is valid for a while. Concurrent callers wait for the same fetch.
    pub(crate) async fn get(&self) -> Result<Secret, Failure> {
        let mut kept = self.0.token.lock().await;
        let now = self.0.clock.now();
        let lasts = |token: &&Token, ms| now.plus_millis(ms) < token.expires;
        if let Some(token) = kept.as_ref().filter(|it| lasts(it, REFRESH_BEFORE_MS)) {
            return Ok(token.secret.clone());
        }
        let fetched = tokio::time::timeout(FETCH_LIMIT, self.0.source.fetch(now)).await;
        let fetched = fetched.unwrap_or_else(|_| {
            let seconds = FETCH_LIMIT.as_secs();
            Err(Failure::NoTokenService(format!("no answer in {seconds} s")))
        });
        match fetched {
            Ok(token) => Ok(kept.insert(token).secret.clone()),
            // The token service may be out of order for a moment only.
            Err(error) => match kept.as_ref().filter(|it| lasts(it, 0)) {
                Some(token) => Ok(token.secret.clone()),
                None => Err(error),
            },
        }
    }

    /// Drops this token, which the vendor refused, so that the next call fetches another one.
    pub(crate) async fn forget(&self, refused: &Secret) {
        let mut kept = self.0.token.lock().await;
        if kept.as_ref().is_some_and(|token| token.secret == *refused) {
            *kept = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::tests::values::TestClock;

    /// Hands out numbered tokens for an hour each; fails while it has `u64::MAX`.
    #[derive(Clone, Default)]
    struct Numbered(Arc<AtomicU64>);

    #[async_trait]
    impl TokenSource for Numbered {
        async fn fetch(&self, now: Timestamp) -> Result<Token, Failure> {
            tokio::task::yield_now().await;
            if self.0.load(Ordering::SeqCst) == u64::MAX {
                return Err(Failure::NoTokenService("down".to_owned()));
            }
            let number = self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Token {
                secret: Secret::new(number.to_string()),
                expires: now.plus_millis(60 * MINUTE_MS),
            })
        }
    }

    fn tokens() -> (Tokens, Numbered, Arc<TestClock>) {
        let (source, clock) = (Numbered::default(), TestClock::new());
        let tokens = Tokens::new(Box::new(source.clone()), clock.clone());
        (tokens, source, clock)
    }

    async fn get(tokens: &Tokens) -> String {
        tokens.get().await.unwrap().expose().to_owned()
    }

    #[tokio::test]
    async fn a_token_is_kept_until_shortly_before_its_end() {
        let (tokens, _, clock) = tokens();
        assert_eq!(get(&tokens).await, "0");
        clock.advance_ms(57 * MINUTE_MS - 1);
        assert_eq!(get(&tokens).await, "0");
        clock.advance_ms(1);
        assert_eq!(get(&tokens).await, "1");
    }

    #[tokio::test]
    async fn concurrent_callers_share_one_fetch() {
        let (tokens, source, _) = tokens();
        let (one, two) = tokio::join!(get(&tokens), get(&tokens));
        assert_eq!((one.as_str(), two.as_str()), ("0", "0"));
        assert_eq!(source.0.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_token_that_was_refused_is_replaced_once() {
        let (tokens, _, _) = tokens();
        let refused = tokens.get().await.unwrap();
        tokens.forget(&refused).await;
        assert_eq!(get(&tokens).await, "1");
        // A second caller was refused with the old token.
        tokens.forget(&refused).await;
        assert_eq!(get(&tokens).await, "1");
    }

    #[tokio::test]
    async fn a_token_is_used_to_its_end_while_no_other_can_be_fetched() {
        let (tokens, source, clock) = tokens();
        assert_eq!(get(&tokens).await, "0");
        source.0.store(u64::MAX, Ordering::SeqCst);
        clock.advance_ms(59 * MINUTE_MS);
        assert_eq!(get(&tokens).await, "0");
        clock.advance_ms(MINUTE_MS);
        let error = tokens.get().await.unwrap_err();
        assert_eq!(error, Failure::NoTokenService("down".to_owned()));
    }
}
