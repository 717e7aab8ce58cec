//! Images of the `local` provider, and workers that run in them.

use std::os::unix::fs::symlink;

use super::*;
use crate::SmallDisk;
use crate::UploadToken;
use crate::local::images::{ImageFolders, MAX_IMAGES};
use crate::local::rooted::{IMAGE_VARIABLE, Isolation, Setuid};
use crate::tests::images::{ImageFixture, image_contract, token, upload};
use ::testing::sizes_around;

/// A provider, and an image for it.
struct World {
    machine: Machine,
    image: TempDir,
    format: &'static str,
}

impl World {
    async fn new(format: &'static str, script: &str) -> Self {
        let image = tempfile::tempdir().unwrap();
        let root = image.path().join("folder");
        for name in ["etc", "bin"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("etc/os-release"), "ID=tiny\n").unwrap();
        for program in ["/bin/sh", "/bin/cat", "/bin/sleep"] {
            copy_program(program, &root);
        }
        let command = ["/bin/sh", "-c", script, "worker", "{identity}"];
        Self {
            machine: Machine::running(&command, 10).await,
            image,
            format,
        }
    }

    fn root(&self) -> PathBuf {
        self.image.path().join("folder")
    }

    async fn launch(&self, image: &str) -> Result<Vec<Worker>, LaunchError> {
        let content = json!({"image": image, "env": {"GREETING": "hello"}});
        self.machine.launch_with(TOKEN, 1, content).await
    }

    fn worker_folder(&self, worker: &Worker) -> PathBuf {
        self.machine.root().join(worker.key.id.as_str())
    }

    fn images(&self) -> ImageFolders {
        self.machine.provider.0.images().unwrap()
    }
}

#[async_trait]
impl ImageFixture for World {
    fn target(&self) -> &dyn ImageTarget {
        &self.machine.provider
    }

    fn format(&self) -> &'static str {
        self.format
    }

    /// Makes the tar file on first use.
    fn path(&self) -> PathBuf {
        if self.format == "folder" {
            return self.root();
        }
        let path = self.image.path().join("image.tar");
        if !path.exists() {
            let mut tar = tar::Builder::new(fs::File::create(&path).unwrap());
            tar.follow_symlinks(false);
            tar.append_dir_all(".", self.root()).unwrap();
            tar.finish().unwrap();
        }
        path
    }

    async fn wait_a_little(&self) {
        self.machine.settle().await;
    }
}

/// Copies a program and its libraries.
fn copy_program(program: &str, root: &Path) {
    let copy = |path: &str| {
        let to = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    };
    copy(program);
    let libraries = Program::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(libraries.stdout).unwrap();
    text.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .for_each(copy);
}

/// Whether a worker can be kept in its image here. Root can, unless a container forbids it.
fn is_permitted(isolation: &str) -> bool {
    if isolation == "folder" {
        eprintln!("skipped: workers cannot have a root file system of their own here");
        return false;
    }
    true
}

/// The ways to keep a worker in its image that work here.
fn permitted() -> Vec<Isolation> {
    let scratch = tempfile::tempdir().unwrap();
    let works = |isolation: &Isolation| {
        let folder = scratch.path().join(isolation.as_str());
        let tried = isolation.try_out_in(&folder);
        if let Err(reason) = &tried {
            eprintln!("skipped: {}: {reason}", isolation.as_str());
        }
        tried.is_ok()
    };
    Isolation::ROOTED.into_iter().filter(works).collect()
}

#[tokio::test]
async fn the_local_provider_keeps_the_contract_of_images() {
    for format in ["tar", "folder"] {
        image_contract(&World::new(format, "").await).await;
    }
}

#[tokio::test]
async fn a_worker_runs_in_its_image_and_does_not_change_it() {
    for isolation in permitted() {
        runs_in_its_image(isolation).await;
    }
}

async fn runs_in_its_image(isolation: Isolation) {
    let script = r#"{ cat /etc/os-release; pwd; echo x >/etc/changed; cat /etc/changed; cat "$1"
        echo; cat /proc/self/mounts; echo end; } >out; exec sleep 600"#;
    let world = World::new("tar", script).await;
    let provider = &world.machine.provider;
    provider.0.isolation.set(isolation).unwrap();
    let image = upload(&world, "one").await.unwrap().external_id;
    let worker = world.launch(&image).await.unwrap().remove(0);
    assert_eq!(worker.provider_data["image"], image.as_str());
    assert_eq!(worker.provider_data["isolation"], isolation.as_str());
    assert_eq!(worker.provider_data["inImage"], true);
    let folder = world.worker_folder(&worker);
    let mut out = String::new();
    while !out.ends_with("end\n") {
        out = world.machine.wait_for_file(&folder.join("work/out")).await;
    }
    let work = folder.join("work").display().to_string();
    assert!(out.starts_with(&format!("ID=tiny\n{work}\nx\n")), "{out}");
    assert!(
        out.contains("\"GREETING\":\"hello\"") && !out.contains(IMAGE_VARIABLE),
        "{out}"
    );
    let root_mount = out.lines().find(|line| line.starts_with("overlay / "));
    let root_mount = root_mount.unwrap();
    for flag in ["nosuid", "nodev"] {
        assert!(root_mount.contains(flag), "{root_mount}");
    }
    let root = world.images().root_of(&image).unwrap();
    assert!(!root.join("etc/changed").exists() && !root.join("proc").exists());
    assert_eq!(world.machine.seen(&worker).await, Sighting::Alive);

    // It cannot be deleted as long as the worker runs.
    let target = &world.machine.provider;
    let error = target.delete_image(None, &image).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("unavailable: 1 workers still run in image {image}")
    );
    target.end(&worker).await.unwrap();
    world.machine.wait_until_ended(&worker).await;
    target.delete_image(None, &image).await.unwrap();
    let error = world
        .machine
        .launch_with(OTHER_TOKEN, 1, json!({"image": image}))
        .await;
    let expected = format!("image {image} does not exist on this host");
    assert!(error.unwrap_err().to_string().contains(&expected));
    // Nothing is mounted outside of the worker's own view, so its folder can be deleted.
    permissions::remove(&folder).unwrap();
}

#[test]
fn programs_of_an_image_have_the_rights_of_their_owner_only_if_that_is_configured() {
    let (root, folder) = (Path::new("/image"), Path::new("/worker"));
    for isolation in Isolation::ROOTED {
        let flags = |setuid: Setuid| {
            let words = isolation.words(root, folder, "", setuid);
            words.last().unwrap().to_str().unwrap().to_owned()
        };
        let (off, on) = (flags(Setuid::Off), flags(Setuid::On));
        assert!(off.starts_with("nosuid,nodev"), "{off}");
        assert_eq!(format!("nosuid,{on}"), off);
    }
}

/// Images of distributions have `su` and `mount`, which run as root.
#[tokio::test]
async fn no_other_user_reaches_the_programs_of_an_image() {
    let world = World::new("folder", "exec sleep 600").await;
    let data = world.machine.data.path();
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    // As if it was made by the service manager, and its folders by an earlier version.
    open(data);
    let images = world.images().0;
    fs::create_dir_all(&images).unwrap();
    for folder in [images.parent().unwrap(), &images, &data.join("local")] {
        open(folder);
    }
    let image = upload(&world, "one").await.unwrap().external_id;
    let shell = world.images().root_of(&image).unwrap().join("bin/sh");
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o4755)).unwrap();
    for folder in [images.parent().unwrap(), &images, &data.join("local")] {
        open(folder);
    }
    world.machine.provider.setup().await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (all, own, workers) = (images.parent().unwrap(), &images, data.join("local"));
    assert_eq!([all, own, &workers].map(mode), [0o700; 3]);
    assert_eq!(mode(images.join(&image).as_path()), 0o700);
    if nix::unistd::geteuid().is_root() {
        let mut nobody = Program::new("setpriv");
        let words = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
        // `setpriv` itself keeps root's rights until it has started a program.
        let ran = nobody
            .args(words)
            .args(["/bin/sh", "-c", r#""$0" -p -c "id -u""#])
            .arg(&shell)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&ran.stderr);
        assert!(
            !ran.status.success() && text.contains("Permission denied"),
            "{text}"
        );
    }
}

// The image has the `/dev` of this machine, so the program would be deleted for everyone.
#[test]
fn a_program_in_a_folder_that_images_share_is_run_and_stays() {
    let (image, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shared = tempfile::tempdir_in("/dev/shm").unwrap();
    let program = shared.path().join("program");
    fs::copy("/bin/cat", &program).unwrap();
    fs::create_dir(image.path().join("etc")).unwrap();
    fs::write(image.path().join("etc/os-release"), "ID=tiny\n").unwrap();
    copy_program("/bin/cat", image.path());
    let (isolation, _) = Isolation::probe(scratch.path());
    if !is_permitted(isolation.as_str()) {
        return;
    }
    let folder = scratch.path().join("worker");
    fs::create_dir_all(folder.join("work")).unwrap();
    let words = isolation.words(
        image.path(),
        &folder,
        program.to_str().unwrap(),
        Setuid::Off,
    );
    let (first, rest) = words.split_first().unwrap();
    let mut command = Program::new(first);
    let output = command
        .args(rest)
        .arg(&program)
        .arg("/etc/os-release")
        .output();
    let output = output.unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "ID=tiny\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(fs::read(&program).unwrap(), fs::read("/bin/cat").unwrap());
}

#[tokio::test]
async fn where_no_root_is_permitted_a_worker_and_its_tasks_get_the_path_of_the_image() {
    let world = World::new(
        "folder",
        r#"echo "$FLEETWRIGHT_IMAGE" >out; exec sleep 600"#,
    )
    .await;
    world
        .machine
        .provider
        .0
        .isolation
        .set(Isolation::Folder)
        .unwrap();
    let image = upload(&world, "one").await.unwrap().external_id;
    let worker = world.launch(&image).await.unwrap().remove(0);
    assert_eq!(worker.provider_data["isolation"], "folder");
    assert_eq!(worker.provider_data["inImage"], false);
    let folder = world.worker_folder(&worker);
    let out = world.machine.wait_for_file(&folder.join("work/out")).await;
    let root = world.images().root_of(&image).unwrap();
    assert_eq!(out.trim(), root.to_str().unwrap());
    let identity = fs::read_to_string(folder.join("identity.json")).unwrap();
    let identity: Value = serde_json::from_str(&identity).unwrap();
    let expected = json!({"GREETING": "hello", IMAGE_VARIABLE: root});
    assert_eq!(identity["env"], expected);
    let release = fs::read_to_string(root.join("etc/os-release")).unwrap();
    assert_eq!(release, "ID=tiny\n");
}

#[tokio::test]
async fn an_image_whose_folders_lead_out_of_it_runs_nothing() {
    let world = World::new("tar", "exec sleep 600").await;
    let outside = world.image.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("hosts"), "keep").unwrap();
    fs::remove_dir_all(world.root().join("etc")).unwrap();
    symlink(&outside, world.root().join("etc")).unwrap();
    let image = upload(&world, "one").await.unwrap().external_id;
    let worker = world.launch(&image).await.unwrap().remove(0);
    if !is_permitted(worker.provider_data["isolation"].as_str().unwrap()) {
        return;
    }
    let why = world.machine.wait_until_ended(&worker).await;
    assert!(why.starts_with("it exited with code 126"), "{why}");
    let log = fs::read_to_string(world.worker_folder(&worker).join("worker.log")).unwrap();
    let expected = "the image has a symbolic link at /etc, where a folder is needed\n";
    assert_eq!(log, expected);
    assert_eq!(fs::read_to_string(outside.join("hosts")).unwrap(), "keep");
}

#[tokio::test]
async fn the_rest_of_a_crash_is_listed_and_deleted_and_a_running_upload_is_not() {
    let world = World::new("tar", "").await;
    let image = upload(&world, "one").await.unwrap().external_id;
    let images = world.images();
    let (left, running) = (
        images.0.join(".unfinished-1-1"),
        images.0.join(".unfinished-1-2"),
    );
    for folder in [&left, &running] {
        fs::create_dir_all(folder.join("root")).unwrap();
        fs::write(folder.join("lock"), "").unwrap();
    }
    let lock = fs::File::open(running.join("lock")).unwrap();
    lock.lock().unwrap();
    let target = world.target();
    let owned = target.owned_images().await.unwrap();
    let listed: Vec<_> = owned
        .iter()
        .map(|it| (it.external_id.as_str(), it.is_ready))
        .collect();
    assert_eq!(listed, [(".unfinished-1-1", false), (image.as_str(), true)]);
    target.delete_image(None, ".unfinished-1-1").await.unwrap();
    assert!(!left.exists() && running.exists());
    // No id leads out of the folder.
    for id in ["..", ".", "", "../local", "/etc"] {
        target.delete_image(None, id).await.unwrap();
    }
    assert!(images.0.exists() && world.machine.root().exists());
    assert_eq!(images.root_of("../local"), None);
}

#[tokio::test]
async fn a_wrong_image_makes_nothing() {
    let world = World::new("tar", "").await;
    fs::write(world.path(), "no tar").unwrap();
    let error = upload(&world, "one").await.unwrap_err();
    assert_eq!(error.cause, Cause::Configuration);
    assert!(
        error.error.starts_with("the file is not a tar file"),
        "{error}"
    );
    let path = world.image.path().join("missing.tar");
    let checksum = crate::checksum_of(&world.path()).unwrap();
    let error = crate::tests::images::step(&world, "one", "tar", &path, &checksum).await;
    assert_eq!(error.unwrap_err().cause, Cause::Configuration);
    let left = fs::read_dir(&world.images().0).unwrap().count();
    assert_eq!(left, 0, "nothing is left");
    assert_eq!(
        world
            .target()
            .find_image(None, &token("one"))
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn a_full_disk_is_a_lack_of_capacity() {
    let Some(disk) = SmallDisk::mount("20m") else {
        return;
    };
    let world = World::new("tar", "").await;
    let images = ImageFolders(disk.path().to_owned());
    // A bomb: a small file, so that the disk is full only while it is unpacked.
    fs::write(world.root().join("large"), vec![7; 3 << 20]).unwrap();
    fs::write(disk.path().join("other"), vec![7; 2 << 20]).unwrap();
    let checksum = crate::checksum_of(&world.path()).unwrap();
    let error = images.try_to_make(&world.path(), &checksum).unwrap_err();
    assert_eq!(error.cause, Cause::Capacity);
    assert!(error.error.starts_with("the image needs "), "{error}");
    fs::write(disk.path().join("other"), "").unwrap();
    fs::write(disk.path().join("more"), vec![7; 17 << 20]).unwrap();
    let small = crate::Checksum {
        size_bytes: 0,
        ..checksum
    };
    fs::remove_file(disk.path().join("other")).unwrap();
    let error = images.try_to_make(&world.path(), &small).unwrap_err();
    assert_eq!(error.cause, Cause::Capacity, "{error}");
    let left: Vec<_> = fs::read_dir(disk.path())
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(left, ["more"]);
}

#[test]
fn the_number_of_images_has_a_limit() {
    const LIMIT: usize = 5;
    for count in sizes_around("cloud::local::images::MAX_IMAGES", LIMIT) {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..count {
            fs::create_dir(folder.path().join(number.to_string())).unwrap();
        }
        let images = ImageFolders(folder.path().to_owned());
        let listed = images.owned_at_most(LIMIT);
        assert_eq!(listed.is_ok(), count <= LIMIT, "{count}");
        assert!(images.owned_at_most(MAX_IMAGES).is_ok());
    }
}

#[test]
fn the_id_of_an_image_is_a_folder_name_with_the_token_in_it() {
    let one: UploadToken = token("one");
    let id = crate::local::images::id_of("Debian 12/é", &one);
    assert_eq!(id, crate::local::images::id_of("Debian 12/é", &one));
    assert!(
        id.starts_with("Debian-12---") && id.len() <= 12 + 16,
        "{id}"
    );
    assert!(crate::local::images::id_of("", &one).starts_with("image-"));
    assert_ne!(
        id,
        crate::local::images::id_of("Debian 12/é", &token("two"))
    );
}
