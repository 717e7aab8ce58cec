//! The limit of open files of this process, and the number of connections that it allows.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files other than client connections: databases, brokers, clouds and artifacts. Half of a small
/// limit.
const SPARE: u64 = 1_000;

/// Raises the limit of open files for this many connections; many systems begin with 1,024. Returns
/// the number of possible connections. The limit is raised no further, because child processes
/// inherit it.
pub(crate) fn make_room(max_connections: usize) -> usize {
    let resource = Resource::RLIMIT_NOFILE;
    let Ok((soft, hard)) = getrlimit(resource) else {
        return max_connections;
    };
    let wanted = u64::try_from(max_connections).map_or(hard, |wanted| wanted.saturating_add(SPARE));
    let limit = wanted.min(hard).max(soft);
    let is_set = limit > soft && setrlimit(resource, limit, hard).is_ok();
    let limit = if is_set { limit } else { soft };
    let room = connections_within(limit, max_connections);
    let problem = format!(
        "at most {room} connections at a time, not `server.max_connections` = {max_connections}: \
         this process may have {limit} open files. Raise that limit (`ulimit -n`, LimitNOFILE=) \
         to {wanted}"
    );
    // A slightly lower limit is fine: the default was not chosen for this machine.
    if room < max_connections / 2 {
        tracing::warn!("{problem}");
    } else if room < max_connections {
        tracing::debug!("{problem}");
    }
    room
}

fn connections_within(open_files: u64, wanted: usize) -> usize {
    let room = open_files - SPARE.min(open_files / 2);
    usize::try_from(room).map_or(wanted, |room| room.min(wanted))
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn connections_leave_room_for_other_files() {
        let spare = usize::try_from(SPARE).unwrap();
        for others in sizes_around("server::open_files::SPARE", spare) {
            for wanted in [1, 500, 20_000] {
                let limit = 2 * others.min(spare) + others.saturating_sub(spare);
                let room = connections_within(limit as u64, wanted);
                assert_eq!(room, wanted.min(others), "{limit} files");
            }
        }
        assert_eq!(connections_within(u64::MAX, 20_000), 20_000);
    }
}
