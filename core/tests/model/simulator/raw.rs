//! Reads a key as the contract defines it, without any of the crate's code, so that the same mistake is not made twice.

use super::judge::{Asked, Predecessor};
use super::steps::Share;
use crate::fake::{Content, Stored};

/// A holder, as stored in a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub token: u64,
    /// In microseconds since 1970.
    pub timestamp: u64,
    pub id: Option<u64>,
}

/// The contents of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Raw {
    #[default]
    Nothing,
    /// A value of the pattern with a token.
    One(Holder),
    /// A timestamp that somebody else wrote.
    Number(u64),
    /// A string that is not a timestamp.
    Foreign,
    /// A sorted set of holders.
    Several(Vec<Holder>),
}

fn digits(bytes: &[u8]) -> Option<u64> {
    let all = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    if all {
        std::str::from_utf8(bytes).ok()?.parse().ok()
    } else {
        None
    }
}

/// `<16 digits of token>[<19 digits of ID>][ <owner>]`
fn token_and_id(bytes: &[u8]) -> Option<(u64, Option<u64>)> {
    let numbers = bytes.split(|byte| *byte == b' ').next()?;
    match numbers.len() {
        16 => Some((digits(numbers)?, None)),
        35 => Some((digits(&numbers[..16])?, Some(digits(&numbers[16..])?))),
        _ => None,
    }
}

fn one(bytes: &[u8]) -> Option<Holder> {
    let (seconds, rest) = (bytes.get(..10)?, bytes.get(10..)?);
    let (dot, micros, rest) = (rest.first()?, rest.get(1..7)?, rest.get(7..)?);
    let (token, id) = token_and_id(rest)?;
    (*dot == b'.').then_some(())?;
    Some(Holder { token, timestamp: digits(seconds)? * 1_000_000 + digits(micros)?, id })
}

impl Raw {
    /// The key at time `now`, in microseconds.
    pub fn of(stored: Option<&Stored>, now: u64) -> Self {
        let is_there = |stored: &&Stored| stored.expire_at_ms.is_none_or(|at| now / 1_000 <= at);
        let Some(stored) = stored.filter(is_there) else { return Self::Nothing };
        match &stored.content {
            Content::String(bytes) => match (one(bytes), digits(bytes)) {
                (Some(holder), _) => Self::One(holder),
                (None, Some(number)) if stored.expire_at_ms.is_none() => match bytes.len() {
                    10 | 11 => Self::Number(number * 1_000_000),
                    13 | 14 => Self::Number(number * 1_000),
                    16 | 17 => Self::Number(number),
                    _ => Self::Foreign,
                },
                _ => Self::Foreign,
            },
            Content::Set(set) => {
                let holders = set.iter().map(|(member, score)| {
                    let (token, id) = token_and_id(member).expect("a member that the module wrote");
                    Holder { token, timestamp: *score, id }
                });
                Self::Several(holders.collect())
            }
        }
    }

    pub fn holders(&self) -> &[Holder] {
        match self {
            Self::One(holder) => std::slice::from_ref(holder),
            Self::Several(holders) => holders,
            Self::Nothing | Self::Number(_) | Self::Foreign => &[],
        }
    }

    pub fn holder(&self, token: u64) -> Option<&Holder> {
        self.holders().iter().find(|holder| holder.token == token)
    }

    /// Whether an attempt holds the lock.
    pub fn is_held_by(&self, id: Option<u64>, now: u64) -> bool {
        self.holders().iter().any(|holder| id.is_some() && holder.id == id && holder.timestamp > now)
    }

    fn live(&self, now: u64) -> usize {
        self.holders().iter().filter(|holder| holder.timestamp > now).count()
    }

    /// Whether nobody holds it and others can take it.
    pub fn is_nobodys(&self, now: u64) -> bool {
        match self {
            Self::Nothing => true,
            Self::Number(timestamp) => *timestamp <= now,
            Self::Foreign => false,
            Self::One(_) | Self::Several(_) => self.live(now) == 0,
        }
    }

    /// Whether a caller is admitted that allows `most` holders, itself included; 1 means exclusive.
    pub fn admits(&self, most: usize, now: u64) -> bool {
        match self {
            Self::Several(_) => self.live(now) < most,
            _ => self.is_nobodys(now),
        }
    }

    /// Whether it has expired and nobody holds it.
    pub fn is_expired(&self, now: u64) -> bool {
        *self != Self::Nothing && self.is_nobodys(now)
    }

    /// The key without these grants.
    pub fn without(&self, gone: impl Fn(u64) -> bool) -> Self {
        match self {
            Self::One(holder) if gone(holder.token) => Self::Nothing,
            Self::Several(holders) => {
                let left: Vec<Holder> = holders.iter().filter(|holder| !gone(holder.token)).cloned().collect();
                if left.is_empty() {
                    Self::Nothing
                } else {
                    Self::Several(left)
                }
            }
            other => other.clone(),
        }
    }

    /// Checks that a grant at time `now` reported its predecessor correctly.
    pub fn check_predecessor(&self, asked: &Asked, reported: Option<Predecessor>, now: u64) {
        match self {
            Self::Nothing => assert_eq!(reported, None, "{asked:?} succeeds nobody"),
            Self::One(holder) => {
                assert_eq!(reported, Some(Predecessor::Token(holder.token)), "{asked:?} succeeds {holder:?}");
            }
            Self::Number(_) => {
                assert_eq!(reported, Some(Predecessor::Classic), "{asked:?} succeeds a client without a token");
            }
            Self::Foreign => panic!("{asked:?} succeeds none of our holders"),
            Self::Several(holders) => {
                let reported =
                    reported.map(|before| holders.iter().find(|holder| before == Predecessor::Token(holder.token)));
                assert!(
                    !(asked.share == Share::Shared && reported.is_some()),
                    "a sharing caller replaces no holder in {self:?}: {reported:?}"
                );
                if let Some(reported) = reported {
                    let is_over = reported.is_some_and(|holder| holder.timestamp <= now);
                    assert!(is_over, "{asked:?} succeeds an expired holder of {self:?}: {reported:?}");
                }
                assert!(
                    reported.is_some() || asked.share != Share::Alone,
                    "the predecessor in {self:?} is not reported"
                );
            }
        }
    }

    /// When its last holder ends, according to the key.
    pub fn last_end(&self) -> u64 {
        match self {
            Self::Number(timestamp) => *timestamp,
            _ => self.holders().iter().map(|holder| holder.timestamp).max().unwrap_or(0),
        }
    }
}
