//! The keys of a command: how many, how long, and each once.

use super::Arguments;
use crate::lock::error::Error;
use crate::lock::record::number;
use std::ops::Range;

/// The longest key name of a lock that can be granted, in bytes: names are kept for waiters.
const LONGEST_KEY: usize = 4_096;
/// The maximum total size of an attempt's key names, in bytes. All of them are hashed several times in one event-loop
/// iteration when the attempt is granted its locks.
const MOST_KEY_BYTES: usize = 256 << 10;
/// The most keys of one command.
const MOST_KEYS: usize = 1_024;

/// The positions of the keys of a command that begins with `numkeys`; `behind`: the minimum number of arguments after
/// the keys.
///
/// # Errors
/// [`Error::NumKeys`]
pub fn keys<'a>(args: &impl Arguments<'a>, behind: usize) -> Result<Range<usize>, Error> {
    let most = args.count().saturating_sub(behind.saturating_add(1)).min(MOST_KEYS);
    // The server finds no keys behind a number that it does not take, such as 02, and then checks no permissions.
    let digits = args.at(0).filter(|digits| !digits.starts_with(b"0"));
    let count = digits.and_then(number).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| (1..=most).contains(count)).ok_or(Error::NumKeys)?;
    Ok(1..count.saturating_add(1))
}

/// Checks that a key's name is not too long for a lock or for a remembered attempt.
///
/// # Errors
/// [`Error::KeyLength`]
pub fn key_to_take(name: &[u8]) -> Result<(), Error> {
    if name.len() > LONGEST_KEY {
        return Err(Error::KeyLength);
    }
    Ok(())
}

/// Checks that several locks can be taken: their names are not too long, alone or together, and no key is given twice.
///
/// # Errors
/// [`Error::KeyLengthOf`], [`Error::KeysLength`], [`Error::SameKey`]
pub fn keys_to_take<'a>(args: &impl Arguments<'a>, keys: Range<usize>) -> Result<(), Error> {
    let mut bytes = 0_usize;
    let too_long = keys.clone().find_map(|at| {
        let length = args.at(at)?.len();
        bytes = bytes.saturating_add(length);
        if length > LONGEST_KEY {
            return Some((at, Error::KeyLengthOf(at)));
        }
        (bytes > MOST_KEY_BYTES).then_some((at, Error::KeysLength(at)))
    });
    // The error names the first wrong argument, so keys after one that is too long are not compared.
    different_keys(args, keys.start..too_long.map_or(keys.end, |(key, _)| key))?;
    too_long.map_or(Ok(()), |(_, error)| Err(error))
}

/// Checks that no key is given twice.
///
/// # Errors
/// [`Error::SameKey`]
pub fn different_keys<'a>(args: &impl Arguments<'a>, keys: Range<usize>) -> Result<(), Error> {
    let mut sorted: Vec<(&[u8], usize)> = keys.filter_map(|at| Some((args.at(at)?, at))).collect();
    sorted.sort_unstable();
    let same = sorted.iter().zip(sorted.iter().skip(1)).filter(|(one, other)| one.0 == other.0);
    match same.min_by_key(|(_, other)| other.1) {
        Some((&(_, earlier), &(_, key))) => Err(Error::SameKey { key, earlier }),
        None => Ok(()),
    }
}
