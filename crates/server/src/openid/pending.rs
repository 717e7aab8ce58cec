//! A sign-in that has begun: the browser keeps it as a sealed cookie until it comes back.

use access::Secret;
use access::seal::Keyring;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::time::{MINUTE_MS, Timestamp};
use engine::random::Random;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// People have this long at the provider.
const LIFE_MS: i64 = 10 * MINUTE_MS;
/// A longer address is not kept: a cookie has 4,096 bytes at most.
const MAX_TO_BYTES: usize = 1_024;
/// Nothing else that is sealed opens as a sign-in.
const PURPOSE: &str = "openid-sign-in";

/// A sign-in that has begun in one browser.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pending {
    state: String,
    nonce: String,
    /// The secret of PKCE.
    verifier: String,
    /// Where the provider sends the browser.
    pub redirect_uri: String,
    /// The page after the sign-in.
    pub to: String,
    /// A digest of the name that the browser gives itself.
    browser: String,
    until_ms: i64,
}

impl Pending {
    pub fn begin(
        random: &Random,
        redirect_uri: String,
        to: &str,
        browser: &str,
        now: Timestamp,
    ) -> Self {
        let secret = || random.secret().expose().to_owned();
        let to = if to.len() > MAX_TO_BYTES { "/" } else { to };
        Self {
            state: secret(),
            nonce: secret(),
            verifier: secret(),
            redirect_uri,
            to: to.to_owned(),
            browser: browser.to_owned(),
            until_ms: now.plus_millis(LIFE_MS).as_millis(),
        }
    }

    /// The text of the cookie.
    pub fn sealed(&self, keyring: &Keyring, random: &Random) -> Secret {
        let text = serde_json::to_string(self).unwrap_or_default();
        let plain = Secret::new(text);
        Secret::new(random.with(|random| keyring.seal(PURPOSE, &plain, random)))
    }

    /// The sign-in of this cookie, if this browser began it with this state, not long ago.
    pub fn resume(
        keyring: &Keyring,
        cookie: &Secret,
        state: &str,
        browser: &str,
        now: Timestamp,
    ) -> Option<Self> {
        let opened = keyring.open(PURPOSE, cookie.expose()).ok()?;
        let pending: Self = serde_json::from_str(opened.expose()).ok()?;
        let is_same = Secret::new(&*pending.state) == Secret::new(state);
        let is_valid = now.as_millis() < pending.until_ms && pending.browser == browser;
        (is_same && is_valid).then_some(pending)
    }

    pub fn state(&self) -> &str {
        &self.state
    }

    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    pub fn verifier(&self) -> &str {
        &self.verifier
    }

    /// The digest of the verifier that the provider gets first (S256).
    pub fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use access::seal::{Key, generate_key};
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    fn keyring(seed: u64) -> Keyring {
        let key = Key {
            id: "k1".to_owned(),
            secret: generate_key(&mut StdRng::seed_from_u64(seed)),
        };
        Keyring::new(vec![key]).unwrap()
    }

    fn begun(to: &str) -> (Pending, Random) {
        let random = Random::new(StdRng::seed_from_u64(1));
        let now = Timestamp::from_millis(0);
        let pending = Pending::begin(&random, "https://f/r".to_owned(), to, "b", now);
        (pending, random)
    }

    #[test]
    fn a_sign_in_is_resumed_by_its_browser_with_its_state_in_time() {
        let (pending, random) = begun("/waiting");
        let keyring = keyring(1);
        let cookie = pending.sealed(&keyring, &random);
        let state = pending.state().to_owned();
        let resume = |state: &str, browser: &str, ms: i64| {
            Pending::resume(
                &keyring,
                &cookie,
                state,
                browser,
                Timestamp::from_millis(ms),
            )
        };
        let resumed = resume(&state, "b", LIFE_MS - 1).unwrap();
        assert_eq!(
            (resumed.to.as_str(), resumed.nonce()),
            ("/waiting", pending.nonce())
        );
        assert!(resume(&state, "b", LIFE_MS).is_none());
        assert!(resume(&state, "c", 0).is_none());
        assert!(resume("", "b", 0).is_none());
        let others = [
            Secret::new(""),
            Secret::new("s1.k1.AAAA"),
            pending.sealed(&self::keyring(2), &random),
            Secret::new(random.with(|it| keyring.seal("session:x", &Secret::new("{}"), it))),
        ];
        for other in others {
            let now = Timestamp::from_millis(0);
            assert!(Pending::resume(&keyring, &other, &state, "b", now).is_none());
        }
    }

    #[test]
    fn the_cookie_is_small_whatever_the_address() {
        let (pending, random) = begun(&format!("/{}", "x".repeat(MAX_TO_BYTES)));
        assert_eq!(pending.to, "/");
        let (longest, _) = begun(&format!("/{}", "\"".repeat(MAX_TO_BYTES - 1)));
        assert_eq!(longest.to.len(), MAX_TO_BYTES);
        assert!(longest.sealed(&keyring(1), &random).expose().len() < 3_900);
    }

    #[test]
    fn the_challenge_is_that_of_rfc_7636() {
        let (mut pending, _) = begun("/");
        pending.verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        assert_eq!(
            pending.challenge(),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }
}
