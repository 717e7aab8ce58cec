//! Images: runs their builds, stores their files, and uploads them to providers.

mod build;
mod build_log;
mod diskimage_builder;
mod output;
mod redact;
mod supervisor;

pub use build::{
    BuildError, BuildOutcome, BuildRun, BuildSecret, BuildSpec, LogSummary, SupervisorProgram,
    end_leftovers,
};
pub use build_log::{LogPiece, MIN_LOG_BYTES, read_log};
pub use diskimage_builder::{ElementBuild, element_command};
pub use output::{
    Checksum, MAX_FOLDER_ENTRIES, OutputError, OutputFile, check_outputs, checksum_of,
};
pub use supervisor::run_build_part;
