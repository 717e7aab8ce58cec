//! The images of a Nodepool, as nodes of our own layout.
//!
//! Nodepool keeps them below `/nodepool/images`. Ours are below `/fleetwright/image`, builds have
//! numbers, and uploads are below `provider`.

use std::collections::BTreeMap;

use super::export::ExportedNode;
use super::node::sequence_of;
use super::path::BadTreePath;

/// The nodes to import, and which parts of the document are not images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodepoolImport {
    pub nodes: Vec<ExportedNode>,
    /// Numbers of left out nodes by the first part of their paths, such as `nodes`.
    pub left_out: BTreeMap<String, usize>,
}

/// Number of a build with a UUID, by image and id.
type BuildNumbers = BTreeMap<(String, String), String>;

/// Converts the tree of a Nodepool; `None` if the nodes are no such tree.
pub fn convert_nodepool(nodes: &[ExportedNode]) -> Result<Option<NodepoolImport>, BadTreePath> {
    let Some(parts) = nodepool_parts(nodes) else {
        return Ok(None);
    };
    let numbers = number_builds(&parts);
    let mut import = NodepoolImport {
        nodes: Vec::new(),
        left_out: BTreeMap::new(),
    };
    for (parts, node) in parts {
        let Some(path) = image_path(&parts, &numbers) else {
            if let Some(first) = parts.first() {
                *import.left_out.entry((*first).to_owned()).or_default() += 1;
            }
            continue;
        };
        let path = path.parse()?;
        // Our builds and uploads have names of their own, so Nodepool's counters hold for them.
        import.nodes.push(ExportedNode {
            path,
            ..node.clone()
        });
    }
    raise_counters(&mut import.nodes);
    add_lock_directories(&mut import.nodes)?;
    import.nodes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Some(import))
}

/// The parts of each path below `/nodepool`; `None` if the nodes have no such images.
fn nodepool_parts(nodes: &[ExportedNode]) -> Option<Vec<(Vec<&str>, &ExportedNode)>> {
    let has = |prefix: &str| nodes.iter().any(|node| node.path.as_str() == prefix);
    let prefix = if has("/nodepool/images") {
        "/nodepool"
    } else if has("/images") && !has("/fleetwright") {
        ""
    } else {
        return None;
    };
    let below = nodes.iter().filter_map(|node| {
        let path = node.path.as_str().strip_prefix(prefix)?.strip_prefix('/')?;
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        (!parts.is_empty()).then_some((parts, node))
    });
    Some(below.collect())
}

/// Numbers for the builds that are named by UUIDs: by time, after those with numbers.
fn number_builds(parts: &[(Vec<&str>, &ExportedNode)]) -> BuildNumbers {
    let mut builds: BTreeMap<&str, Vec<(i64, &str)>> = BTreeMap::new();
    let mut highest: BTreeMap<&str, u32> = BTreeMap::new();
    for (parts, node) in parts {
        let ["images", image, "builds", id] = parts[..] else {
            continue;
        };
        if id == "lock" {
            continue;
        }
        match sequence_of(id).filter(|_| id.len() == 10) {
            Some(number) => {
                let highest = highest.entry(image).or_default();
                *highest = number.max(*highest);
            }
            None => builds
                .entry(image)
                .or_default()
                .push((state_time(node), id)),
        }
    }
    let mut numbers = BuildNumbers::new();
    for (image, mut of_image) in builds {
        of_image.sort_unstable();
        let first = highest.get(image).map_or(1, |highest| highest + 1);
        for (number, (_, id)) in (first..).zip(of_image) {
            numbers.insert((image.to_owned(), id.to_owned()), format!("{number:010}"));
        }
    }
    numbers
}

/// When the record changed its state, in milliseconds; the node's creation if it does not say.
fn state_time(node: &ExportedNode) -> i64 {
    let record: Option<serde_json::Value> = node
        .text
        .as_ref()
        .and_then(|text| serde_json::from_str(text).ok());
    let seconds = record.and_then(|record| record.get("state_time")?.as_f64());
    let millis = seconds.map(|seconds| (seconds * 1_000.0).round());
    let valid = millis.filter(|millis| (0.0..1e15).contains(millis));
    // A number of this size fits.
    #[expect(clippy::cast_possible_truncation, reason = "checked one line above")]
    valid.map_or_else(|| node.created.as_millis(), |millis| millis as i64)
}

/// Our path of a node; `None` for what is no image, or belongs to a lock.
fn image_path(parts: &[&str], numbers: &BuildNumbers) -> Option<String> {
    let ["images", rest @ ..] = parts else {
        return None;
    };
    if rest.contains(&"lock") {
        return None;
    }
    let number = |image: &str, id: &str| {
        let key = (image.to_owned(), id.to_owned());
        numbers.get(&key).cloned().unwrap_or_else(|| id.to_owned())
    };
    let path = match rest {
        [] => String::new(),
        [image] => format!("/{image}"),
        [image, flag @ ("pause" | "request-build" | "builds")] => format!("/{image}/{flag}"),
        [image, "builds", id] => format!("/{image}/builds/{}", number(image, id)),
        [image, "builds", id, "providers", below @ ..] => {
            let mut path = format!("/{image}/builds/{}/provider", number(image, id));
            for part in below {
                path.push('/');
                path.push_str(part);
            }
            path
        }
        _ => return None,
    };
    Some(format!("/fleetwright/image{path}"))
}

/// The next build has a higher number than all imported ones.
fn raise_counters(nodes: &mut [ExportedNode]) {
    let mut highest: BTreeMap<String, u32> = BTreeMap::new();
    for node in nodes.iter() {
        let number = sequence_of(node.path.name());
        if let (Some(number), Some(parent)) = (number, node.path.parent()) {
            let highest = highest.entry(parent.to_string()).or_default();
            *highest = number.max(*highest);
        }
    }
    for node in nodes {
        if let Some(highest) = highest.get(node.path.as_str()) {
            node.next_sequence = node.next_sequence.max(highest.saturating_add(1));
        }
    }
}

/// Builds and uploads of ours are locked in directories that exist from the beginning.
fn add_lock_directories(nodes: &mut Vec<ExportedNode>) -> Result<(), BadTreePath> {
    let mut directories = Vec::new();
    for node in nodes.iter() {
        let parts: Vec<&str> = node.path.as_str().split('/').skip(3).collect();
        let is_locked = matches!(
            parts[..],
            [_, "builds"] | [_, "builds", _, "provider", _, "images"]
        );
        if is_locked {
            directories.push(ExportedNode {
                path: node.path.join("lock")?,
                text: Some(String::new()),
                base64: None,
                version: 0,
                next_sequence: 0,
                ..node.clone()
            });
        }
    }
    nodes.extend(directories);
    Ok(())
}

#[cfg(test)]
mod tests {
    use domain::time::Timestamp;

    use super::*;

    fn node(path: &str, text: &str) -> ExportedNode {
        ExportedNode {
            path: path.parse().unwrap(),
            text: Some(text.to_owned()),
            base64: None,
            version: 2,
            created: Timestamp::from_millis(1_000),
            changed: Timestamp::from_millis(2_000),
            next_sequence: 1,
        }
    }

    fn convert(paths: &[(&str, &str)]) -> NodepoolImport {
        let nodes: Vec<_> = paths.iter().map(|(path, text)| node(path, text)).collect();
        convert_nodepool(&nodes).unwrap().unwrap()
    }

    fn paths(import: &NodepoolImport) -> Vec<&str> {
        import.nodes.iter().map(|node| node.path.as_str()).collect()
    }

    #[test]
    fn images_builds_and_uploads_get_our_paths_and_builds_numbers_by_time() {
        let import = convert(&[
            ("/images", ""),
            ("/images/debian", ""),
            ("/images/debian/pause", ""),
            ("/images/debian/builds", ""),
            ("/images/debian/builds/lock", ""),
            (
                "/images/debian/builds/0000000007",
                r#"{"state":"ready","state_time":1.5}"#,
            ),
            (
                "/images/debian/builds/bb",
                r#"{"state":"ready","state_time":20.5}"#,
            ),
            (
                "/images/debian/builds/aa",
                r#"{"state":"ready","state_time":30.5}"#,
            ),
            ("/images/debian/builds/aa/lock", ""),
            ("/images/debian/builds/aa/providers", ""),
            ("/images/debian/builds/aa/providers/aws/images", ""),
            (
                "/images/debian/builds/aa/providers/aws/images/0000000001",
                "{}",
            ),
            ("/images/debian/builds/aa/providers/aws/images/lock", ""),
            ("/nodes/0000000001", "{}"),
            ("/nodes/0000000002", "{}"),
        ]);
        assert_eq!(
            paths(&import),
            [
                "/fleetwright/image",
                "/fleetwright/image/debian",
                "/fleetwright/image/debian/builds",
                "/fleetwright/image/debian/builds/0000000007",
                "/fleetwright/image/debian/builds/0000000008",
                "/fleetwright/image/debian/builds/0000000009",
                "/fleetwright/image/debian/builds/0000000009/provider",
                "/fleetwright/image/debian/builds/0000000009/provider/aws/images",
                "/fleetwright/image/debian/builds/0000000009/provider/aws/images/0000000001",
                "/fleetwright/image/debian/builds/0000000009/provider/aws/images/lock",
                "/fleetwright/image/debian/builds/lock",
                "/fleetwright/image/debian/pause",
            ]
        );
        let left_out = [("images".to_owned(), 3), ("nodes".to_owned(), 2)];
        assert_eq!(import.left_out, left_out.into());
    }

    #[test]
    fn an_export_from_the_root_converts_to_the_same_nodes() {
        let below = convert(&[("/images", ""), ("/images/a/builds/x", "{}")]);
        let from_root = convert(&[
            ("/", ""),
            ("/nodepool", ""),
            ("/nodepool/images", ""),
            ("/nodepool/images/a/builds/x", "{}"),
        ]);
        assert_eq!(paths(&below), paths(&from_root));
        assert_eq!(paths(&below)[1], "/fleetwright/image/a/builds/0000000001");
    }

    #[test]
    fn a_record_that_is_no_json_counts_from_its_creation() {
        let import = convert(&[
            ("/images", ""),
            ("/images/a/builds/x", "no json"),
            ("/images/a/builds/y", r#"{"state_time":0.5}"#),
            ("/images/a/builds/z", r#"{"state_time":-5e300}"#),
        ]);
        let ids = |text: &str| {
            let found = import
                .nodes
                .iter()
                .find(|node| node.text.as_deref() == Some(text));
            found.unwrap().path.name().to_owned()
        };
        assert_eq!(ids(r#"{"state_time":0.5}"#), "0000000001");
        assert_eq!(ids("no json"), "0000000002");
        assert_eq!(ids(r#"{"state_time":-5e300}"#), "0000000003");
    }

    #[test]
    fn other_trees_are_not_converted() {
        for path in ["/", "/fleetwright", "/a/images", "/nodepool"] {
            assert_eq!(convert_nodepool(&[node(path, "")]), Ok(None), "{path}");
        }
        let ours = [node("/fleetwright", ""), node("/images", "")];
        assert_eq!(convert_nodepool(&ours), Ok(None));
        assert_eq!(convert_nodepool(&[]), Ok(None));
    }
}
