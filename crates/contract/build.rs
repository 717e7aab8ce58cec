//! Generates the table of embedded schemas: one `File::new(name, text)` per file under `schemas/`.
//!
//! In a table kept by hand, a file could be forgotten.

use std::{env, error::Error, fmt::Write, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("schemas");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut names = Vec::new();
    collect(&root, "", &mut names)?;
    // Sorted by name, for binary search.
    names.sort();

    let mut table = format!("pub(crate) static FILES: [File; {}] = [\n", names.len());
    for name in &names {
        let path = root.join(name);
        writeln!(
            table,
            "    File::new({name:?}, include_str!({:?})),",
            path.display().to_string()
        )?;
    }
    table.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("files.rs"), table)?;
    Ok(())
}

fn collect(folder: &Path, prefix: &str, names: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let file_name = entry.file_name();
        let name = format!(
            "{prefix}{}",
            file_name.to_str().ok_or("a name is not UTF-8")?
        );
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), names)?;
        } else if name.ends_with(".json") {
            names.push(name);
        }
    }
    Ok(())
}
