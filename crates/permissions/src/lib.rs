//! Which users of this machine may use files.
#![doc = include_str!("../README.md")]

mod account;
mod exposure;
mod private_folder;

pub use account::{Account, UnknownAccount};
pub use exposure::{Exposure, exposure_of};
pub use private_folder::{
    close, create_private, make_for_group, make_passable, make_private, remove,
};
