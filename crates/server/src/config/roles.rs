//! The roles of a process: all roles by default.

use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Answers requests of the API; health and metrics are available in every process.
    Api,
    /// Decides which pools need workers, and launches them.
    Provisioner,
    /// Scans machines, and ends those of stopping workers.
    Scanner,
    /// Publishes events to the broker, and sends notices of errors.
    Publisher,
    /// Enforces the queue's deadlines, and deletes expired data.
    Housekeeper,
    /// Builds and uploads images.
    Builder,
}

/// The roles of a process.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Roles(Vec<Role>);

impl Role {
    pub const ALL: [Self; 6] = [
        Self::Api,
        Self::Provisioner,
        Self::Scanner,
        Self::Publisher,
        Self::Housekeeper,
        Self::Builder,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Provisioner => "provisioner",
            Self::Scanner => "scanner",
            Self::Publisher => "publisher",
            Self::Housekeeper => "housekeeper",
            Self::Builder => "builder",
        }
    }
}

impl Default for Roles {
    fn default() -> Self {
        Self(Role::ALL.to_vec())
    }
}

impl Roles {
    pub fn include(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    /// As in the configuration.
    pub fn names(&self) -> Vec<String> {
        let names = self.0.iter().map(|role| role.name().to_owned());
        names.collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Some {
        #[serde(default)]
        roles: Roles,
    }

    #[test]
    fn a_process_has_all_roles_unless_some_are_named() {
        let parse = |text: &str| toml::from_str::<Some>(text).map(|some| some.roles);
        let all = parse("").unwrap();
        assert!(Role::ALL.into_iter().all(|role| all.include(role)));
        let scanner = parse("roles = [\"scanner\"]").unwrap();
        assert!(scanner.include(Role::Scanner) && !scanner.include(Role::Api));
        assert!(parse("roles = []").unwrap().is_empty());
        assert!(parse("roles = [\"painter\"]").is_err());
    }
}
