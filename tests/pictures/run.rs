//! Draws the pictures of the documents: `make pictures`.

#[path = "picture.rs"]
mod picture;

use anyhow::Result;
use std::path::Path;

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, picture) in picture::all(root)? {
        std::fs::write(root.join(picture::FOLDER).join(&name), picture)?;
        println!("{}/{name}", picture::FOLDER);
    }
    Ok(())
}
