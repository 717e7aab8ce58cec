//! Compiled payload schemas, cached by pool. Pools whose schemas are equal share one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::{BadSchema, PayloadSchema};
use domain::Version;
use domain::id::{ConfigurationId, PoolId};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// At most this many pools have a cached schema.
const MAX_ENTRIES: usize = 4_096;
/// Approximate maximum size of the cached schemas. The last used one always stays.
const MAX_BYTES: usize = 128 << 20;

/// The version of the configuration that has the schema.
pub(super) type SchemaVersion = (ConfigurationId, Version);

pub(super) type SchemaDigest = [u8; 32];

/// A compiled schema, and the digest of its text.
pub(super) struct CompiledSchema {
    pub(super) schema: PayloadSchema,
    digest: SchemaDigest,
}

pub(super) struct SchemaCache {
    kept: Mutex<Kept>,
    max_bytes: usize,
}

#[derive(Default)]
struct Kept {
    by_pool: BTreeMap<PoolId, Entry>,
    /// The pools in the order of their last use.
    by_use: BTreeMap<u64, PoolId>,
    n_uses: u64,
    /// Each schema, with the number of pools that have it.
    schemas: BTreeMap<SchemaDigest, (Arc<CompiledSchema>, usize)>,
    n_bytes: usize,
}

struct Entry {
    by: SchemaVersion,
    schema: Arc<CompiledSchema>,
    /// The number of its last use.
    used: u64,
}

impl Default for SchemaCache {
    fn default() -> Self {
        Self::with_bytes(MAX_BYTES)
    }
}

impl CompiledSchema {
    pub(super) fn compile(schema: &Value) -> Result<Self, BadSchema> {
        Ok(Self {
            schema: PayloadSchema::compile(schema)?,
            digest: schema_digest(schema),
        })
    }
}

pub(super) fn schema_digest(schema: &Value) -> SchemaDigest {
    Sha256::digest(schema.to_string()).into()
}

impl SchemaCache {
    fn with_bytes(max_bytes: usize) -> Self {
        Self {
            kept: Mutex::default(),
            max_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, pool_id: &PoolId) -> Option<(SchemaVersion, Arc<CompiledSchema>)> {
        let mut kept = self.lock();
        let Entry { by, schema, .. } = kept.remove(pool_id)?;
        kept.insert(pool_id, by.clone(), Arc::clone(&schema));
        Some((by, schema))
    }

    /// The compiled schema with this text, of any pool.
    pub(super) fn find(&self, digest: &SchemaDigest) -> Option<Arc<CompiledSchema>> {
        let kept = self.lock();
        let (schema, _) = kept.schemas.get(digest)?;
        Some(Arc::clone(schema))
    }

    /// Caches a schema, and drops those that were used least recently.
    pub(super) fn put(&self, pool_id: &PoolId, by: SchemaVersion, schema: Arc<CompiledSchema>) {
        let mut kept = self.lock();
        kept.remove(pool_id);
        kept.insert(pool_id, by, schema);
        while kept.by_pool.len() > MAX_ENTRIES
            || kept.by_pool.len() > 1 && kept.n_bytes > self.max_bytes
        {
            let oldest = kept.by_use.first_key_value();
            let Some(oldest) = oldest.map(|(_, pool_id)| pool_id.clone()) else {
                return;
            };
            kept.remove(&oldest);
        }
    }

    pub(super) fn forget(&self, pool_id: &PoolId) {
        self.lock().remove(pool_id);
    }
}

impl Kept {
    /// A schema that several pools share is counted once.
    fn insert(&mut self, pool_id: &PoolId, by: SchemaVersion, schema: Arc<CompiledSchema>) {
        self.n_uses += 1;
        let used = self.n_uses;
        let shared = self.schemas.entry(schema.digest);
        let (_, n_pools) = shared.or_insert_with(|| {
            self.n_bytes += schema.schema.n_bytes();
            (Arc::clone(&schema), 0)
        });
        *n_pools += 1;
        self.by_use.insert(used, pool_id.clone());
        let entry = Entry { by, schema, used };
        self.by_pool.insert(pool_id.clone(), entry);
    }

    fn remove(&mut self, pool_id: &PoolId) -> Option<Entry> {
        let entry = self.by_pool.remove(pool_id)?;
        self.by_use.remove(&entry.used);
        let digest = entry.schema.digest;
        if let Some((_, n_pools)) = self.schemas.get_mut(&digest) {
            *n_pools -= 1;
            if *n_pools == 0 {
                self.schemas.remove(&digest);
                self.n_bytes -= entry.schema.schema.n_bytes();
            }
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    fn pool(number: usize) -> PoolId {
        format!("pp/p{number:05}").parse().unwrap()
    }

    fn by(version: i64) -> SchemaVersion {
        ("c".parse().unwrap(), Version(version))
    }

    /// Different schemas of the same size.
    fn schema(number: usize) -> Arc<CompiledSchema> {
        let schema = json!({"title": format!("{number:05}")});
        Arc::new(CompiledSchema::compile(&schema).unwrap())
    }

    fn kept(cache: &SchemaCache, count: usize) -> Vec<usize> {
        let kept = cache.lock();
        let numbers = 0..count;
        numbers
            .filter(|number| kept.by_pool.contains_key(&pool(*number)))
            .collect()
    }

    /// The numbers that stay if the first one is used again and again.
    fn first_and_last(count: usize, limit: usize) -> Vec<usize> {
        let n_others = count.min(limit).saturating_sub(1);
        let stays = |number: &usize| *number == 0 || number + n_others >= count;
        (0..count).filter(stays).collect()
    }

    #[test]
    fn the_pools_that_were_used_last_keep_their_schemas() {
        let shared = schema(0);
        for count in sizes_around(
            "engine::configurations::schema_cache::MAX_ENTRIES",
            MAX_ENTRIES,
        ) {
            let cache = SchemaCache::default();
            for number in 0..count {
                cache.put(&pool(number), by(1), Arc::clone(&shared));
                assert!(cache.get(&pool(0)).is_some());
            }
            assert_eq!(kept(&cache, count), first_and_last(count, MAX_ENTRIES));
            // A new version replaces the old one, and no other.
            if let Some(last) = count.checked_sub(1) {
                cache.put(&pool(last), by(2), Arc::clone(&shared));
                assert_eq!(cache.get(&pool(last)).unwrap().0, by(2));
            }
            assert_eq!(kept(&cache, count), first_and_last(count, MAX_ENTRIES));
        }
    }

    #[test]
    fn cached_schemas_have_a_limit_in_bytes() {
        let (each, limit) = (schema(0).schema.n_bytes(), 20);
        for count in sizes_around("bytes of schemas", limit) {
            let cache = SchemaCache::with_bytes(each * limit);
            for number in 0..count {
                cache.put(&pool(number), by(1), schema(number));
                assert!(cache.get(&pool(0)).is_some());
            }
            assert_eq!(kept(&cache, count), first_and_last(count, limit));
        }
        // A schema that is larger than the limit replaces all others.
        let cache = SchemaCache::with_bytes(each - 1);
        cache.put(&pool(0), by(1), schema(0));
        cache.put(&pool(1), by(1), schema(1));
        assert_eq!(kept(&cache, 2), [1]);
    }

    #[test]
    fn pools_with_equal_schemas_share_one() {
        let cache = SchemaCache::with_bytes(schema(0).schema.n_bytes());
        cache.put(&pool(0), by(1), schema(0));
        for number in 1..100 {
            let known = cache.find(&schema(0).digest).unwrap();
            cache.put(&pool(number), by(1), known);
        }
        assert_eq!(kept(&cache, 100).len(), 100);
        assert_eq!(cache.lock().n_bytes, schema(0).schema.n_bytes());
        for number in 0..100 {
            cache.forget(&pool(number));
        }
        assert_eq!(cache.lock().n_bytes, 0);
        assert!(cache.find(&schema(0).digest).is_none());
        assert!(cache.find(&schema(1).digest).is_none());
    }
}
