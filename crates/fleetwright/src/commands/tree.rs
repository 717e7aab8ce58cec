//! Shows, moves and protects nodes.

mod care;
mod place;
mod show;
mod transfer;

use std::path::PathBuf;

use backplane::tree::TreePath;
use clap::Subcommand;

use crate::failure::Failure;
use place::Place;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// List nodes with their version, size and age
    ///
    /// The embedded tree is read from the database: its ephemeral nodes are not shown.
    Ls {
        /// The node whose children to list
        #[arg(value_name = "PATH", default_value = "/")]
        path: TreePath,
        /// List everything below the node
        #[arg(long, short)]
        recursive: bool,
        /// Maximum number of nodes
        #[arg(long, value_name = "N", default_value_t = 1_000)]
        limit: usize,
        #[command(flatten)]
        place: Place,
    },
    /// Print the data of a node
    ///
    /// With --json, prints the version, times and counters of the node, too.
    Get {
        /// The node
        #[arg(value_name = "PATH")]
        path: TreePath,
        #[command(flatten)]
        place: Place,
    },
    /// Print changes of a node and of everything below it, until stopped
    ///
    /// Only in ZooKeeper: the process that owns the embedded tree has no such connection.
    Watch {
        /// The node
        #[arg(value_name = "PATH", default_value = "/")]
        path: TreePath,
        #[command(flatten)]
        place: Place,
    },
    /// Remove a node
    ///
    /// For nodes that carry no valid seal: `fleetwright image show` names them. Images that
    /// builders uploaded stay at their providers.
    Remove {
        /// The node
        #[arg(value_name = "PATH")]
        path: TreePath,
        /// Remove everything below the node, too
        #[arg(long, short)]
        recursive: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Close nodes in ZooKeeper to all users but that of the configuration
    ///
    /// Servers and builders refuse a tree with nodes that others may write to: they were made
    /// before the tree had a user, or by somebody else. Prints the nodes.
    Protect {
        #[command(flatten)]
        place: Place,
    },
    /// Let the database of the configuration have a tree that belongs to another one
    ///
    /// Images of the tree that the database does not know stay unchanged.
    Adopt {
        #[command(flatten)]
        place: Place,
    },
    /// Export all persistent nodes as one JSON document
    ///
    /// The document has the data as text or base64, versions, and counters of sequential nodes. To
    /// export the images of a Nodepool, pass --root /nodepool.
    Export {
        /// Output file (default: standard output)
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        place: Place,
    },
    /// Import a document that `fleetwright tree export` wrote
    ///
    /// Existing nodes with other data are an error, and then nothing is written. Versions begin
    /// again at 0; counters of sequential nodes go on. After a failure, run it again: it goes on.
    ///
    /// The images of a Nodepool are converted: builds get numbers in the order of their times. Its
    /// other nodes are left out. Stop the server first if the tree is embedded.
    Import {
        /// The document; - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Replace the data of existing nodes
        #[arg(long)]
        overwrite: bool,
        /// Only show what would be done
        #[arg(long)]
        dry_run: bool,
        /// Import the tree of a Nodepool unchanged
        #[arg(long)]
        as_is: bool,
        #[command(flatten)]
        place: Place,
    },
}

pub(crate) async fn run(verb: Verb, json: bool) -> Result<(), Failure> {
    match verb {
        Verb::Ls {
            path,
            recursive,
            limit,
            place,
        } => show::list(&place, &path, recursive, limit, json).await,
        Verb::Get { path, place } => show::get(&place, &path, json).await,
        Verb::Watch { path, place } => show::watch(&place, &path, json).await,
        Verb::Remove {
            path,
            recursive,
            place,
        } => care::remove(&place, &path, recursive, json).await,
        Verb::Protect { place } => care::protect(&place, json).await,
        Verb::Adopt { place } => care::adopt(&place).await,
        Verb::Export { output, place } => transfer::export(&place, output.as_deref(), json).await,
        Verb::Import {
            file,
            overwrite,
            dry_run,
            as_is,
            place,
        } => {
            let wishes = transfer::Wishes {
                overwrite,
                dry_run,
                as_is,
            };
            transfer::import(&place, &file, wishes, json).await
        }
    }
}
