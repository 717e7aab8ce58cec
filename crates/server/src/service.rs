//! The services of the API: Taskcluster's and Fleetwright's own.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    WorkerManager,
    Queue,
    PurgeCache,
    Secrets,
    Auth,
    /// Endpoints that Taskcluster does not have.
    Fleetwright,
}

impl Service {
    pub const ALL: [Self; 6] = [
        Self::Auth,
        Self::Fleetwright,
        Self::PurgeCache,
        Self::Queue,
        Self::Secrets,
        Self::WorkerManager,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::WorkerManager => "worker-manager",
            Self::Queue => "queue",
            Self::PurgeCache => "purge-cache",
            Self::Secrets => "secrets",
            Self::Auth => "auth",
            Self::Fleetwright => "fleetwright",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::WorkerManager => "Worker Manager",
            Self::Queue => "Queue",
            Self::PurgeCache => "Purge Cache",
            Self::Secrets => "Secrets",
            Self::Auth => "Auth",
            Self::Fleetwright => "Fleetwright",
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Self::WorkerManager => {
                "Worker pools, their launch configs and their workers: counts, origins and \
                 identities."
            }
            Self::Queue => {
                "Tasks: created, held until their dependencies are resolved, given to workers, \
                 and kept with their results."
            }
            Self::PurgeCache => "The caches that workers must delete.",
            Self::Secrets => "Values that workers and people fetch by name.",
            Self::Auth => "Clients, roles and scopes: authentication and authorisation.",
            Self::Fleetwright => {
                "Live events, logs and explanations, which Taskcluster does not have."
            }
        }
    }
}
