#![doc = include_str!("../README.md")]

mod image_tree;
mod paths;

pub use image_tree::{
    BuildNode, BuilderNode, CancelNote, Changes, Contender, ImageNode, ImageTree,
    MirroredDefinition, Note, OwnedView, TargetNode, UploadNode,
};
pub use paths::{ImagePaths, Place};
