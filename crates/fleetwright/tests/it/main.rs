//! Tests of the built program.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what is wrong by failing there"
)]

mod away;
mod builders;
mod client;
mod code;
mod code_images;
mod code_plan;
mod code_plan_size;
mod command_blocks;
mod configuration;
mod costs;
mod demo;
mod documentation;
mod documented_commands;
mod documented_operations;
mod documented_sessions;
mod documented_waits;
mod evaluation;
mod event;
mod failing_program;
mod first_image;
mod image_builds;
mod image_requests;
mod image_secrets;
mod images;
mod import;
mod import_nodepool;
mod import_rule_files;
mod import_rules;
mod launch_configs;
mod messages;
mod network;
mod offline;
mod operator;
mod other_workers;
mod overrides;
mod provider_test;
mod queue_calls;
mod real_image;
mod relay_world;
mod relays;
mod relays_with_certificates;
mod selected_workers;
mod sent_tasks;
mod serve;
mod sessions;
mod shadow;
mod simulate;
mod simulate_recorded;
mod task;
mod task_runs;
mod tree;
mod up;
mod worker_log;
mod worker_runs;
mod world;
