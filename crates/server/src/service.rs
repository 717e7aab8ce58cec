//! The services of the API, as Taskcluster divides them, and ours.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    WorkerManager,
    Queue,
    PurgeCache,
    Auth,
    /// What is ours alone.
    Fleetwright,
}

impl Service {
    pub const ALL: [Self; 5] = [
        Self::Auth,
        Self::Fleetwright,
        Self::PurgeCache,
        Self::Queue,
        Self::WorkerManager,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::WorkerManager => "worker-manager",
            Self::Queue => "queue",
            Self::PurgeCache => "purge-cache",
            Self::Auth => "auth",
            Self::Fleetwright => "fleetwright",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::WorkerManager => "Worker Manager",
            Self::Queue => "Queue",
            Self::PurgeCache => "Purge Cache",
            Self::Auth => "Auth",
            Self::Fleetwright => "Fleetwright",
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Self::WorkerManager => {
                "Worker pools, their launch configs and their workers: how many there are, where \
                 they come from, and who they prove to be."
            }
            Self::Queue => {
                "Tasks: made, kept until their dependencies are done, handed to workers, and \
                 remembered with what became of them."
            }
            Self::PurgeCache => "Which caches workers are to delete.",
            Self::Auth => "Clients and roles: who may sign requests, and what they may do.",
            Self::Fleetwright => {
                "What Fleetwright has beyond Taskcluster: live events, logs, reasons."
            }
        }
    }
}
