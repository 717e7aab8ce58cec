//! Checks the payload schemas of a worker configuration: each must compile.

use std::collections::BTreeSet;
use std::sync::Arc;

use contract::PayloadSchema;
use domain::configuration::{Compilation, CompiledPool};

use super::ConfigurationError;
use super::compilation_cache::Purpose;
use super::refusals::PoolRefusal;
use super::schema_cache::{SchemaDigest, schema_digest};
use crate::Engine;

/// The check of all pools of one edit or plan.
pub(super) struct SchemaCheck<'a> {
    engine: &'a Engine,
    purpose: Purpose,
    /// Schemas that compile. Most pools of a configuration have the same one.
    valid: BTreeSet<SchemaDigest>,
}

impl<'a> SchemaCheck<'a> {
    pub(super) fn new(engine: &'a Engine, purpose: Purpose) -> Self {
        Self {
            engine,
            purpose,
            valid: BTreeSet::new(),
        }
    }

    /// Compiles the payload schemas of the pool and of its places, each in a job of its own on
    /// another thread, so that others get their turn between two of them.
    pub(super) async fn check(
        &mut self,
        compilation: &Compilation,
        compiled: &CompiledPool,
    ) -> Result<(), ConfigurationError> {
        let of_pool = compiled.payload_schema.as_ref();
        let of_pool = of_pool.map(|schema| (compiled.worker_type.attributes(), schema));
        let of_places = compiled.launch_configs().filter_map(|(_, config)| {
            let schema = config.payload_schema.as_ref()?;
            Some((config.attributes.clone(), schema))
        });
        let schemas: Vec<_> = of_pool
            .into_iter()
            .chain(of_places)
            .map(|(attributes, schema)| (attributes, Arc::clone(schema)))
            .collect();
        if schemas.is_empty() {
            return Ok(());
        }
        let texts: Vec<_> = schemas
            .iter()
            .map(|(_, schema)| Arc::clone(schema))
            .collect();
        let digests = self.engine.compilations.run_limited(self.purpose, move || {
            let digests = texts.iter().map(|schema| schema_digest(schema));
            digests.collect::<Vec<_>>()
        });
        for ((attributes, schema), digest) in schemas.into_iter().zip(digests.await?) {
            if self.valid.contains(&digest) {
                continue;
            }
            let compiling = self.engine.compilations.run_limited(self.purpose, move || {
                PayloadSchema::compile(&schema).map(drop)
            });
            compiling.await?.map_err(|bad| {
                ConfigurationError::RefusedPool(PoolRefusal::by_server(
                    compilation,
                    &compiled.worker_type,
                    &attributes,
                    [("/payloadSchema".to_owned(), bad.to_string())],
                ))
            })?;
            self.valid.insert(digest);
        }
        Ok(())
    }
}
