//! The command line of diskimage-builder for a list of elements.

use std::collections::BTreeMap;

/// An image that consists of elements of diskimage-builder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementBuild<'a> {
    pub elements: &'a [String],
    /// The release of the distribution; `None`: the elements know it.
    pub release: Option<&'a str>,
    /// Folders in which elements are searched.
    pub elements_path: &'a [String],
    pub formats: &'a [String],
    pub image_name: &'a str,
}

/// The command, and the environment that it needs beside that of the definition. `{output}` in the
/// command stands for the path of the output without format.
pub fn element_command(build: &ElementBuild<'_>) -> (Vec<String>, BTreeMap<String, String>) {
    let mut command: Vec<String> = ["disk-image-create", "-x", "-t"].map(str::to_owned).into();
    command.push(build.formats.join(","));
    command.extend(["--checksum", "--no-tmpfs", "-o", "{output}"].map(str::to_owned));
    // An element whose name begins with a hyphen would be an option.
    command.push("--".to_owned());
    command.extend(build.elements.iter().cloned());
    let mut environment = BTreeMap::new();
    let mut set = |name: &str, value: &str| environment.insert(name.to_owned(), value.to_owned());
    set("DIB_IMAGE_NAME", build.image_name);
    set("DIB_IMAGE_FILENAME", "{output}");
    if let Some(release) = build.release {
        set("DIB_RELEASE", release);
    }
    if !build.elements_path.is_empty() {
        set("ELEMENTS_PATH", &build.elements_path.join(":"));
    }
    (command, environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_become_the_command_line_of_diskimage_builder() {
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let (elements, formats) = (texts(&["debian", "vm"]), texts(&["qcow2", "raw"]));
        let (command, environment) = element_command(&ElementBuild {
            elements: &elements,
            release: Some("bookworm"),
            elements_path: &texts(&["/etc/elements", "/opt/elements"]),
            formats: &formats,
            image_name: "debian-12",
        });
        assert_eq!(
            command.join(" "),
            "disk-image-create -x -t qcow2,raw --checksum --no-tmpfs -o {output} -- debian vm"
        );
        let environment: Vec<_> = environment
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        assert_eq!(
            environment,
            [
                "DIB_IMAGE_FILENAME={output}",
                "DIB_IMAGE_NAME=debian-12",
                "DIB_RELEASE=bookworm",
                "ELEMENTS_PATH=/etc/elements:/opt/elements",
            ]
        );
        let (_, environment) = element_command(&ElementBuild {
            elements: &elements,
            ..ElementBuild::default()
        });
        assert!(!environment.contains_key("DIB_RELEASE"));
        assert!(!environment.contains_key("ELEMENTS_PATH"));
    }
}
