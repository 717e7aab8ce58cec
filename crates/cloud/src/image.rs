//! Images: runs their builds, stores their files, and uploads them to providers.

mod artifact_folder;
mod artifact_settings;
mod artifact_store;
mod build;
mod build_log;
mod confinement;
mod diskimage_builder;
mod object_store;
mod output;
mod provenance;
mod redact;
mod supervisor;
mod target;
mod upload_file;
mod upload_options;

pub use artifact_folder::{FolderStore, MAX_ENTRIES as MAX_FOLDER_STORE_ENTRIES};
pub use artifact_settings::{ArtifactStoreSettings, FolderSettings};
pub use artifact_store::{
    ArtifactError, ArtifactKey, ArtifactStore, BadArtifactKey, MAX_KEY_CHARS, StoredArtifact,
};
#[cfg(test)]
pub(crate) use build::SmallDisk;
pub use build::{
    BuildError, BuildOutcome, BuildRun, BuildSecret, BuildSpec, LogSummary, SupervisorProgram,
    end_leftovers,
};
pub use build_log::{LogPiece, MIN_LOG_BYTES, read_complete_log, read_log};
pub use confinement::Confinement;
pub use diskimage_builder::{ElementBuild, element_command};
pub use object_store::{
    BadObjectStore, MAX_PART_BYTES, MAX_PARTS, MIN_PART_BYTES, ObjectStore, ObjectStoreSettings,
};
pub(crate) use output::hex;
pub use output::sha256_of;
pub use output::{
    Checksum, MAX_FOLDER_ENTRIES, OutputError, OutputFile, check_outputs, checksum_of,
};
pub use provenance::{
    BadProvenance, BadReport, BuildFacts, MAX_REPORT_BYTES, ProvenanceKey, TrustedKeys, canonical,
    read_report, statement,
};
pub use supervisor::run_build_part;
pub(crate) use target::check_format;
pub use target::{
    BadUploadToken, ImageError, ImageTarget, ImageUpload, MAX_TOKEN_CHARS, OwnedImage, Retry,
    UploadProblem, UploadProgress, UploadState, UploadToken, UploadedImage,
};
pub(crate) use upload_file::{UploadFile, joined};
pub(crate) use upload_options::{
    KnownOptions, OptionValues, option_problems, refuse_problems, text_option,
};
