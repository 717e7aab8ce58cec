//! Where everything about images is in the tree.

use backplane::tree::{BadTreePath, TreePath};
use domain::id::ImageName;
use domain::image::{BuildNumber, UploadNumber, UploadTargetId};

const ROOT: &str = "/fleetwright";
const IMAGE: &str = "image";
const BUILDER: &str = "builder";
const PROVIDERS: &str = "providers";
const DEFINITION: &str = "definition";
const BUILDS: &str = "builds";
const LOCK: &str = "lock";
const PROVENANCE: &str = "provenance";
const PIN: &str = "pin";
const CANCEL: &str = "cancel";
const PROVIDER: &str = "provider";
const IMAGES: &str = "images";
const DATABASE: &str = "database";
const REQUEST: &str = "request-build";
const PAUSE: &str = "pause";
const STANDING: &str = "standing";
const CANARY: &str = "canary";

/// A node of the tree about images, and what it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// All that belongs to an image.
    Image(ImageName),
    Definition(ImageName),
    /// The parent of builds, which is locked while one is made.
    Builds(ImageName),
    /// A contender for the lock of builds.
    BuildContender(ImageName, String),
    Build(ImageName, BuildNumber),
    Provenance(ImageName, BuildNumber),
    Pin(ImageName, BuildNumber),
    /// Somebody wants a running build to end.
    Cancel(ImageName, BuildNumber),
    /// The parent of uploads to a target, which is locked while one is made.
    Uploads(ImageName, BuildNumber, UploadTargetId),
    UploadContender(ImageName, BuildNumber, UploadTargetId, String),
    Upload(ImageName, BuildNumber, UploadTargetId, UploadNumber),
    Request(ImageName),
    Pause(ImageName),
    Standing(ImageName),
    Canary(ImageName),
    Builder(String),
    /// The ids of the configured providers.
    Providers,
    /// The id of the database whose servers use the tree.
    Database,
}

/// Makes the paths.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImagePaths;

impl ImagePaths {
    /// The parent of all nodes of this program.
    pub fn root() -> Result<TreePath, BadTreePath> {
        ROOT.parse()
    }

    /// The parent of all images.
    pub fn images() -> Result<TreePath, BadTreePath> {
        Self::root()?.join(IMAGE)
    }

    /// The parent of all builders.
    pub fn builders() -> Result<TreePath, BadTreePath> {
        Self::root()?.join(BUILDER)
    }
}

impl Place {
    /// The image to which the node belongs.
    pub fn image(&self) -> Option<&ImageName> {
        match self {
            Self::Image(image)
            | Self::Definition(image)
            | Self::Builds(image)
            | Self::BuildContender(image, _)
            | Self::Build(image, _)
            | Self::Provenance(image, _)
            | Self::Pin(image, _)
            | Self::Cancel(image, _)
            | Self::Uploads(image, ..)
            | Self::UploadContender(image, ..)
            | Self::Upload(image, ..)
            | Self::Request(image)
            | Self::Pause(image)
            | Self::Standing(image)
            | Self::Canary(image) => Some(image),
            Self::Builder(_) | Self::Providers | Self::Database => None,
        }
    }

    pub fn path(&self) -> Result<TreePath, BadTreePath> {
        let of_image = |image: &ImageName| ImagePaths::images()?.join(image.as_str());
        let builds = |image: &ImageName| of_image(image)?.join(BUILDS);
        let build =
            |image: &ImageName, number: &BuildNumber| builds(image)?.join(&number.node_name());
        let uploads = |image: &ImageName, number: &BuildNumber, target: &UploadTargetId| {
            let providers = build(image, number)?.join(PROVIDER)?;
            providers.join(&target.to_string())?.join(IMAGES)
        };
        match self {
            Self::Image(image) => of_image(image),
            Self::Definition(image) => of_image(image)?.join(DEFINITION),
            Self::Builds(image) => builds(image),
            Self::BuildContender(image, name) => builds(image)?.join(LOCK)?.join(name),
            Self::Build(image, number) => build(image, number),
            Self::Provenance(image, number) => build(image, number)?.join(PROVENANCE),
            Self::Pin(image, number) => build(image, number)?.join(PIN),
            Self::Cancel(image, number) => build(image, number)?.join(CANCEL),
            Self::Uploads(image, number, target) => uploads(image, number, target),
            Self::UploadContender(image, number, target, name) => {
                uploads(image, number, target)?.join(LOCK)?.join(name)
            }
            Self::Upload(image, number, target, upload) => {
                uploads(image, number, target)?.join(&upload.node_name())
            }
            Self::Request(image) => of_image(image)?.join(REQUEST),
            Self::Pause(image) => of_image(image)?.join(PAUSE),
            Self::Standing(image) => of_image(image)?.join(STANDING),
            Self::Canary(image) => of_image(image)?.join(CANARY),
            Self::Builder(name) => ImagePaths::builders()?.join(name),
            Self::Providers => ImagePaths::root()?.join(PROVIDERS),
            Self::Database => ImagePaths::root()?.join(DATABASE),
        }
    }

    /// Reads a path; `None`: nothing about images is kept there.
    pub fn of(path: &TreePath) -> Option<Self> {
        let parts: Vec<&str> = path.as_str().strip_prefix(ROOT)?.split('/').collect();
        let (first, parts) = parts.get(1..)?.split_first()?;
        match (*first, parts) {
            (IMAGE, [image, rest @ ..]) => Self::of_image(image.parse().ok()?, rest),
            (BUILDER, [name]) => Some(Self::Builder((*name).to_owned())),
            (PROVIDERS, []) => Some(Self::Providers),
            (DATABASE, []) => Some(Self::Database),
            _ => None,
        }
    }

    fn of_image(image: ImageName, parts: &[&str]) -> Option<Self> {
        match parts {
            [] => Some(Self::Image(image)),
            [DEFINITION] => Some(Self::Definition(image)),
            [REQUEST] => Some(Self::Request(image)),
            [PAUSE] => Some(Self::Pause(image)),
            [STANDING] => Some(Self::Standing(image)),
            [CANARY] => Some(Self::Canary(image)),
            [BUILDS] => Some(Self::Builds(image)),
            [BUILDS, LOCK, name] => Some(Self::BuildContender(image, (*name).to_owned())),
            [BUILDS, build, rest @ ..] => Self::of_build(image, build.parse().ok()?, rest),
            _ => None,
        }
    }

    fn of_build(image: ImageName, build: BuildNumber, parts: &[&str]) -> Option<Self> {
        match parts {
            [] => Some(Self::Build(image, build)),
            [PROVENANCE] => Some(Self::Provenance(image, build)),
            [PIN] => Some(Self::Pin(image, build)),
            [CANCEL] => Some(Self::Cancel(image, build)),
            [PROVIDER, target, IMAGES] => Some(Self::Uploads(image, build, target.parse().ok()?)),
            [PROVIDER, target, IMAGES, LOCK, name] => {
                let (target, name) = (target.parse().ok()?, (*name).to_owned());
                Some(Self::UploadContender(image, build, target, name))
            }
            [PROVIDER, target, IMAGES, upload] => {
                let (target, upload) = (target.parse().ok()?, upload.parse().ok()?);
                Some(Self::Upload(image, build, target, upload))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_a_path_and_is_found_by_it() {
        let image: ImageName = "debian-12".parse().unwrap();
        let build = BuildNumber(12);
        let target: UploadTargetId = "aws:eu-west-1".parse().unwrap();
        let places = [
            Place::Image(image.clone()),
            Place::Definition(image.clone()),
            Place::Builds(image.clone()),
            Place::BuildContender(image.clone(), "1-b-0000000003".to_owned()),
            Place::Build(image.clone(), build),
            Place::Provenance(image.clone(), build),
            Place::Pin(image.clone(), build),
            Place::Cancel(image.clone(), build),
            Place::Uploads(image.clone(), build, target.clone()),
            Place::UploadContender(image.clone(), build, target.clone(), "x".to_owned()),
            Place::Upload(image.clone(), build, target, UploadNumber(3)),
            Place::Request(image.clone()),
            Place::Pause(image.clone()),
            Place::Standing(image.clone()),
            Place::Canary(image),
            Place::Builder("host-1".to_owned()),
            Place::Providers,
            Place::Database,
        ];
        for place in places {
            assert_eq!(Place::of(&place.path().unwrap()), Some(place));
        }
    }

    #[test]
    fn the_layout_is_that_of_the_design() {
        let upload = Place::Upload(
            "img".parse().unwrap(),
            BuildNumber(2),
            "local".parse().unwrap(),
            UploadNumber(1),
        );
        assert_eq!(
            upload.path().unwrap().as_str(),
            "/fleetwright/image/img/builds/0000000002/provider/local/images/0000000001"
        );
    }

    #[test]
    fn other_nodes_are_no_places_of_images() {
        for path in [
            "/",
            "/other/image/a",
            "/fleetwright",
            "/fleetwright/image",
            "/fleetwright/members/a",
            "/fleetwright/image/a/builds/lock",
            "/fleetwright/image/a/builds/abc",
            "/fleetwright/image/a/builds/1/provider",
            "/fleetwright/image/a/builds/1/provider/p/images/lock",
        ] {
            assert_eq!(Place::of(&path.parse().unwrap()), None, "{path}");
        }
    }
}
