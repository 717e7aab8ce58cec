//! Our own clients and roles.
//!
//! They are cached in memory. Every change of a client or role increments a revision, which is read
//! at most once a second. So a change in another process takes effect within a second, and a change
//! in this process at once. Only changed roles are read again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use access::authenticate::{AuthenticatedClient, Client, Policy, verify};
use access::hawk::{RequestAuth, RequestLine, read};
use access::role::{ExpansionTooLarge, Role, Roles};
use access::scope::ScopeSet;
use access::seal::Keyring;
use async_trait::async_trait;
use domain::access::{ClientRecord, RoleRecord, token_purpose};
use domain::id::ClientId;
use domain::time::{MINUTE_MS, Timestamp};
use store::revisions::AccessRevision;
use store::roles::RoleChanges;
use store::{Store, StoreError, Tx};

use super::{AuthenticationError, Authenticator, Caller, RequestToAuthenticate};

/// How long a revision counts as current.
const FRESH_MS: i64 = 1_000;
/// How long a request waits for another request that reads the store.
const TURN: Duration = Duration::from_secs(1);
/// Maximum number of clients, of ids of no client, of expansions and of used ids in memory.
const MAX_KEPT: usize = 10_000;
/// Callers choose how large their expansions are. This is the limit for all together; an expansion
/// above its own limit is not cached.
const MAX_EXPANSIONS_BYTES: usize = 64 * 1024 * 1024;
const MAX_EXPANSION_BYTES: usize = 1024 * 1024;
/// A longer id of no client is not kept.
const MAX_UNKNOWN_LENGTH: usize = 256;
/// Validity of the answer for requests without credentials.
const NO_CREDENTIALS_LAST_MS: i64 = 15 * MINUTE_MS;
/// Every caller has this scope, with or without credentials.
const ANONYMOUS: &str = "assume:anonymous";

pub struct EmbeddedAuthenticator {
    store: Store,
    keyring: Arc<Keyring>,
    policy: Policy,
    known: RwLock<Arc<AccessSnapshot>>,
    looked: Mutex<LastRead>,
    /// One request reads the store at a time; the others wait for its result.
    looking: tokio::sync::Mutex<()>,
    used: Mutex<BTreeSet<String>>,
}

/// When the revision was last read.
#[derive(Clone, Copy, Default)]
struct LastRead {
    at_ms: i64,
    /// Counts how often the cache was invalidated.
    forgotten: u64,
}

/// The clients and roles at one revision.
struct AccessSnapshot {
    revision: AccessRevision,
    /// Shared with the revision before if no role has changed since.
    roles: Arc<Roles>,
    anonymous: Arc<ScopeSet>,
    clients: Mutex<HashMap<String, Arc<Client>>>,
    /// Ids of no client. A new client changes the revision, so they hold for a second at most.
    unknown: Mutex<HashSet<String>>,
    expansions: Mutex<Expansions>,
}

/// Recent expansions of scopes.
#[derive(Default)]
struct Expansions {
    kept: HashMap<Vec<String>, Arc<ScopeSet>>,
    bytes: usize,
}

impl AccessSnapshot {
    fn new(revision: AccessRevision, roles: Arc<Roles>) -> Self {
        // Callers without credentials then have no scopes, and the log has the reason.
        let anonymous = roles.expand([ANONYMOUS]).unwrap_or_else(|problem| {
            tracing::error!(
                role.id = problem.role,
                "cannot expand the role anonymous, so unsigned requests get no scopes: {problem}"
            );
            ScopeSet::default()
        });
        Self {
            revision,
            roles,
            anonymous: Arc::new(anonymous),
            clients: Mutex::default(),
            unknown: Mutex::default(),
            expansions: Mutex::default(),
        }
    }

    fn expand(&self, scopes: &[String]) -> Result<Arc<ScopeSet>, ExpansionTooLarge> {
        if let Some(expanded) = self.expansions().kept.get(scopes) {
            return Ok(Arc::clone(expanded));
        }
        // Not under the lock: an expansion may be slow and must not delay other requests.
        let expanded = Arc::new(self.roles.expand(scopes.iter().map(String::as_str))?);
        self.expansions().keep(scopes, &expanded);
        Ok(expanded)
    }

    fn keep(&self, client: &Arc<Client>) {
        let mut clients = self.clients();
        if clients.len() >= MAX_KEPT {
            clients.clear();
        }
        clients.insert(client.client_id.clone(), Arc::clone(client));
    }

    fn keep_unknown(&self, id: &str) {
        if id.len() > MAX_UNKNOWN_LENGTH {
            return;
        }
        let mut unknown = self.unknown();
        if unknown.len() >= MAX_KEPT {
            unknown.clear();
        }
        unknown.insert(id.to_owned());
    }

    fn unknown(&self) -> MutexGuard<'_, HashSet<String>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<String, Arc<Client>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expansions(&self) -> MutexGuard<'_, Expansions> {
        let locked = self.expansions.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expansions {
    fn keep(&mut self, scopes: &[String], expanded: &Arc<ScopeSet>) {
        let texts = scopes.iter().map(String::as_str).chain(expanded.iter());
        let bytes: usize = texts.map(|text| size_of::<String>() + text.len()).sum();
        if bytes > MAX_EXPANSION_BYTES {
            return;
        }
        if self.kept.len() >= MAX_KEPT || self.bytes + bytes > MAX_EXPANSIONS_BYTES {
            *self = Self::default();
        }
        self.bytes += bytes;
        self.kept.insert(scopes.to_vec(), Arc::clone(expanded));
    }
}

impl EmbeddedAuthenticator {
    pub fn new(store: Store, keyring: Arc<Keyring>, policy: Policy) -> Self {
        // Nothing is cached for this revision, so the first request reads the roles.
        let nothing = AccessSnapshot::new(AccessRevision::default(), Arc::default());
        let known = RwLock::new(Arc::new(nothing));
        Self {
            store,
            keyring,
            policy,
            known,
            looked: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            used: Mutex::default(),
        }
    }

    /// Verifies a request line, as `authenticateHawk` does for other services. `None`: no
    /// credentials. `may_look_up`: whether the database may be read for a client that is not in
    /// memory.
    pub async fn verify(
        &self,
        line: &RequestLine<'_>,
        authorization: Option<&str>,
        may_look_up: bool,
        now: Timestamp,
    ) -> Result<Option<AuthenticatedClient>, AuthenticationError> {
        let presented = read(line, authorization)?;
        if matches!(presented, RequestAuth::Nothing) {
            return Ok(None);
        }
        let known = self.known(now).await?;
        let client = match presented.client_to_load() {
            Some(id) => self.client(&known, id, may_look_up).await?,
            None => None,
        };
        let expand = |scopes: &[String]| known.expand(scopes);
        let verified = verify(
            &presented,
            line,
            client.as_deref(),
            &expand,
            now.as_millis(),
            &self.policy,
        );
        if let (Ok(_), Some(client)) = (&verified, &client) {
            self.note_use(&client.client_id);
        }
        Ok(Some(verified?))
    }

    /// The scopes of callers without credentials, and how long this answer is valid.
    pub async fn anonymous(
        &self,
        now: Timestamp,
    ) -> Result<(Arc<ScopeSet>, Timestamp), AuthenticationError> {
        let scopes = Arc::clone(&self.known(now).await?.anonymous);
        Ok((scopes, now.plus_millis(NO_CREDENTIALS_LAST_MS)))
    }

    pub async fn expand(
        &self,
        scopes: &[String],
        now: Timestamp,
    ) -> Result<Arc<ScopeSet>, AuthenticationError> {
        let expanded = self.known(now).await?.expand(scopes);
        expanded.map_err(|problem| AuthenticationError::NotExpanded(problem.to_string()))
    }

    async fn known(&self, now: Timestamp) -> Result<Arc<AccessSnapshot>, StoreError> {
        if let Some(known) = self.fresh(now) {
            return Ok(known);
        }
        // The time limit keeps requests from queueing when the database hangs.
        let _turn = tokio::time::timeout(TURN, self.looking.lock()).await.ok();
        // The previous holder of the lock may have read it.
        if let Some(known) = self.fresh(now) {
            return Ok(known);
        }
        let looked = *self.looked();
        let known = self.current();
        let seen = known.revision.clone();
        let news = self.store.read("access_load", move |tx| {
            let revision = store::revisions::current(tx)?;
            if revision == seen {
                return Ok(None);
            }
            let changes = store::roles::changes(tx, &seen, &revision)?;
            Ok::<_, StoreError>(Some((revision, changes)))
        });
        let known = match news.await? {
            None => known,
            Some((revision, changes)) => {
                let roles = match changes {
                    RoleChanges::Changed(roles) if roles.is_empty() => Arc::clone(&known.roles),
                    RoleChanges::Changed(roles) => {
                        Arc::new(Roles::clone(&known.roles).with(compiled(roles)))
                    }
                    RoleChanges::All(roles) => Arc::new(Roles::new(compiled(roles))),
                };
                let fresh = Arc::new(AccessSnapshot::new(revision, roles));
                let mut current = self.known.write().unwrap_or_else(PoisonError::into_inner);
                *current = Arc::clone(&fresh);
                fresh
            }
        };
        // A change in this process during the read may be missing from its result: then the next
        // request reads again.
        let mut current = self.looked();
        if current.forgotten == looked.forgotten {
            current.at_ms = now.as_millis();
        }
        Ok(known)
    }

    /// The cached state, if its revision was read recently.
    fn fresh(&self, now: Timestamp) -> Option<Arc<AccessSnapshot>> {
        let age = now.as_millis().saturating_sub(self.looked().at_ms);
        let known = self.current();
        // A clock that was set back makes the age negative: then read again.
        let is_fresh = (0..FRESH_MS).contains(&age) && known.revision.n_changes() > 0;
        is_fresh.then_some(known)
    }

    fn current(&self) -> Arc<AccessSnapshot> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn looked(&self) -> MutexGuard<'_, LastRead> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn client(
        &self,
        known: &AccessSnapshot,
        id: &str,
        may_look_up: bool,
    ) -> Result<Option<Arc<Client>>, AuthenticationError> {
        let kept = known.clients().get(id).cloned();
        if kept.is_some() {
            return Ok(kept);
        }
        if known.unknown().contains(id) {
            return Ok(None);
        }
        let Ok(client_id) = id.parse::<ClientId>() else {
            return Ok(None);
        };
        if !may_look_up {
            return Err(AuthenticationError::NotLookedUp);
        }
        let get = move |tx: &mut Tx<'_>| store::clients::get(tx, &client_id);
        let Some(record) = self.store.read("client_get", get).await? else {
            known.keep_unknown(id);
            return Ok(None);
        };
        let client = Arc::new(self.open(&record)?);
        known.keep(&client);
        Ok(Some(client))
    }

    fn open(&self, record: &ClientRecord) -> Result<Client, AuthenticationError> {
        let purpose = token_purpose(&record.client_id);
        let access_token = self
            .keyring
            .open(&purpose, &record.sealed_access_token)
            .map_err(|problem| {
                tracing::error!(client.id = %record.client_id, error = %problem,
                    "cannot decrypt the access token of {}: is its key still configured?",
                    record.client_id);
                AuthenticationError::Refused("Unknown credentials".to_owned())
            })?;
        Ok(Client {
            client_id: record.client_id.to_string(),
            access_token,
            scopes: record.scopes.clone(),
            expires_ms: record.expires.as_millis(),
            disabled: record.disabled,
        })
    }

    fn note_use(&self, client_id: &str) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        note_use(&mut used, client_id);
    }
}

fn compiled(roles: Vec<RoleRecord>) -> impl Iterator<Item = Role> {
    roles.into_iter().map(|role| Role {
        role_id: role.role_id.to_string(),
        scopes: role.scopes,
    })
}

/// If the set is full, further clients are recorded at their next use after it was stored.
fn note_use(used: &mut BTreeSet<String>, client_id: &str) {
    if used.len() < MAX_KEPT && !used.contains(client_id) {
        used.insert(client_id.to_owned());
    }
}

#[async_trait]
impl Authenticator for EmbeddedAuthenticator {
    async fn authenticate(
        &self,
        request: &RequestToAuthenticate,
        now: Timestamp,
    ) -> Result<Caller, AuthenticationError> {
        let line = request.line();
        let authorization = request.authorization.as_deref();
        let verified = self.verify(&line, authorization, request.may_look_up, now);
        let Some(authenticated) = verified.await? else {
            let (scopes, expires) = self.anonymous(now).await?;
            return Ok(Caller::anonymous(scopes, expires));
        };
        Ok(Caller {
            client_id: Some(authenticated.client_id),
            scopes: authenticated.scopes,
            expires: Timestamp::from_millis(authenticated.expires_ms),
            payload_hash: authenticated.payload_hash,
        })
    }

    fn forget(&self) {
        let mut looked = self.looked();
        looked.forgotten += 1;
        looked.at_ms = 0;
    }

    fn take_used(&self) -> Vec<String> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *used).into_iter().collect()
    }

    fn embedded(&self) -> Option<&EmbeddedAuthenticator> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use access::Secret;
    use testing::sizes_around;

    use super::*;

    fn scopes(number: usize, length: usize) -> Vec<String> {
        vec![format!("{number}{}", "x".repeat(length))]
    }

    #[test]
    fn expansions_are_kept_up_to_a_limit_whatever_their_size() {
        let known = AccessSnapshot::new(AccessRevision::default(), Arc::default());
        for number in 0..500 {
            known.expand(&scopes(number, 200_000)).unwrap();
            assert!(known.expansions().bytes <= MAX_EXPANSIONS_BYTES);
        }
        assert!(!known.expansions().kept.is_empty());
        let huge = scopes(0, MAX_EXPANSION_BYTES);
        assert_eq!(known.expand(&huge).unwrap().to_vec(), huge);
        assert!(!known.expansions().kept.contains_key(&huge));
        let small = scopes(1, 1);
        let first = known.expand(&small).unwrap();
        assert!(Arc::ptr_eq(&first, &known.expand(&small).unwrap()));
    }

    fn client(number: usize) -> Arc<Client> {
        Arc::new(Client {
            client_id: format!("c/{number}"),
            access_token: Secret::new(String::new()),
            scopes: Vec::new(),
            expires_ms: 0,
            disabled: false,
        })
    }

    #[test]
    fn a_bounded_number_of_clients_expansions_and_uses_is_kept() {
        for count in sizes_around("server::authentication::embedded::MAX_KEPT", MAX_KEPT) {
            let known = AccessSnapshot::new(AccessRevision::default(), Arc::default());
            let (mut used, nothing) = (BTreeSet::new(), Arc::new(ScopeSet::default()));
            for number in 0..count {
                let client = client(number);
                known.keep(&client);
                known.keep_unknown(&client.client_id);
                known.expansions().keep(&scopes(number, 1), &nothing);
                note_use(&mut used, &client.client_id);
                // A client above the limit empties the cache and is the first in it.
                let kept = number % MAX_KEPT + 1;
                let clients = known.clients.lock().unwrap();
                assert_eq!(clients.len(), kept);
                assert!(clients.contains_key(&client.client_id));
                assert_eq!(known.unknown().len(), kept);
                assert_eq!(known.expansions().kept.len(), kept);
            }
            assert_eq!(used.len(), count.min(MAX_KEPT));
        }
    }
}
