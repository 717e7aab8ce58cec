//! Pools of tests.

use std::collections::BTreeMap;

use domain::id::PoolId;
use serde_json::Value;

use super::pool::Pool;

pub(super) fn read_pools(documents: Vec<Value>) -> BTreeMap<PoolId, Pool> {
    let pools = documents
        .into_iter()
        .map(|document| Pool::parse(document).unwrap());
    pools.collect()
}
