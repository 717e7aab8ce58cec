#![doc = include_str!("../README.md")]

mod builder;
mod image_tree;
mod live_builds;
mod paths;

pub use builder::{
    Builder, BuilderError, BuilderParts, BuilderSettings, SecretFile, Targets, folder_store_name,
};
pub use image_tree::{
    BuildNode, BuilderNode, CancelNote, Changes, Contender, ImageNode, ImageTree,
    MirroredDefinition, Note, OwnedView, TargetNode, UploadNode,
};
pub use live_builds::{LiveBuild, LiveBuilds};
pub use paths::{ImagePaths, Place};
