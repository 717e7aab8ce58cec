//! The limits on worker types of a configuration and launch configs of a pool.

use testing::sizes_around;

use super::*;
use crate::pool::MAX_LAUNCH_CONFIGS;

#[test]
fn the_number_of_worker_types_is_limited() {
    for count in sizes_around("domain::configuration::MAX_WORKER_TYPES", MAX_WORKER_TYPES) {
        let names: Vec<String> = (0..count).map(|number| format!("w{number}")).collect();
        match Configuration::parse(&json!({"workerTypes": names, "rules": []})) {
            Ok(configuration) => {
                assert!(count <= MAX_WORKER_TYPES, "{count}");
                let read: Vec<_> = configuration
                    .worker_types
                    .iter()
                    .map(WorkerType::name)
                    .collect();
                assert_eq!(read, names);
            }
            Err(refused) => {
                let expected = format!("lists {count} worker types; at most 2000 are possible");
                assert!(count > MAX_WORKER_TYPES, "{count}: {refused}");
                assert!(refused.to_string().contains(&expected), "{refused}");
            }
        }
    }
}

/// A pool with a launch config in each of this many regions, from as many providers as that takes.
fn pool_of(n_launch_configs: usize) -> Result<Compilation, Problems> {
    let each = 1_500;
    let (mut catalog, mut options) = (ProviderCatalog::default(), json!({}));
    let mut values = json!({"owner": "o@example.com", "description": "d", "maxCapacity": 1});
    for (number, first) in (0..n_launch_configs).step_by(each).enumerate() {
        let name = format!("p{number}");
        let regions = first..n_launch_configs.min(first + each);
        let places = regions.map(|region| place(&[("region", &format!("r{region}"))]));
        let mut entry = ProviderEntry::launching(places.collect());
        entry
            .fills
            .insert("region".to_owned(), "/region".to_owned());
        catalog.providers.insert(name.parse().unwrap(), entry);
        options[&name] = json!({});
        values[&name] = json!({"x": 1});
    }
    values["providers"] = options;
    let document = json!({"workerTypes": ["build"], "rules": [rule("all", Value::Null, values)]});
    Compilation::new(Configuration::parse(&document)?, Arc::new(catalog))
}

#[test]
fn the_number_of_launch_configs_of_a_pool_is_limited() {
    let mut sizes = sizes_around("domain::pool::MAX_LAUNCH_CONFIGS", MAX_LAUNCH_CONFIGS);
    // They are counted after all were made: ten times as many would only take longer.
    sizes.retain(|count| *count <= MAX_LAUNCH_CONFIGS + 1);
    for count in sizes {
        match pool_of(count) {
            Ok(compilation) => {
                assert!(count <= MAX_LAUNCH_CONFIGS, "{count}");
                assert_eq!(compilation.pools[0].launch_configs().count(), count);
            }
            Err(refused) => {
                let expected =
                    format!("give {count} launch configs together; a pool has at most 2000");
                assert!(count > MAX_LAUNCH_CONFIGS, "{count}: {refused}");
                assert!(refused.to_string().contains(&expected), "{refused}");
            }
        }
    }
}
