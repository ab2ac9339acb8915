//! Unpacks the corpus of a fuzz target into a folder, one file per input, and packs such a folder again.
//! `scripts/fuzz.sh` calls this because the fuzzer reads and writes folders.

pub mod pack;

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// Writes each input of a target into a new folder.
///
/// # Errors
/// Names the file that cannot be read or written.
pub fn unpack(target: &str, folder: &Path) -> Result<(), String> {
    let inputs = pack::read(target)?;
    let write = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        inputs.iter().enumerate().try_for_each(|(number, input)| fs::write(folder.join(format!("{number:04}")), input))
    };
    write().map_err(|error| format!("{}: {error}", folder.display()))?;
    println!("corpus: {} inputs of {target} in {}", inputs.len(), folder.display());
    Ok(())
}

/// Replaces a target's corpus with the files in a folder.
///
/// # Errors
/// Names the file that cannot be read or written.
pub fn pack(target: &str, folder: &Path) -> Result<(), String> {
    let read = || fs::read_dir(folder)?.map(|file| fs::read(file?.path())).collect::<io::Result<_>>();
    let inputs: BTreeSet<_> = read().map_err(|error| format!("{}: {error}", folder.display()))?;
    if inputs.is_empty() {
        return Err(format!("{}: no inputs, the corpus stays as it is", folder.display()));
    }
    let (packed, file) = (pack::pack(&inputs)?, pack::file(target));
    // Replaced in one step: an interrupted write leaves the old corpus.
    let new = file.with_extension("new");
    fs::write(&new, packed)
        .and_then(|()| fs::rename(&new, &file))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    println!("corpus: {} inputs in {}", inputs.len(), file.display());
    Ok(())
}
