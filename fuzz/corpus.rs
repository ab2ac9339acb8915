//! Unpacks the corpus of a fuzz target into a folder, one file for each input, and packs such a folder again:
//! `scripts/fuzz.sh` calls it, because the fuzzer reads and writes folders.
#![allow(missing_docs)]

mod pack;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

const USAGE: &str = "\
usage: corpus unpack TARGET FOLDER   write each input of fuzz/corpus/TARGET.bin into FOLDER, which is created
       corpus pack TARGET FOLDER     replace fuzz/corpus/TARGET.bin with the files in FOLDER";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["unpack", target, folder] => unpack(target, Path::new(folder)),
        ["pack", target, folder] => pack(target, Path::new(folder)),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(said) => {
            println!("corpus: {said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("corpus: {error}");
            ExitCode::FAILURE
        }
    }
}

fn unpack(target: &str, folder: &Path) -> Result<String, String> {
    let inputs = pack::read(target)?;
    let write = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        inputs.iter().enumerate().try_for_each(|(number, input)| fs::write(folder.join(format!("{number:04}")), input))
    };
    write().map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(format!("{} inputs of {target} in {}", inputs.len(), folder.display()))
}

fn pack(target: &str, folder: &Path) -> Result<String, String> {
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
    Ok(format!("{} inputs in {}", inputs.len(), file.display()))
}
