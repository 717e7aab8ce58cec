//! The numbers of builds, and of uploads.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// Digits of a number in a path of the tree, as ZooKeeper writes sequence numbers.
const PATH_DIGITS_LENGTH: usize = 10;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The name of its node in the tree, like `0000000212`.
            pub fn node_name(self) -> String {
                format!("{:0width$}", self.0, width = PATH_DIGITS_LENGTH)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            /// Reads the name of a node, and a number as people write it.
            fn from_str(text: &str) -> Result<Self, ParseIntError> {
                text.parse().map(Self)
            }
        }
    )+};
}

numbers! {
    /// A build of an image. A higher number is a newer build.
    BuildNumber;
    /// An upload of a build to a target. A higher number is a newer upload.
    UploadNumber;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_nodes_are_read_back() {
        for number in [0, 1, 212, 9_999_999_999, u64::MAX] {
            let name = BuildNumber(number).node_name();
            assert!(name.len() >= PATH_DIGITS_LENGTH, "{name}");
            assert_eq!(name.parse(), Ok(BuildNumber(number)));
        }
        assert_eq!(UploadNumber(7).node_name(), "0000000007");
        assert_eq!(UploadNumber(7).to_string(), "7");
        for other in ["", "lock", "-1", "9f8b7a6c5d4e3f2a1b0c9d8e7f6a5b4c"] {
            assert!(other.parse::<BuildNumber>().is_err(), "{other}");
        }
    }
}
