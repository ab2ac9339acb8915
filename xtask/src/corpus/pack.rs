//! One file for all inputs of a fuzz target: `fuzz/corpus/TARGET.bin`.
//!
//! The file consists of [`MAGIC`], the FNV-1a hash of everything after it (8 bytes), then for each input its length (2
//! bytes) and its bytes. Numbers are little-endian. Inputs are sorted and unique, so the same corpus gives the same
//! file. A file that was changed or truncated is an error: no input is read from it.

use crate::root;
use std::collections::BTreeSet;
use std::path::PathBuf;

const MAGIC: &[u8] = b"redis-lock corpus 1\n";

pub fn file(target: &str) -> PathBuf {
    root().join(format!("fuzz/corpus/{target}.bin"))
}

/// FNV-1a detects every change to a single byte.
fn hash(bytes: &[u8]) -> [u8; 8] {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix).to_le_bytes()
}

pub fn pack(inputs: &BTreeSet<Vec<u8>>) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    for input in inputs {
        let length = u16::try_from(input.len()).map_err(|_| format!("an input has {} bytes", input.len()))?;
        body.extend(length.to_le_bytes());
        body.extend(input);
    }
    Ok([MAGIC, &hash(&body), &body].concat())
}

pub fn unpack(packed: &[u8]) -> Result<BTreeSet<Vec<u8>>, String> {
    let rest = packed.strip_prefix(MAGIC).ok_or("not a packed corpus")?;
    let (expected, mut body) = rest.split_first_chunk::<8>().ok_or("it is cut off")?;
    if hash(body) != *expected {
        return Err("its checksum is wrong: it was changed or cut off".into());
    }
    let mut inputs = BTreeSet::new();
    while !body.is_empty() {
        let (length, rest) = body.split_first_chunk::<2>().ok_or("a length is cut off")?;
        let (input, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into()).ok_or("an input is cut off")?;
        inputs.insert(input.to_vec());
        body = rest;
    }
    Ok(inputs)
}

/// A target's inputs.
pub fn read(target: &str) -> Result<BTreeSet<Vec<u8>>, String> {
    let file = file(target);
    let packed = std::fs::read(&file).map_err(|error| error.to_string());
    packed.and_then(|packed| unpack(&packed)).map_err(|error| format!("{}: {error}", file.display()))
}
