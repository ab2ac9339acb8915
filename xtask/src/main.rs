//! `cargo xtask TOOL`: see [`USAGE`].

use std::env;
use std::process::ExitCode;
use xtask::{corpus, mutants, pictures};

const USAGE: &str = "\
usage: cargo xtask mutants run [MUTANT]...      run the tests of these mutants, or of all but the memory mutants
       cargo xtask mutants memory               list the memory mutants: name, report, tests
       cargo xtask mutants plant [MUTANT]       copy the tree, with this mutant or none, and print its path
       cargo xtask corpus unpack TARGET FOLDER  write each input of fuzz/corpus/TARGET.bin into FOLDER, which is created
       cargo xtask corpus pack TARGET FOLDER    replace fuzz/corpus/TARGET.bin with the files in FOLDER
       cargo xtask pictures                     draw the pictures of the documents";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["mutants", "run", names @ ..] => mutants::run(names),
        ["mutants", "memory"] => mutants::list_memory(),
        ["mutants", "plant"] => mutants::plant(None),
        ["mutants", "plant", name] => mutants::plant(Some(name)),
        ["corpus", "unpack", target, folder] => corpus::unpack(target, folder.as_ref()),
        ["corpus", "pack", target, folder] => corpus::pack(target, folder.as_ref()),
        ["pictures"] => pictures::draw_all().map_err(|error| format!("{error:#}")),
        _ => Err(USAGE.into()),
    };
    if let Err(error) = done {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
