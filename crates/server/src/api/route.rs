//! Finds the endpoint of a method and a path, and extracts the path's parameters.
//!
//! Paths are matched as sent, segment by segment, so `%2F` is not a slash. Values are decoded
//! afterwards. The order of declaration decides between overlapping routes.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::endpoint::{Endpoint, Service, Verb};
use super::endpoints;

/// No served path has more segments; longer paths are not matched.
const MAX_SEGMENTS: usize = 32;

/// One parsed route of the table.
struct Route {
    endpoint: &'static Endpoint,
    /// The endpoint's name, or that of the alias.
    name: &'static str,
    segments: Vec<Segment>,
}

pub(super) enum Segment {
    Literal(&'static str),
    /// One segment; `suffix` follows the parameter in it (a colon, in the aliases).
    Parameter {
        name: &'static str,
        suffix: &'static str,
    },
    /// Any number of segments, including none.
    Wildcard(&'static str),
}

pub struct Router {
    routes: Vec<Route>,
}

/// The endpoint of a request, and the values of its parameters in the route's order.
pub struct RouteMatch {
    pub endpoint: &'static Endpoint,
    pub name: &'static str,
    pub parameters: Parameters,
}

/// The values of a route's parameters, in its order.
pub type Parameters = Vec<(&'static str, String)>;

/// A percent-encoding in the path that does not decode to text.
#[derive(Debug, PartialEq, Eq)]
pub struct BadEncoding;

impl Router {
    pub fn new(services: &[Service]) -> Self {
        let is_served = |endpoint: &&Endpoint| services.contains(&endpoint.service);
        Self::of(endpoints().iter().filter(is_served))
    }

    pub(super) fn of(endpoints: impl IntoIterator<Item = &'static Endpoint>) -> Self {
        let mut routes = Vec::new();
        for endpoint in endpoints {
            // An alias is tried first because it is more specific.
            if let Some(alias) = endpoint.alias {
                let segments = take_apart(alias.route, None);
                routes.push(Route {
                    endpoint,
                    name: alias.name,
                    segments,
                });
            }
            let segments = take_apart(endpoint.route, endpoint.wildcard);
            routes.push(Route {
                endpoint,
                name: endpoint.name,
                segments,
            });
        }
        // Aliases precede every plain route of all endpoints.
        routes.sort_by_key(|route| route.name == route.endpoint.name);
        Self { routes }
    }

    /// `path` is the part after `/api/<service>/v1`.
    pub fn find(
        &self,
        service: Service,
        verb: Verb,
        path: &str,
    ) -> Result<Option<RouteMatch>, BadEncoding> {
        let Some(segments) = segments(path) else {
            return Ok(None);
        };
        for route in &self.routes {
            let endpoint = route.endpoint;
            if endpoint.service != service || endpoint.method != verb {
                continue;
            }
            if let Some(parameters) = parameters(&route.segments, &segments)? {
                return Ok(Some(RouteMatch {
                    endpoint,
                    name: route.name,
                    parameters,
                }));
            }
        }
        Ok(None)
    }

    /// The verbs that the routes at this path accept, for OPTIONS.
    pub fn verbs(&self, service: Service, path: &str) -> Vec<Verb> {
        [Verb::Get, Verb::Put, Verb::Post, Verb::Delete]
            .into_iter()
            .filter(|verb| !matches!(self.find(service, *verb, path), Ok(None)))
            .collect()
    }
}

/// The segments of a path, unless it has more than any route.
pub(super) fn segments(path: &str) -> Option<Vec<&str>> {
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    (segments.len() <= MAX_SEGMENTS).then_some(segments)
}

/// The values of the parameters; `None`: the path is not one of this route.
pub(super) fn parameters(
    route: &[Segment],
    path: &[&str],
) -> Result<Option<Parameters>, BadEncoding> {
    let mut values = Vec::new();
    if !match_segments(route, path, &mut values) {
        return Ok(None);
    }
    let decoded = values
        .into_iter()
        .map(|(name, raw)| Ok((name, decode(&raw)?)));
    Ok(Some(decoded.collect::<Result<_, BadEncoding>>()?))
}

pub(super) fn take_apart(route: &'static str, wildcard: Option<&'static str>) -> Vec<Segment> {
    route
        .trim_start_matches('/')
        .trim_end_matches('/')
        .split('/')
        .map(|segment| {
            match segment
                .strip_prefix('<')
                .and_then(|rest| rest.split_once('>'))
            {
                None => Segment::Literal(segment),
                Some((name, _)) if Some(name) == wildcard => Segment::Wildcard(name),
                Some((name, suffix)) => Segment::Parameter { name, suffix },
            }
        })
        .collect()
}

type Values<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// Matches the rest of a route with the rest of a path. A trailing slash is accepted, except after
/// a wildcard, which includes it.
fn match_segments<'a>(route: &[Segment], path: &[&'a str], values: &mut Values<'a>) -> bool {
    let Some((first, rest)) = route.split_first() else {
        return path.is_empty() || path == [""];
    };
    match first {
        Segment::Literal(literal) => match path.split_first() {
            Some((segment, others)) if segment == literal => match_segments(rest, others, values),
            _ => false,
        },
        Segment::Parameter { name, suffix } => {
            let Some((segment, others)) = path.split_first() else {
                return false;
            };
            let Some(value) = segment
                .strip_suffix(suffix)
                .filter(|value| !value.is_empty())
            else {
                return false;
            };
            values.push((name, Cow::Borrowed(value)));
            match_segments(rest, others, values) || {
                values.pop();
                false
            }
        }
        Segment::Wildcard(name) => (0..=path.len()).rev().any(|taken| {
            if taken == 0 {
                return false; // `/worker-pool` without a slash is another path
            }
            values.push((name, Cow::Owned(path[..taken].join("/"))));
            match_segments(rest, &path[taken..], values) || {
                values.pop();
                false
            }
        }),
    }
}

fn decode(raw: &str) -> Result<String, BadEncoding> {
    percent_decode_str(raw)
        .decode_utf8()
        .map(Cow::into_owned)
        .map_err(|_| BadEncoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(verb: Verb, path: &str) -> String {
        let router = Router::new(&Service::ALL);
        match router.find(Service::WorkerManager, verb, path) {
            Err(BadEncoding) => "bad encoding".to_owned(),
            Ok(None) => "not found".to_owned(),
            Ok(Some(found)) => {
                let values: Vec<_> = found
                    .parameters
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                format!("{} {}", found.name, values.join(" "))
                    .trim_end()
                    .to_owned()
            }
        }
    }

    #[test]
    fn routes_are_found_as_the_contract_describes() {
        for (path, expected) in [
            ("/providers", "listProviders"),
            ("/providers/", "listProviders"),
            ("/worker-pool/a%2Fb", "workerPool workerPoolId=a/b"),
            ("/worker-pool/a/b", "workerPool workerPoolId=a/b"),
            ("/worker-pool/a/b/", "workerPool workerPoolId=a/b/"),
            ("/worker-pool/", "workerPool workerPoolId="),
            ("/worker-pool", "not found"),
            ("/worker-pool/a/b/stats", "workerPoolStats workerPoolId=a/b"),
            (
                "/worker-pool/a%2Fb/stats",
                "workerPoolStats workerPoolId=a/b",
            ),
            (
                "/worker-pool/a%2Fb/launch-configs",
                "listWorkerPoolLaunchConfigs workerPoolId=a/b",
            ),
            (
                "/worker-pool/a/b/launch-configs",
                "workerPool workerPoolId=a/b/launch-configs",
            ),
            ("/worker-pools/stats", "listWorkerPoolsStats"),
            ("/worker-pool-errors/stats", "workerPoolErrorStats"),
            (
                "/worker-pool-errors/a/b",
                "listWorkerPoolErrors workerPoolId=a/b",
            ),
            (
                "/workers/a%2Fb",
                "listWorkersForWorkerPool workerPoolId=a/b",
            ),
            (
                "/workers/a/b",
                "listWorkersForWorkerGroup workerPoolId=a workerGroup=b",
            ),
            (
                "/workers/a%2Fb:/g",
                "listWorkersForWorkerGroupWithColon workerPoolId=a/b workerGroup=g",
            ),
            (
                "/workers/a%2Fb/g",
                "listWorkersForWorkerGroup workerPoolId=a/b workerGroup=g",
            ),
            (
                "/workers/a%2Fb/g/w",
                "worker workerPoolId=a/b workerGroup=g workerId=w",
            ),
            (
                "/workers/a%2Fb:/g/w",
                "workerWithColon workerPoolId=a/b workerGroup=g workerId=w",
            ),
            ("/Providers", "not found"),
            ("/worker-pool/%ff", "bad encoding"),
            ("/", "not found"),
            ("", "not found"),
        ] {
            assert_eq!(find(Verb::Get, path), expected, "{path}");
        }
    }

    #[test]
    fn the_colon_alias_is_not_for_removal() {
        let removal = find(Verb::Delete, "/workers/a%2Fb:/g/w");
        assert_eq!(
            removal,
            "removeWorker workerPoolId=a/b: workerGroup=g workerId=w"
        );
    }

    #[test]
    fn a_path_of_too_many_segments_is_not_matched() {
        for count in testing::sizes_around("server::api::route::MAX_SEGMENTS", MAX_SEGMENTS) {
            let mut segments = vec!["worker-pool"; count.min(1)];
            segments.extend(vec!["x"; count.saturating_sub(1)]);
            let expected = match count {
                2..=MAX_SEGMENTS => format!("workerPool workerPoolId={}", segments[1..].join("/")),
                _ => "not found".to_owned(),
            };
            let path = format!("/{}", segments.join("/"));
            assert_eq!(find(Verb::Get, &path), expected);
        }
        assert_eq!(find(Verb::Get, &"/x".repeat(10_000)), "not found");
    }
}
