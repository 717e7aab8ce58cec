//! Pool configs that only an outside provider can validate.

use cloud::{ExecSettings, ProviderConfig};
use serde_json::json;
use server::config::Config;

use crate::database::on_sqlite_first;
use crate::samples::pool;

/// The program refuses a huge size, and fails for an unknown one.
const PROGRAM: &str = r#"
question=$(cat)
case "$1 $question" in
  validate*huge*) echo '{"problems": [{"pointer": "/launchConfigs/0/size", "message": "must be small"}]}' ;;
  validate*strange*) exit 7 ;;
  validate*) echo '{"config": {"minCapacity": 0, "maxCapacity": 1,
    "launchConfigs": [{"workerConfig": {}, "size": "small"}]}}' ;;
  *) echo '{}' ;;
esac"#;

fn with_program(config: &mut Config) {
    let settings = ExecSettings {
        command: ["/bin/sh", "-c", PROGRAM, "program"]
            .map(str::to_owned)
            .to_vec(),
        time_limit_seconds: 20,
        region: None,
        env: Default::default(),
    };
    let shell = ("shell".parse().unwrap(), ProviderConfig::Exec(settings));
    config.providers.0.push(shell);
}

fn body(size: &serde_json::Value) -> serde_json::Value {
    let launch_config = json!({"workerConfig": {}, "size": size});
    let config = json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [launch_config]});
    pool("shell", config)
}

on_sqlite_first!(
    a_config_is_completed_refused_or_put_off_by_the_other_side,
    |config| { super::with_program(config) },
    |world| {
        let path = "/worker-pool/pp%2Fee";
        let made = world.put(path, body(&json!(null))).await.expect(200);
        assert_eq!(made["config"]["launchConfigs"][0]["size"], "small");

        let refused = world.post(path, body(&json!("huge"))).await.expect(400);
        assert_eq!(refused["code"], "InputValidationError");
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.contains("data/launchConfigs/0/size must be small"),
            "{message}"
        );
        assert!(
            message.contains("/schemas/fleetwright/v1/config-exec.json#"),
            "{message}"
        );

        let put_off = world.post(path, body(&json!("strange"))).await.expect(503);
        assert_eq!(put_off["code"], "ProviderSetupFailed");
        let message = put_off["message"].as_str().unwrap();
        let text = "The provider shell cannot check the pool now: ";
        assert!(message.starts_with(text), "{message}");
        assert!(message.contains("validate: exit code 7"), "{message}");
        let told = world.log.lines("provider shell cannot check a config");
        assert!(told[0].contains("validate: exit code 7"), "{told:?}");
        let kept = world.get(path).await.expect(200);
        assert_eq!(kept["config"]["launchConfigs"][0]["size"], "small");
    }
);
