#![doc = include_str!("../README.md")]

mod builder;
mod ended_work;
mod image_tree;
mod live_builds;
mod logs;
mod mirror;
mod ownership;
mod paths;
mod requests;
mod status;

pub use builder::{
    Builder, BuilderError, BuilderParts, BuilderSettings, Commands, RunningCommand, SecretFile,
    SecretsReader, Targets, folder_store_name,
};
pub use ended_work::{EndedJob, EndedWork};
pub use image_tree::{
    BuildNode, BuilderNode, CancelNote, Changes, Contender, ImageNode, ImageTree,
    MirroredDefinition, Note, OwnedView, TargetNode, UploadNode,
};
pub use live_builds::{LiveBuild, LiveBuilds};
pub use logs::{LogError, LogPage, LogQuery, read_build_log};
pub use mirror::{Mirrored, StoredDefinition};
pub use ownership::{TreeOwnership, adopt_tree, claim_tree};
pub use paths::{ImagePaths, Place};
pub use requests::{Asker, RequestError, RequestedBuild};
pub use status::{ImageAge, status_before_mirror};
