//! The example program keeps images.

use super::*;
use crate::ImageTarget;
use crate::tests::images::{ImageFixture, image_contract};

#[async_trait]
impl ImageFixture for World {
    fn target(&self) -> &dyn ImageTarget {
        &self.provider
    }

    fn format(&self) -> &'static str {
        "tar"
    }

    fn path(&self) -> PathBuf {
        EXAMPLE.into()
    }

    async fn wait_a_little(&self) {}
}

#[tokio::test]
async fn the_example_keeps_the_contract_of_images() {
    let world = World::new(&[EXAMPLE], 20);
    world.provider.setup().await.unwrap();
    assert!(world.provider.images().is_some());
    image_contract(&world).await;
}
