//! Which upload an image of a provider belongs to: what a provider says about it is checked.

use cloud::image::{ImageTarget, UploadToken, UploadedImage};
use domain::id::{ImageName, ProviderId};
use domain::image::{BuildNumber, UploadTargetId};

use super::Builder;
use crate::image_tree::TargetNode;

/// An upload, as messages name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct UploadName<'a> {
    pub(super) image: &'a ImageName,
    pub(super) build: BuildNumber,
    pub(super) target: &'a UploadTargetId,
}

impl Builder {
    /// Checks that the provider has the image that it says an upload made. A provider that is
    /// believed could have machines start from an image of another upload, or from none.
    pub(super) async fn confirm_upload(
        &self,
        upload: UploadName<'_>,
        target: &dyn ImageTarget,
        token: &UploadToken,
        claimed: &UploadedImage,
    ) -> Result<(), String> {
        let id = &claimed.external_id;
        if let Some(other) = self.other_owner(upload, id) {
            return Err(format!(
                "the provider says that the upload is ready as image {id}, which is that of {other}"
            ));
        }
        let region = upload.target.region.as_ref().map(ToString::to_string);
        match target.find_image(region.as_deref(), token).await {
            Ok(Some(found)) if found.external_id == *id => Ok(()),
            Ok(Some(found)) => Err(format!(
                "the provider says that the upload is ready as image {id}, and that its token is on \
                 image {}",
                found.external_id
            )),
            Ok(None) => Err(format!(
                "the provider says that the upload is ready as image {id}, and finds no image with \
                 its token"
            )),
            Err(error) => Err(format!(
                "the upload is ready as image {id}, but the provider cannot be asked for it: {error}"
            )),
        }
    }

    /// Another upload to the same target that has this image.
    pub(super) fn other_owner(&self, upload: UploadName<'_>, external_id: &str) -> Option<String> {
        let UploadName {
            image,
            build,
            target,
        } = upload;
        let is_other = |name: &ImageName, number: BuildNumber, to: &UploadTargetId| {
            to == target && (name, number) != (image, build)
        };
        let (name, number) = self.find_owner(external_id, is_other)?;
        Some(format!("build {number} of {name}"))
    }

    /// Whether a record names this image of the provider.
    pub(super) fn is_owned(&self, provider: &ProviderId, external_id: &str) -> bool {
        let is_there = |_: &ImageName, _, to: &UploadTargetId| to.provider_id == *provider;
        self.find_owner(external_id, is_there).is_some()
    }

    fn find_owner(
        &self,
        external_id: &str,
        is_meant: impl Fn(&ImageName, BuildNumber, &UploadTargetId) -> bool,
    ) -> Option<(ImageName, BuildNumber)> {
        let is_named = |node: &TargetNode| {
            let mut records = node.uploads.values().filter_map(|it| it.record.as_ref());
            records.any(|record| record.external_id.as_deref() == Some(external_id))
        };
        self.images().names().into_iter().find_map(|name| {
            let owner = self.images().image(&name, |node| {
                let mut builds = node.builds.iter();
                let owner = builds.find(|(number, build)| {
                    let mut targets = build.targets.iter();
                    targets.any(|(to, node)| is_meant(&name, **number, to) && is_named(node))
                });
                owner.map(|(number, _)| *number)
            });
            Some((name, owner.flatten()?))
        })
    }
}
