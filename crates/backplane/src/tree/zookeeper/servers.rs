//! The addresses of ZooKeeper servers.

/// Servers of one deployment.
const MAX_SERVERS: usize = 50;
/// Longest name of a host.
const MAX_HOST: usize = 253;

/// Checks a list such as `zk1.example.com:2181,[::1]:2181`. The client library panics on some
/// names.
pub fn check_servers(servers: &str) -> Result<(), String> {
    let entries: Vec<&str> = servers.split(',').map(str::trim).collect();
    if entries.len() > MAX_SERVERS {
        return Err(format!("it names more than {MAX_SERVERS} servers"));
    }
    entries.into_iter().try_for_each(check_server)
}

fn check_server(server: &str) -> Result<(), String> {
    let form = || format!("{server:?} is not an address like zk1.example.com:2181");
    let (host, port) = server.rsplit_once(':').ok_or_else(form)?;
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    if !is_port || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(form());
    }
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_valid = match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_host(host),
    };
    if is_valid { Ok(()) } else { Err(form()) }
}

/// Whether this is an address of IPv4 or a name of a host.
fn is_host(host: &str) -> bool {
    let numeric = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if host.bytes().all(numeric) {
        return host.parse::<std::net::Ipv4Addr>().is_ok();
    }
    host.len() <= MAX_HOST && host.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_edge_valid = !label.starts_with('-') && !label.ends_with('-');
    (1..=63).contains(&label.len()) && label.bytes().all(allowed) && is_edge_valid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_servers_are_accepted() {
        for servers in [
            "localhost:2181",
            "127.0.0.1:1",
            "zk-1.example.com:2181, zk_2:65535",
            "[::1]:2181",
        ] {
            assert_eq!(check_servers(servers), Ok(()), "{servers}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_part_that_is_wrong() {
        for (servers, part) in [
            ("", ""),
            ("zk1", "zk1"),
            ("zk1:0", "zk1:0"),
            ("zk1:+1", "zk1:+1"),
            ("zk1:65536", "zk1:65536"),
            ("a:1,,b:2", ""),
            ("tcp://a:1", "tcp://a:1"),
            ("a:1/chroot", "a:1/chroot"),
            ("-a:1", "-a:1"),
            ("a..b:1", "a..b:1"),
            ("256.1.1.1:1", "256.1.1.1:1"),
            ("[::1:1", "[::1:1"),
            (":1", ":1"),
        ] {
            let problem = check_servers(servers).unwrap_err();
            let expected = format!("{part:?} is not an address like zk1.example.com:2181");
            assert_eq!(problem, expected, "{servers}");
        }
    }

    #[test]
    fn the_number_of_servers_is_limited() {
        for n_servers in testing::sizes_around(
            "backplane::tree::zookeeper::servers::MAX_SERVERS",
            MAX_SERVERS,
        ) {
            let servers = vec!["a:1"; n_servers].join(",");
            let is_accepted = (1..=MAX_SERVERS).contains(&n_servers);
            assert_eq!(check_servers(&servers).is_ok(), is_accepted, "{n_servers}");
        }
    }
}
