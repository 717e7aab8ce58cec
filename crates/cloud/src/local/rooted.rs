//! Worker processes that run in the root file system of an image.
//!
//! Where this is permitted, the process gets a mount namespace of its own. In it, an overlay file
//! system lies on the image, so that workers do not change the image, and the process has the
//! overlay as its root. A user who may mount nothing may do so in a user namespace, as its root.
//! Elsewhere the process runs as usual, and a variable has the path of the image.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// The variable with the path of the image's root folder, where it cannot be the root.
pub(super) const IMAGE_VARIABLE: &str = "FLEETWRIGHT_IMAGE";

/// Mounts what a worker needs, then becomes the command. `upper` says where the overlay keeps
/// changes, `flags` what holds for the programs and devices in it. No part of a path in the image
/// may be a symbolic link: it could lead out of the image.
const SCRIPT: &str = r#"
set -e
root=$1 folder=$2 program=$3 upper=$4 flags=$5
shift 5
place() {
    path=$new
    old_ifs=$IFS
    IFS=/
    for part in $1; do
        [ -n "$part" ] || continue
        path=$path/$part
        if [ -L "$path" ]; then
            echo "the image has a symbolic link at ${path#"$new"}, where a folder is needed" >&2
            exit 126
        fi
        [ -d "$path" ] || mkdir "$path"
    done
    IFS=$old_ifs
}
new=$folder/root
changes=$folder/changes
mkdir -p "$new" "$changes"
[ "$upper" = disk ] || mount -t tmpfs -o "mode=0755,nosuid,nodev" tmpfs "$changes"
mkdir -p "$changes/upper" "$changes/work"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$changes/upper,workdir=$changes/work,$flags" "$new"
for one in proc sys dev; do
    place "$one"
    mount --rbind "/$one" "$new/$one"
done
place "$folder"
mount --bind "$folder" "$new$folder"
place etc
for one in resolv.conf hosts; do
    if [ -e "/etc/$one" ]; then
        rm -f "$new/etc/$one"
        cp -L "/etc/$one" "$new/etc/$one"
    fi
done
# A program in a shared folder is there already. To make a place for it would delete it.
if [ -n "$program" ] && [ ! "$new$program" -ef "$program" ]; then
    place "${program%/*}"
    rm -f "$new$program"
    : >"$new$program"
    mount --bind "$program" "$new$program"
fi
[ $# -gt 0 ] || exit 0
exec unshare --root="$new" --wd="$folder/work" "$@"
"#;

/// Whether programs of an image can have the rights of their owner, as `sudo` needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setuid {
    On,
    Off,
}

/// How workers are kept in their image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolation {
    /// An overlay that keeps changes on the disk.
    Overlay,
    /// An overlay that keeps changes in memory.
    OverlayInMemory,
    /// The same two in a user namespace.
    UserOverlay,
    UserOverlayInMemory,
    /// None: the path of the image is in a variable.
    Folder,
}

impl Isolation {
    /// Those with the image as the root, the best first.
    pub(super) const ROOTED: [Self; 4] = [
        Self::Overlay,
        Self::OverlayInMemory,
        Self::UserOverlay,
        Self::UserOverlayInMemory,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::OverlayInMemory => "overlay-in-memory",
            Self::UserOverlay => "user-overlay",
            Self::UserOverlayInMemory => "user-overlay-in-memory",
            Self::Folder => "folder",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let mut all = Self::ROOTED.into_iter().chain([Self::Folder]);
        all.find(|one| one.as_str() == name)
    }

    /// Whether the image is the root file system of the worker.
    pub(super) fn is_in_image(self) -> bool {
        Self::ROOTED.contains(&self)
    }

    fn is_of_user(self) -> bool {
        matches!(self, Self::UserOverlay | Self::UserOverlayInMemory)
    }

    /// The best isolation that works here, with the reason why no better one does. `scratch` is a
    /// folder beside the worker folders.
    pub(super) fn probe(scratch: &Path) -> (Self, String) {
        let mut reasons = Vec::new();
        for isolation in Self::ROOTED {
            match isolation.try_out_in(&scratch.join(isolation.as_str())) {
                Ok(()) => return (isolation, reasons.join("; ")),
                Err(reason) => reasons.push(format!("{}: {reason}", isolation.as_str())),
            }
        }
        (Self::Folder, reasons.join("; "))
    }

    /// Whether this isolation works, in a folder that is made for it.
    pub(super) fn try_out_in(self, scratch: &Path) -> Result<(), String> {
        let (image, folder) = (scratch.join("image"), scratch.join("worker"));
        for made in [image.join("etc"), folder.join("work")] {
            std::fs::create_dir_all(made).map_err(|error| error.to_string())?;
        }
        self.try_out(&image, &folder)
    }

    fn try_out(self, image: &Path, folder: &Path) -> Result<(), String> {
        if !fits_mount_options(image) || !fits_mount_options(folder) {
            return Err(format!("the path {} has one of , : \\", folder.display()));
        }
        let words = self.words(image, folder, "", Setuid::Off);
        let (program, arguments) = words.split_first().ok_or("no command")?;
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output();
        let output = output.map_err(|error| format!("unshare: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(text
            .lines()
            .next()
            .unwrap_or("it failed without a text")
            .to_owned())
    }

    /// The words that become the command in the image, to be followed by those of the command.
    /// `program` is bound into the image, unless it is empty.
    pub(super) fn words(
        self,
        root: &Path,
        folder: &Path,
        program: &str,
        setuid: Setuid,
    ) -> Vec<OsString> {
        let upper = match self {
            Self::Overlay | Self::UserOverlay => "disk",
            Self::OverlayInMemory | Self::UserOverlayInMemory => "memory",
            Self::Folder => return Vec::new(),
        };
        let flags = match (setuid, self.is_of_user()) {
            (Setuid::Off, false) => "nosuid,nodev",
            (Setuid::On, false) => "nodev",
            // Extended attributes of an overlay are root's otherwise.
            (Setuid::Off, true) => "nosuid,nodev,userxattr",
            (Setuid::On, true) => "nodev,userxattr",
        };
        let of_user: &[&str] = if self.is_of_user() {
            &["--user", "--map-root-user"]
        } else {
            &[]
        };
        let start = ["--mount", "--propagation", "private", "--", "/bin/sh", "-c"];
        let words = ["unshare"].iter().chain(of_user).chain(&start);
        let mut words: Vec<OsString> = words.map(OsString::from).collect();
        words.push(SCRIPT.into());
        words.push("fleetwright-image".into());
        words.extend([root.as_os_str(), folder.as_os_str()].map(OsString::from));
        words.extend([program, upper, flags].map(OsString::from));
        words
    }
}

/// Whether a path can be an option of an overlay.
fn fits_mount_options(path: &Path) -> bool {
    !path.to_string_lossy().contains([',', ':', '\\'])
}
