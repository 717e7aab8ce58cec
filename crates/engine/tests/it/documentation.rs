//! Documentation is kept only of what exists.

use bytes::Bytes;
use domain::audit::EntityType;
use domain::documentation::Subject;
use engine::configurations::{DocumentationError, find_documentation, put_documentation};

use crate::world::World;

#[tokio::test]
async fn what_does_not_exist_has_no_documentation() {
    let world = World::new().await;
    let subject = Subject::WorkerType("pp/wt".parse().unwrap());
    let put = |upload: &'static [u8]| {
        let audit = world.audit(EntityType::WorkerPool, "pp/wt", "documentation-updated");
        put_documentation(
            &world.engine,
            subject.clone(),
            Bytes::from_static(upload),
            audit,
        )
    };
    let refused = put(b"no tarball").await.unwrap_err();
    assert!(
        matches!(refused, DocumentationError::Refused(_)),
        "{refused}"
    );
    let missing = find_documentation(&world.engine, subject.clone(), false, |_| true).await;
    let missing = missing.map(drop).unwrap_err();
    assert_eq!(
        missing.to_string(),
        format!("There is no documentation of {subject}")
    );
}
