//! The configuration in the documentation is a valid one.

use std::path::Path;

use serde_json::Value;

use crate::ProviderConfig;

#[test]
fn the_documented_section_is_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/providers/azure.md")).unwrap();
    let section = page.split("```toml").nth(1).unwrap();
    let section = section.split("```").next().unwrap();
    let mut settings: Value = toml::from_str(section).unwrap();
    let settings = settings["providers"]["azure"].take();
    let config: ProviderConfig = serde_json::from_value(settings).unwrap();
    let ProviderConfig::Azure(config) = config else {
        panic!("it is of kind azure: {config:?}");
    };
    assert_eq!(config.locations, ["westus2", "eastus"]);
    assert_eq!(config.prices["Standard_F8s_v2"], 0.338);
}
