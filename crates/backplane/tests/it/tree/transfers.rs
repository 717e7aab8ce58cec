//! Exports and imports.

use std::sync::Arc;

use backplane::tree::{
    ExportedNode, ImportError, ImportOptions, ImportSummary, Lifetime, Tree, TreeExport, TreePath,
    import, walk,
};
use domain::time::Timestamp;

use super::on_both;
use super::twin::{Twin, path};

on_both! {
    an_export_read_into_an_empty_tree_makes_the_same_tree
    an_import_overwrites_only_if_asked_and_otherwise_writes_nothing
    an_interrupted_import_goes_on
    a_node_without_its_parents_is_imported
    an_import_into_the_place_of_an_ephemeral_node_is_refused
    an_import_of_any_size_writes_all_nodes_and_counters
    a_counter_that_is_far_behind_is_left_alone
}

async fn export(tree: &Arc<dyn Tree>) -> TreeExport {
    let now = Timestamp::from_millis(1_790_000_000_000);
    let exported = TreeExport::read(tree, &TreePath::root(), now).await;
    let (export, forged) = exported.unwrap();
    assert_eq!(forged, []);
    export
}

/// A tree with text, bytes, an ephemeral node and a used counter.
async fn fill(tree: &Arc<dyn Tree>) {
    for (node, data) in [
        ("/a", b"text".as_slice()),
        ("/a/b", b""),
        ("/a/b/bytes", b"\xff\x00\xfe"),
        ("/c", "ä".as_bytes()),
    ] {
        tree.create(&path(node), data, Lifetime::Persistent)
            .await
            .unwrap();
    }
    let counted = path("/c");
    for _ in 0..450 {
        let created = tree.create_sequential(&counted, "", b"", Lifetime::Persistent);
        let (created, _) = created.await.unwrap();
        tree.delete(&created, None).await.unwrap();
    }
    tree.set(&path("/a/b"), b"changed", None).await.unwrap();
    tree.create(&path("/a/ephemeral"), b"", Lifetime::Ephemeral)
        .await
        .unwrap();
}

async fn contents(tree: &Arc<dyn Tree>) -> Vec<(String, Vec<u8>, u32)> {
    let nodes = walk(tree, &TreePath::root(), 1_000).await.unwrap();
    let persistent = nodes
        .into_iter()
        .filter(|(_, node)| node.stat.lifetime() == Lifetime::Persistent);
    persistent
        .map(|(path, node)| (path.to_string(), node.data, node.stat.next_sequence))
        .collect()
}

async fn an_export_read_into_an_empty_tree_makes_the_same_tree(twin: &Twin) {
    let source = Twin::embedded().await.session().await.tree;
    fill(&source).await;
    let written = serde_json::to_vec(&export(&source).await).unwrap();
    let read = TreeExport::parse(&written).unwrap();
    assert_eq!((read.n_ephemeral, read.nodes.len()), (1, 5));
    let version = |path: &str| {
        let mut nodes = read.nodes.iter();
        nodes
            .find(|node| node.path.as_str() == path)
            .unwrap()
            .version
    };
    assert_eq!((version("/a/b"), version("/a")), (1, 0));
    let target = twin.session().await.tree;
    let options = ImportOptions {
        is_dry: true,
        ..ImportOptions::default()
    };
    let planned = import(&target, &read.nodes, options).await.unwrap();
    assert_eq!(target.children(&TreePath::root()).await.unwrap(), [""; 0]);
    let done = import(&target, &read.nodes, ImportOptions::default())
        .await
        .unwrap();
    assert_eq!((done.n_created, done.n_unchanged), (4, 1));
    assert_eq!((planned.n_created, planned.n_unchanged), (4, 1));
    let mut expected = contents(&source).await;
    // The ephemeral node counts as a child that was created.
    assert_eq!(expected[1].2, 2);
    let found = contents(&target).await;
    // The root of a deployment of ZooKeeper has had children before.
    expected[0].2 = found[0].2;
    assert_eq!(found, expected);
    // And back: the other implementation exports the same nodes.
    let again = export(&target).await;
    let pairs = again.nodes.iter().zip(&read.nodes);
    assert!(
        pairs
            .into_iter()
            .all(|(a, b)| (&a.path, &a.text, &a.base64) == (&b.path, &b.text, &b.base64))
    );
    let repeated = import(&target, &read.nodes, ImportOptions::default())
        .await
        .unwrap();
    let nothing = ImportSummary {
        n_unchanged: 5,
        ..ImportSummary::default()
    };
    assert_eq!(repeated, nothing);
}

async fn an_import_overwrites_only_if_asked_and_otherwise_writes_nothing(twin: &Twin) {
    let source = Twin::embedded().await.session().await.tree;
    fill(&source).await;
    let nodes = export(&source).await.nodes;
    let target = twin.session().await.tree;
    target
        .create(&path("/a"), b"mine", Lifetime::Persistent)
        .await
        .unwrap();
    let refused = import(&target, &nodes, ImportOptions::default())
        .await
        .unwrap_err();
    assert_eq!(refused.to_string(), "1 nodes exist with other data: /a");
    assert_eq!(target.children(&TreePath::root()).await.unwrap(), ["a"]);
    let options = ImportOptions {
        overwrites: true,
        ..ImportOptions::default()
    };
    let done = import(&target, &nodes, options).await.unwrap();
    assert_eq!(
        (done.n_created, done.n_overwritten, done.n_unchanged),
        (3, 1, 1)
    );
    assert_eq!(target.get(&path("/a")).await.unwrap().data, b"text");
}

async fn an_interrupted_import_goes_on(twin: &Twin) {
    let source = Twin::embedded().await.session().await.tree;
    fill(&source).await;
    let nodes = export(&source).await.nodes;
    let target = twin.session().await.tree;
    // Counters are raised last.
    target
        .create(&path("/a"), b"text", Lifetime::Persistent)
        .await
        .unwrap();
    let done = import(&target, &nodes, ImportOptions::default())
        .await
        .unwrap();
    assert_eq!((done.n_created, done.n_unchanged), (3, 2));
    assert_eq!(contents(&target).await[1..], contents(&source).await[1..]);
}

async fn a_node_without_its_parents_is_imported(twin: &Twin) {
    let source = Twin::embedded().await.session().await.tree;
    fill(&source).await;
    let nodes: Vec<_> = export(&source).await.nodes;
    let only: Vec<_> = nodes
        .into_iter()
        .filter(|node| node.path == path("/a/b/bytes"))
        .collect();
    let target = twin.session().await.tree;
    let done = import(&target, &only, ImportOptions::default())
        .await
        .unwrap();
    assert_eq!(done.n_created, 1);
    assert_eq!(
        target.get(&path("/a/b/bytes")).await.unwrap().data,
        b"\xff\x00\xfe"
    );
}

async fn an_import_into_the_place_of_an_ephemeral_node_is_refused(twin: &Twin) {
    let source = Twin::embedded().await.session().await.tree;
    fill(&source).await;
    let nodes = export(&source).await.nodes;
    let target = twin.session().await.tree;
    target
        .create(&path("/a"), b"text", Lifetime::Ephemeral)
        .await
        .unwrap();
    let refused = import(&target, &nodes, ImportOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(refused, ImportError::Invalid { path, .. } if path.as_str() == "/a"));
}

fn exported(node: &str, next_sequence: usize) -> ExportedNode {
    let time = Timestamp::from_millis(1_790_000_000_000);
    ExportedNode {
        path: path(node),
        text: Some(node.to_owned()),
        base64: None,
        version: 0,
        created: time,
        changed: time,
        next_sequence: u32::try_from(next_sequence).unwrap(),
    }
}

async fn an_import_of_any_size_writes_all_nodes_and_counters(twin: &Twin) {
    let tree = twin.session().await.tree;
    for n_nodes in testing::sizes_around("backplane::tree::import::CALLS_AT_ONCE", 64) {
        let nodes: Vec<_> = (0..n_nodes)
            .map(|number| exported(&format!("/nodes-{n_nodes}-{number}"), 0))
            .collect();
        let done = import(&tree, &nodes, ImportOptions::default()).await;
        assert_eq!(done.unwrap().n_created, n_nodes);
    }
    for next_sequence in testing::sizes_around("backplane::tree::import::RAISED_AT_ONCE", 200) {
        let node = exported(&format!("/counter-{next_sequence}"), next_sequence);
        let nodes = [node.clone()];
        import(&tree, &nodes, ImportOptions::default())
            .await
            .unwrap();
        let stat = tree.exists(&node.path).await.unwrap().unwrap();
        assert_eq!(
            (stat.next_sequence, stat.n_children),
            (node.next_sequence, 0)
        );
    }
}

async fn a_counter_that_is_far_behind_is_left_alone(twin: &Twin) {
    let tree = twin.session().await.tree;
    let limit = 200_000;
    for next_sequence in testing::sizes_around("backplane::tree::import::MAX_RAISED", limit) {
        let nodes = [exported("/counter", next_sequence)];
        let options = ImportOptions {
            is_dry: true,
            ..ImportOptions::default()
        };
        let summary = import(&tree, &nodes, options).await.unwrap();
        assert_eq!(summary.not_raised.len(), usize::from(next_sequence > limit));
        let is_raised = (1..=limit).contains(&next_sequence);
        assert_eq!(summary.n_raised, usize::from(is_raised));
    }
}

#[test]
fn documents_with_errors_are_refused_and_the_errors_name_the_node() {
    let document = |nodes: &str| {
        let text = format!(
            r#"{{"version":1,"root":"/","exported":"2026-01-01T00:00:00.000Z","nEphemeral":0,
            "nodes":[{nodes}]}}"#
        );
        TreeExport::parse(text.as_bytes())
    };
    let rest = r#""version":0,"created":"2026-01-01T00:00:00.000Z",
        "changed":"2026-01-01T00:00:00.000Z","nextSequence":0"#;
    assert!(document("").is_ok());
    assert!(document(&format!(r#"{{"path":"/a","text":"x",{rest}}}"#)).is_ok());
    for (nodes, problem) in [
        (
            format!(r#"{{"path":"/a",{rest}}}"#),
            "node /a: it needs either text or base64",
        ),
        (
            format!(r#"{{"path":"/a","text":"","base64":"",{rest}}}"#),
            "node /a: it needs either text or base64",
        ),
        (
            format!(r#"{{"path":"/a","base64":"?",{rest}}}"#),
            "node /a: its base64 is invalid",
        ),
        (
            format!(r#"{{"path":"a","text":"",{rest}}}"#),
            "does not begin with a slash",
        ),
        (
            [(); 2]
                .map(|()| format!(r#"{{"path":"/a","text":"",{rest}}}"#))
                .join(","),
            "node /a occurs twice",
        ),
        (
            format!(r#"{{"path":"/a","text":"","x":1,{rest}}}"#),
            "unknown field `x`",
        ),
    ] {
        let error = document(&nodes).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    let newer = r#"{"version":2,"root":"/","exported":"2026-01-01T00:00:00.000Z","nEphemeral":0,"nodes":[]}"#;
    let error = TreeExport::parse(newer.as_bytes()).unwrap_err();
    assert_eq!(error, "it has version 2, and only 1 is known");
}
