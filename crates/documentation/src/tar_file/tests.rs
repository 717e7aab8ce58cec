//! Hostile tarballs, built by hand, and valid ones.

use std::process::Command;

use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;
use crate::tests_common::{METADATA_TEXT, tree};
use crate::{MAX_ENTRIES, MAX_UNPACKED_BYTES, MAX_UPLOAD_BYTES};

const BLOCK: usize = 512;

/// A header, possibly malicious, and its content.
fn entry(name: &[u8], kind: u8, content: &[u8]) -> Vec<u8> {
    entry_of_size(name, kind, content, content.len() as u64)
}

fn entry_of_size(name: &[u8], kind: u8, content: &[u8], size: u64) -> Vec<u8> {
    let mut header = Header::new_ustar();
    let field = &mut header.as_old_mut().name;
    field[..name.len()].copy_from_slice(name);
    header.set_entry_type(EntryType::new(kind));
    header.set_size(size);
    header.set_mode(0o777);
    header.as_old_mut().linkname[..4].copy_from_slice(b"/etc");
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn file(name: &str, content: &str) -> Vec<u8> {
    entry(name.as_bytes(), b'0', content.as_bytes())
}

fn metadata() -> Vec<u8> {
    file("metadata.json", METADATA_TEXT)
}

fn end() -> Vec<u8> {
    vec![0; 2 * BLOCK]
}

/// The entries with metadata and an end.
fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [&[metadata()], entries, &[end()]].concat().concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// An attribute with its length in front of it.
fn attribute(key: &str, value: &str) -> Vec<u8> {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}").into_bytes()
}

fn pax(key: &str, value: &str) -> Vec<u8> {
    entry(b"pax", b'x', &attribute(key, value))
}

fn paths(tarball: &[u8]) -> Vec<String> {
    let tree = Tree::accept(tarball).unwrap();
    tree.files().map(|(path, _)| path.to_owned()).collect()
}

#[track_caller]
fn refused(tarball: &[u8], part: &str) {
    for tarball in [tarball.to_vec(), gzip(tarball)] {
        let text = Tree::accept(&tarball).unwrap_err().to_string();
        assert!(text.contains(part), "{text:?} does not contain {part:?}");
        assert!(text.len() < 1_000, "{text}");
    }
}

#[test]
fn a_packed_tree_is_read_back_and_packed_the_same() {
    let long = format!("docs/{}/{}.md", "d".repeat(120), "n".repeat(120));
    let tree = tree(&[
        ("README.md", "# A"),
        (&long, "long"),
        ("docs/ü.md", ""),
        ("i.png", "\u{1}"),
    ]);
    let packed = tree.pack();
    let again = Tree::accept(&packed).unwrap();
    assert_eq!(again, tree);
    assert_eq!(again.pack(), packed);
    assert_eq!(&packed[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
}

#[test]
fn what_tar_programs_write_is_taken() {
    let long = format!("docs/{}/{}.md", "l".repeat(99), "m".repeat(99));
    let tarball = archive(&[
        entry(b"pax_global_header", b'g', &attribute("comment", "0a1b2c")),
        entry(b"./", b'5', b""),
        entry(b"./docs/", b'5', b""),
        file("./docs/a.md", "a"),
        entry(b"docs/old.md", 0, b"v7"),
    ]);
    assert_eq!(
        paths(&tarball),
        ["docs/a.md", "docs/old.md", "metadata.json"]
    );
    let gnu = archive(&[
        entry(b"././@LongLink", b'L', &[long.as_bytes(), b"\0"].concat()),
        file("docs/lll", "gnu"),
    ]);
    assert_eq!(paths(&gnu), [long.as_str(), "metadata.json"]);
    let bsd = archive(&[
        entry(
            b"PaxHeader/x",
            b'x',
            &[
                attribute("mtime", "1.5"),
                attribute("path", &long),
                attribute("size", "3"),
            ]
            .concat(),
        ),
        file("docs/lll", "pax"),
    ]);
    assert_eq!(paths(&bsd), [long.as_str(), "metadata.json"]);
    assert_eq!(paths(&gzip(&bsd)), paths(&bsd));
    // The form of programs that pack with several threads.
    let (one, other) = tarball.split_at(700);
    assert_eq!(paths(&[gzip(one), gzip(other)].concat()), paths(&tarball));
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let long = "n".repeat(300);
    for (name, part) in [
        (&b"../evil.md"[..], "\"../evil.md\" leads out of its folder"),
        (b"docs/../../evil.md", "leads out of its folder"),
        (b"/etc/passwd", "\"/etc/passwd\" has an absolute path"),
        (b"docs\\..\\evil.md", "backslash"),
        (b"C:/evil.md", "colon"),
        (b"a\x1b[2Jb", "control character"),
        (b"\xff\xfe.md", "not UTF-8"),
        (b"", "an empty name"),
        (b"docs/a.md/", "\"docs/a.md/\" is a file, and a folder"),
    ] {
        refused(&archive(&[entry(name, b'0', b"x")]), part);
        if !name.is_empty() && name.len() < 90 && !name.ends_with(b"/") {
            let text = [name, b"\0"].concat();
            refused(&archive(&[entry(b"L", b'L', &text), file("a", "")]), part);
        }
        if let Ok(name) = std::str::from_utf8(name).map(|name| name.trim_end_matches('/'))
            && !name.contains('\x1b')
            && name != "docs/a.md"
        {
            refused(&archive(&[pax("path", name), file("a", "")]), part);
        }
    }
    for announced in [pax("path", &long), entry(b"L", b'L', long.as_bytes())] {
        refused(&archive(&[announced, file("a", "")]), "more than 255 bytes");
    }
    let deep = "d/".repeat(9) + "f";
    refused(&archive(&[file(&deep, "")]), "more than 8 folders deep");
}

#[test]
fn only_files_and_folders_are_taken() {
    for (kind, part) in [
        (b'1', "\"docs/x\" is a hard link"),
        (b'2', "\"docs/x\" is a symbolic link"),
        (b'3', "\"docs/x\" is a device"),
        (b'4', "\"docs/x\" is a device"),
        (b'6', "\"docs/x\" is a pipe"),
        (b'S', "\"docs/x\" is a file with holes"),
        (b'7', "\"docs/x\" is of an unknown kind"),
        (b'M', "\"docs/x\" is of an unknown kind"),
        (b'V', "\"docs/x\" is of an unknown kind"),
    ] {
        refused(&archive(&[entry(b"docs/x", kind, b"")]), part);
        refused(
            &archive(&[entry(b"K", b'K', b"../../x\0"), entry(b"docs/x", kind, b"")]),
            part,
        );
    }
    let sparse = archive(&[pax("GNU.sparse.major", "1"), file("docs/x", "a")]);
    refused(&sparse, "\"docs/x\" is a file with holes");
    let folder = archive(&[entry(b"docs", b'5', b"content")]);
    refused(&folder, "two sizes for \"docs\", 0 and 7 bytes");
}

#[test]
fn what_says_one_thing_in_two_ways_is_refused() {
    for (announced, part) in [
        (vec![pax("size", "4")], "two sizes for \"a\", 4 and 1 bytes"),
        (vec![pax("size", "99999999999")], "99999999999 and 1 bytes"),
        (vec![pax("size", "x")], "x and 1 bytes"),
        (vec![pax("size", "1"), pax("size", "2")], "several names"),
        (
            vec![pax("path", "b"), pax("path", "c")],
            "several names for \"c\"",
        ),
        (
            vec![entry(b"L", b'L', b"b\0"), pax("path", "b")],
            "several names for \"b\"",
        ),
        (
            vec![entry(b"L", b'L', b"b\0"), entry(b"L", b'L', b"b\0")],
            "several names",
        ),
        (
            vec![entry(b"g", b'g', &attribute("path", "b"))],
            "several names for \"g\", or none",
        ),
        (
            vec![entry(b"g", b'g', &attribute("size", "1"))],
            "or none for",
        ),
        (
            vec![entry(b"x", b'x', b"nonsense")],
            "not a tarball (malformed pax extension)",
        ),
        (
            vec![entry(b"x", b'x', b"99 path=b\n")],
            "not a tarball (malformed pax extension)",
        ),
        (
            vec![entry(b"x", b'x', &[b'1'; 70_000])],
            "\"x\" has more than 255 bytes",
        ),
    ] {
        let entries = [announced, vec![file("a", "1")]].concat();
        refused(&archive(&entries), part);
    }
    refused(
        &archive(&[file("a.md", "1"), file("A.md", "2")]),
        "are the same name",
    );
    refused(
        &archive(&[file("a.md", "1"), file("./a.md", "2")]),
        "are the same name",
    );
    refused(&archive(&[metadata()]), "are the same name");
}

#[test]
fn a_truncated_tarball_is_refused_wherever_it_was_cut() {
    let whole = archive(&[
        file("docs/a.md", &"text ".repeat(300)),
        pax("path", "b"),
        file("b", "1"),
    ]);
    let n_content = whole.len() - 2 * BLOCK;
    for n_left in (0..=n_content).step_by(64) {
        let text = Tree::accept(&whole[..n_left]).unwrap_err().to_string();
        assert!(text.contains("is truncated"), "{n_left}: {text}");
    }
    let packed = gzip(&whole);
    for n_left in 0..packed.len() {
        Tree::accept(&packed[..n_left]).unwrap_err();
    }
    let mut flipped = packed.clone();
    let n_packed = packed.len();
    flipped[n_packed - 6] ^= 1;
    let text = Tree::accept(&flipped).unwrap_err().to_string();
    assert!(text.contains("corrupt gzip stream"), "{text}");
    // Announced, but no entry followed.
    refused(&archive(&[pax("path", "b")]), "is truncated");
}

#[test]
fn other_formats_are_refused_by_name() {
    for (bytes, part) in [
        (&b"PK\x03\x04"[..], "(it is a zip file)"),
        (b"BZh9", "(it is packed with bzip2)"),
        (b"\xfd7zXZ\0", "(it is packed with xz)"),
        (b"\x28\xb5\x2f\xfd", "(it is packed with zstd)"),
        (b"", "is truncated"),
    ] {
        let text = Tree::accept(bytes).unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    }
    refused(&[b'x'; 4 * BLOCK], "This is not a tarball (");
    refused(&[0xff; 4 * BLOCK], "This is not a tarball (");
    refused(&end(), "metadata.json is missing at the top");
    refused(
        &[file("docs-1.0/metadata.json", METADATA_TEXT), end()].concat(),
        "pack the content of the folder",
    );
    let twice = gzip(&gzip(&archive(&[])));
    let text = Tree::accept(&twice).unwrap_err().to_string();
    assert!(text.contains("more than once"), "{text}");
    let mut behind = gzip(&archive(&[]));
    behind.extend_from_slice(b"and something behind it");
    assert!(Tree::accept(&behind).is_err());
}

#[test]
fn a_size_beyond_the_limit_is_refused() {
    for size in [
        MAX_UNPACKED_BYTES as u64 + 1,
        8 << 30,
        u64::MAX / 2,
        u64::MAX,
    ] {
        let lying = entry_of_size(b"a", b'0', b"short", size);
        let text = Tree::accept(&[metadata(), lying, end()].concat())
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("more than 16 MiB") || text.contains("not a tarball"),
            "{text}"
        );
    }
}

#[test]
fn many_entries_are_refused_before_they_are_read() {
    let many: Vec<_> = (0..100_000)
        .map(|n| entry(format!("f{n}").as_bytes(), b'0', b""))
        .collect();
    let tarball = gzip(&archive(&many));
    assert!(tarball.len() < MAX_UPLOAD_BYTES);
    assert_eq!(Tree::accept(&tarball), Err(Refusal::TooManyEntries));
    let announced: Vec<_> = (0..100_000).map(|_| pax("comment", "x")).collect();
    assert_eq!(
        Tree::accept(&gzip(&archive(&announced))),
        Err(Refusal::TooManyEntries)
    );
}

#[test]
fn an_upload_has_a_largest_size() {
    let upload = vec![0; MAX_UPLOAD_BYTES + 1];
    assert_eq!(Tree::accept(&upload), Err(Refusal::TooLarge));
}

/// The peak memory of this process; `None` if the system does not report it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The test below measures its process, so it runs in one of its own.
const ALONE: &str = "FLEETWRIGHT_TEST_ALONE";

#[test]
fn a_gigabyte_in_a_megabyte_costs_no_more_than_the_limit() {
    if std::env::var_os(ALONE).is_none() {
        let name = "a_gigabyte_in_a_megabyte_costs_no_more_than_the_limit";
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args([&format!("tar_file::tests::{name}"), "--exact"]);
        let done = alone.env(ALONE, "yes").output().unwrap();
        let output = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success() && output.contains("1 passed"),
            "{output}"
        );
        return;
    }
    let zeros = {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&vec![0; 16 << 20]).unwrap();
        packed.finish().unwrap().repeat(64)
    };
    let bomb = [metadata(), entry_of_size(b"bomb", b'0', b"", 1 << 30)].concat();
    let honest = [gzip(&bomb), zeros.clone(), gzip(&end())].concat();
    assert!(honest.len() < 2 << 20);
    // With a size within the limit, so that it is read; and after the end of the archive, where
    // nothing is read.
    let modest = [metadata(), entry_of_size(b"bomb", b'0', b"", 15 << 20)].concat();
    let modest = [gzip(&modest), zeros.clone(), gzip(&end())].concat();
    let behind = [gzip(&archive(&[])), zeros].concat();
    let before = peak_bytes();
    assert_eq!(Tree::accept(&honest), Err(Refusal::TooMuchInside));
    assert_eq!(Tree::accept(&modest), Err(Refusal::TooMuchInside));
    assert_eq!(Tree::accept(&behind), Err(Refusal::TooMuchInside));
    if let (Some(before), Some(after)) = (before, peak_bytes()) {
        let grown = after - before;
        assert!(grown <= 2 * MAX_UNPACKED_BYTES as u64, "{grown} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..3_000)) {
        let _ = Tree::accept(&bytes);
        let _ = Tree::accept(&gzip(&bytes));
    }

    #[test]
    fn no_damage_to_a_tarball_makes_reading_panic_or_go_beyond_its_limits(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        repairs in any::<bool>(),
    ) {
        let mut tarball = archive(&[
            entry(b"L", b'L', b"docs/long.md\0"), file("a", "# A\n[b](c)"), pax("path", "docs/b.md"), file("b", "<b>"),
        ]);
        for (at, byte) in damage {
            let at = at.index(tarball.len());
            tarball[at] = byte;
            if repairs {
                // An attacker writes correct checksums.
                let start = at / BLOCK * BLOCK;
                let mut header = Header::new_old();
                header.as_mut_bytes().copy_from_slice(&tarball[start..start + BLOCK]);
                header.set_cksum();
                tarball[start..start + BLOCK].copy_from_slice(header.as_bytes());
            }
        }
        if let Ok(tree) = Tree::accept(&tarball) {
            prop_assert!(tree.n_bytes() <= MAX_UNPACKED_BYTES && tree.n_files() <= MAX_ENTRIES);
            prop_assert_eq!(&Tree::accept(&tree.pack()).unwrap(), &tree);
        }
    }

}

proptest! {
    // Packing is slow without optimisation.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_tree_survives_its_tarball(
        files in prop::collection::btree_map("[a-z]{1,9}(/[a-z.]{1,99}x){0,2}", ".{0,2000}", 0..9)
    ) {
        let mut building = Building::default();
        building.file(b"metadata.json", METADATA_TEXT.into()).unwrap();
        for (path, content) in &files {
            // Some have conflicting names.
            let _ = building.file(path.as_bytes(), content.clone().into_bytes());
        }
        let tree = building.finish().unwrap();
        prop_assert_eq!(Tree::unpack(&tree.pack()).unwrap(), tree);
    }
}
