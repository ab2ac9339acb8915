//! The documents' pictures, each drawn from a short text beside it in `docs/pictures`.

mod svg;
mod terminal;
mod timeline;

use crate::root;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Where the texts and the pictures are.
pub const FOLDER: &str = "docs/pictures";

/// Draws all pictures.
///
/// # Errors
/// Says what is wrong with a text, or names the file that cannot be read or written.
pub fn draw_all() -> Result<()> {
    for (name, picture) in all(root())? {
        std::fs::write(root().join(FOLDER).join(&name), picture)?;
        println!("{FOLDER}/{name}");
    }
    Ok(())
}

/// The pictures, by file name.
pub fn all(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut pictures = BTreeMap::new();
    for entry in std::fs::read_dir(root.join(FOLDER))? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".toml")) else { continue };
        let source = format!("{FOLDER}/{name}.toml");
        let picture = draw(&source, &std::fs::read_to_string(&path)?, root).with_context(|| source.clone())?;
        pictures.insert(format!("{name}.svg"), picture);
    }
    Ok(pictures)
}

/// One picture.
pub fn draw(source: &str, text: &str, root: &Path) -> Result<String> {
    // A picture of a session names its document; this selects which error is shown.
    let table: toml::Table = toml::from_str(text)?;
    if table.contains_key("session") {
        toml::from_str::<terminal::Terminal>(text)?.draw(source, root)
    } else {
        toml::from_str::<timeline::Timeline>(text)?.draw(source)
    }
}
