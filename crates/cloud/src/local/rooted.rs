//! Worker processes that run in the root file system of an image.
//!
//! Where this is permitted, the process gets a mount namespace of its own. In it, an overlay file
//! system lies on the image, so that workers do not change the image, and the process has the
//! overlay as its root. Elsewhere the process runs as usual, and a variable has the path of the
//! image.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// The variable with the path of the image's root folder, where it cannot be the root.
pub(super) const IMAGE_VARIABLE: &str = "FLEETWRIGHT_IMAGE";

/// Mounts what a worker needs, then becomes the command. `upper` says where the overlay keeps
/// changes. No part of a path in the image may be a symbolic link: it could lead out of the image.
const SCRIPT: &str = r#"
set -e
root=$1 folder=$2 program=$3 upper=$4
shift 4
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
[ "$upper" = disk ] || mount -t tmpfs -o mode=0755 tmpfs "$changes"
mkdir -p "$changes/upper" "$changes/work"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$changes/upper,workdir=$changes/work" "$new"
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

/// How workers are kept in their image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolation {
    /// An overlay that keeps changes on the disk.
    Overlay,
    /// An overlay that keeps changes in memory.
    OverlayInMemory,
    /// None: the path of the image is in a variable.
    Folder,
}

impl Isolation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::OverlayInMemory => "overlay-in-memory",
            Self::Folder => "folder",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::Overlay, Self::OverlayInMemory, Self::Folder];
        all.into_iter().find(|one| one.as_str() == name)
    }

    /// The best isolation that works here, with the reason why no better one does. `scratch` is a
    /// folder beside the worker folders.
    pub(super) fn probe(scratch: &Path) -> io::Result<(Self, String)> {
        let image = scratch.join("image");
        std::fs::create_dir_all(image.join("etc"))?;
        let mut reasons = Vec::new();
        for isolation in [Self::Overlay, Self::OverlayInMemory] {
            let folder = scratch.join(isolation.as_str());
            std::fs::create_dir_all(folder.join("work"))?;
            let tried = isolation.try_out(&image, &folder);
            match tried {
                Ok(()) => return Ok((isolation, reasons.join("; "))),
                Err(reason) => reasons.push(reason),
            }
        }
        Ok((Self::Folder, reasons.join("; ")))
    }

    fn try_out(self, image: &Path, folder: &Path) -> Result<(), String> {
        if !fits_mount_options(image) || !fits_mount_options(folder) {
            return Err(format!("the path {} has one of , : \\", folder.display()));
        }
        let words = self.words(image, folder, "");
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
    pub(super) fn words(self, root: &Path, folder: &Path, program: &str) -> Vec<OsString> {
        let upper = match self {
            Self::Overlay => "disk",
            Self::OverlayInMemory => "memory",
            Self::Folder => return Vec::new(),
        };
        let start = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--",
            "/bin/sh",
            "-c",
        ];
        let mut words: Vec<OsString> = start.iter().map(OsString::from).collect();
        words.push(SCRIPT.into());
        words.push("fleetwright-image".into());
        words.extend([root.as_os_str(), folder.as_os_str()].map(OsString::from));
        words.extend([program, upper].map(OsString::from));
        words
    }
}

/// Whether a path can be an option of an overlay.
fn fits_mount_options(path: &Path) -> bool {
    !path.to_string_lossy().contains([',', ':', '\\'])
}
