//! Our own clients and roles.
//!
//! What has been read from the store is kept in memory as long as the revision that every change of
//! a client or role counts up stays the same. The revision is looked at once a second at most, so a
//! change in another process takes effect within a second, one in this process at once. Of the roles
//! only those that changed are read again.

use std::collections::{BTreeSet, HashMap};
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
use store::{Store, StoreError};

use super::{Asking, Caller, Gate, GateError};

/// How long a revision counts as fresh.
const FRESH_MS: i64 = 1_000;
/// A request waits at most this long for another one that reads the store.
const TURN: Duration = Duration::from_secs(1);
/// At most so many clients, expansions and used ids are kept in memory.
const MAX_KEPT: usize = 10_000;
/// Who may ask for expansions chooses how large they are: all together take this much memory, and
/// one that takes more than its share is not kept.
const MAX_EXPANSIONS_BYTES: usize = 64 * 1024 * 1024;
const MAX_EXPANSION_BYTES: usize = 1024 * 1024;
/// For how long the answer to somebody without credentials holds.
const NO_CREDENTIALS_LAST_MS: i64 = 15 * MINUTE_MS;
/// Everybody has this, credentials or not.
const ANONYMOUS: &str = "assume:anonymous";

pub struct Embedded {
    store: Store,
    keyring: Arc<Keyring>,
    policy: Policy,
    known: RwLock<Arc<Known>>,
    looked: Mutex<Looked>,
    /// One request reads the store at a time; the others wait for what it finds.
    looking: tokio::sync::Mutex<()>,
    used: Mutex<BTreeSet<String>>,
}

/// When the revision was last looked at.
#[derive(Clone, Copy, Default)]
struct Looked {
    at_ms: i64,
    /// Counts how often everything had to be looked at anew.
    forgotten: u64,
}

/// All that is known of clients and roles at one revision.
struct Known {
    revision: AccessRevision,
    /// Shared with the revision before if no role has changed since.
    roles: Arc<Roles>,
    anonymous: Arc<ScopeSet>,
    clients: Mutex<HashMap<String, Arc<Client>>>,
    expansions: Mutex<Expansions>,
}

/// What scopes amount to, as far as it was asked lately.
#[derive(Default)]
struct Expansions {
    kept: HashMap<Vec<String>, Arc<ScopeSet>>,
    bytes: usize,
}

impl Known {
    fn new(revision: AccessRevision, roles: Arc<Roles>) -> Self {
        // Callers without credentials then have what nobody is refused, and the log says why.
        let anonymous = roles.expand([ANONYMOUS]).unwrap_or_else(|problem| {
            tracing::error!(
                role.id = problem.role,
                "nobody has the role anonymous: {problem}"
            );
            ScopeSet::default()
        });
        let anonymous = Arc::new(anonymous);
        let (clients, expansions) = (Mutex::default(), Mutex::default());
        Self {
            revision,
            roles,
            anonymous,
            clients,
            expansions,
        }
    }

    fn expand(&self, scopes: &[String]) -> Result<Arc<ScopeSet>, ExpansionTooLarge> {
        if let Some(expanded) = self.expansions().kept.get(scopes) {
            return Ok(Arc::clone(expanded));
        }
        // Not under the lock: it may take a while, and others want to be let in meanwhile.
        let expanded = Arc::new(self.roles.expand(scopes.iter().map(String::as_str))?);
        self.expansions().keep(scopes, &expanded);
        Ok(expanded)
    }

    fn keep(&self, client: &Arc<Client>) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= MAX_KEPT {
            clients.clear();
        }
        clients.insert(client.client_id.clone(), Arc::clone(client));
    }

    fn expansions(&self) -> MutexGuard<'_, Expansions> {
        self.expansions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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

impl Embedded {
    pub fn new(store: Store, keyring: Arc<Keyring>, policy: Policy) -> Self {
        // Of this revision nothing is known, so the first request reads the roles.
        let nothing = Known::new(AccessRevision::default(), Arc::default());
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
    /// credentials.
    pub async fn verify(
        &self,
        line: &RequestLine<'_>,
        authorization: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<AuthenticatedClient>, GateError> {
        let presented = read(line, authorization)?;
        if matches!(presented, RequestAuth::Nothing) {
            return Ok(None);
        }
        let known = self.known(now).await?;
        let client = match presented.client_to_load() {
            Some(id) => self.client(&known, id).await?,
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

    /// What anybody may do, and for how long that answer holds.
    pub async fn anonymous(&self, now: Timestamp) -> Result<(Arc<ScopeSet>, Timestamp), GateError> {
        let scopes = Arc::clone(&self.known(now).await?.anonymous);
        Ok((scopes, now.plus_millis(NO_CREDENTIALS_LAST_MS)))
    }

    pub async fn expand(
        &self,
        scopes: &[String],
        now: Timestamp,
    ) -> Result<Arc<ScopeSet>, GateError> {
        let expanded = self.known(now).await?.expand(scopes);
        expanded.map_err(|problem| GateError::NotExpanded(problem.to_string()))
    }

    async fn known(&self, now: Timestamp) -> Result<Arc<Known>, StoreError> {
        if let Some(known) = self.fresh(now) {
            return Ok(known);
        }
        // A database that hangs must not let them all wait for each other.
        let _turn = tokio::time::timeout(TURN, self.looking.lock()).await.ok();
        // The one before us may have looked.
        if let Some(known) = self.fresh(now) {
            return Ok(known);
        }
        let looked = *self.looked();
        let known = self.current();
        let seen = known.revision.clone();
        let news = self
            .store
            .read("access_load", move |tx| {
                let revision = store::revisions::current(tx)?;
                let news = match revision == seen {
                    true => None,
                    false => Some(store::roles::changes(tx, &seen, &revision)?),
                };
                Ok::<_, StoreError>((revision, news))
            })
            .await?;
        let known = match news {
            (_, None) => known,
            (revision, Some(news)) => {
                let roles = match news {
                    RoleChanges::Changed(roles) if roles.is_empty() => Arc::clone(&known.roles),
                    RoleChanges::Changed(roles) => {
                        Arc::new(Roles::clone(&known.roles).with(compiled(roles)))
                    }
                    RoleChanges::All(roles) => Arc::new(Roles::new(compiled(roles))),
                };
                let fresh = Arc::new(Known::new(revision, roles));
                let mut current = self.known.write().unwrap_or_else(PoisonError::into_inner);
                *current = Arc::clone(&fresh);
                fresh
            }
        };
        // What changed here while we were reading may not be in what we read: then the next request
        // looks again.
        let mut current = self.looked();
        if current.forgotten == looked.forgotten {
            current.at_ms = now.as_millis();
        }
        Ok(known)
    }

    /// What is known, if that was looked at just now.
    fn fresh(&self, now: Timestamp) -> Option<Arc<Known>> {
        let age = now.as_millis().saturating_sub(self.looked().at_ms);
        let known = self.current();
        // A clock that went backwards makes the age negative: then look again.
        let is_fresh = (0..FRESH_MS).contains(&age) && known.revision.n_changes() > 0;
        is_fresh.then_some(known)
    }

    fn current(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn client(&self, known: &Known, id: &str) -> Result<Option<Arc<Client>>, GateError> {
        let kept = known
            .clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(id)
            .cloned();
        if kept.is_some() {
            return Ok(kept);
        }
        let Ok(client_id) = id.parse::<ClientId>() else {
            return Ok(None);
        };
        let record = self
            .store
            .read("client_get", move |tx| store::clients::get(tx, &client_id));
        let Some(record) = record.await? else {
            return Ok(None);
        };
        let client = Arc::new(self.open(&record)?);
        known.keep(&client);
        Ok(Some(client))
    }

    fn open(&self, record: &ClientRecord) -> Result<Client, GateError> {
        let purpose = token_purpose(&record.client_id);
        let access_token = self
            .keyring
            .open(&purpose, &record.sealed_access_token)
            .map_err(|problem| {
                tracing::error!(client.id = %record.client_id, error = %problem,
                    "the access token of {} cannot be opened: is its key still configured?",
                    record.client_id);
                GateError::Refused("Unknown credentials".to_owned())
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

/// Of more clients than are kept, the next use is written down once those have been.
fn note_use(used: &mut BTreeSet<String>, client_id: &str) {
    if used.len() < MAX_KEPT && !used.contains(client_id) {
        used.insert(client_id.to_owned());
    }
}

#[async_trait]
impl Gate for Embedded {
    async fn authenticate(&self, asking: &Asking, now: Timestamp) -> Result<Caller, GateError> {
        let line = asking.line();
        let Some(authenticated) = self
            .verify(&line, asking.authorization.as_deref(), now)
            .await?
        else {
            let (scopes, expires) = self.anonymous(now).await?;
            return Ok(Caller {
                client_id: None,
                scopes,
                expires,
                payload_hash: None,
            });
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

    fn embedded(&self) -> Option<&Embedded> {
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
        let known = Known::new(AccessRevision::default(), Arc::default());
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
    fn only_so_many_clients_expansions_and_uses_are_kept() {
        for count in sizes_around("server::gate::embedded::MAX_KEPT", MAX_KEPT) {
            let known = Known::new(AccessRevision::default(), Arc::default());
            let (mut used, nothing) = (BTreeSet::new(), Arc::new(ScopeSet::default()));
            for number in 0..count {
                let client = client(number);
                known.keep(&client);
                known.expansions().keep(&scopes(number, 1), &nothing);
                note_use(&mut used, &client.client_id);
                // A client above the limit empties the cache and is the first in it.
                let kept = number % MAX_KEPT + 1;
                let clients = known.clients.lock().unwrap();
                assert_eq!(clients.len(), kept);
                assert!(clients.contains_key(&client.client_id));
                assert_eq!(known.expansions().kept.len(), kept);
            }
            assert_eq!(used.len(), count.min(MAX_KEPT));
        }
    }
}
