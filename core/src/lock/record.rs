//! The value of a lock key: how this module reads and writes it.
//!
//! This module writes `<10 digits of seconds>.<6 digits of microseconds><16 digits of token>[<19 digits of ID>][
//! <owner>]` and nothing else. Clients that parse a float see one decimal number; clients that parse an integer see the
//! right second. A plain decimal in the range of a Unix time is a timestamp of the classic pattern if the key has no
//! native expiry. Everything else is foreign. Reading never fails or allocates, whatever the bytes.

use super::time::UnixMicros;
use super::token::Token;

/// Characters of the timestamp: ten digits of seconds, the point, six digits of microseconds.
const TIMESTAMP: usize = 17;
/// Digits of the token and of the ID.
const TOKEN: usize = 16;
const ID: usize = 19;

/// Microseconds in a second.
const PER_SECOND: u64 = 1_000_000;
/// The length of the longest timestamp that other clients write, in bytes.
const LONGEST_NUMBER: usize = 128;

/// The number that a client gives an attempt so that it can resend it; below 10^19.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u64);

impl Id {
    /// The smallest.
    pub const FIRST: Self = Self(0);
    /// Larger than all others.
    pub const LAST: Self = Self(u64::MAX);

    /// Reads 1 to 19 digits.
    #[must_use]
    pub fn parse(digits: &[u8]) -> Option<Self> {
        (digits.len() <= ID).then(|| number(digits)).flatten().map(Self)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A human-readable label: 1 to [`Owner::MAX`] visible ASCII characters, no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a>(&'a [u8]);

impl<'a> Owner<'a> {
    /// The length of the longest name.
    pub const MAX: usize = 128;

    /// The name, if it is valid.
    #[must_use]
    pub fn parse(name: &'a [u8]) -> Option<Self> {
        let fits = (1..=Self::MAX).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic);
        fits.then_some(Self(name))
    }

    /// The name as bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// An owned copy.
    #[must_use]
    pub fn to_boxed(self) -> OwnerBuf {
        OwnerBuf(self.0.into())
    }
}

/// An owned [`Owner`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerBuf(Box<[u8]>);

impl OwnerBuf {
    /// The name.
    #[must_use]
    pub const fn as_owner(&self) -> Owner<'_> {
        Owner(&self.0)
    }
}

/// The contents of a value that this module wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When the lock expires; the seconds have ten digits.
    pub timestamp: UnixMicros,
    /// The grant.
    pub token: Token,
    /// The attempt, if its client sent an ID.
    pub id: Option<Id>,
    /// The label, if its client sent one.
    pub owner: Option<Owner<'a>>,
}

/// What a string in a lock key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Written by this module.
    Ours(Record<'a>),
    /// A timestamp of the classic pattern, written by another client.
    Classic(UnixMicros),
    /// A value that is not a timestamp: it counts as held while the key exists.
    Foreign,
}

impl<'a> Value<'a> {
    /// Reads a value. `has_native_expiry` is called only if the answer depends on it.
    pub fn read(bytes: &'a [u8], has_native_expiry: impl FnOnce() -> bool) -> Self {
        if let Some(record) = Record::read(bytes) {
            return if record.token.is_valid() { Self::Ours(record) } else { Self::Foreign };
        }
        match classic(bytes) {
            Some(timestamp) if !has_native_expiry() => Self::Classic(timestamp),
            _ => Self::Foreign,
        }
    }
}

impl<'a> Record<'a> {
    /// Reads a value in exactly the form that this module writes.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (timestamp, rest) = bytes.split_first_chunk::<TIMESTAMP>()?;
        let (high, low) = timestamp.split_first_chunk()?;
        // The last two digits of the seconds, and the microseconds.
        let &[s8, s9, b'.', m0, m1, m2, m3, m4, m5] = low else { return None };
        let timestamp = sixteen_digits(*high, [s8, s9, m0, m1, m2, m3, m4, m5])?;
        Self::read_rest(UnixMicros(timestamp), rest)
    }

    /// Reads what follows the timestamp.
    fn read_rest(timestamp: UnixMicros, bytes: &'a [u8]) -> Option<Self> {
        let (high, rest) = bytes.split_first_chunk()?;
        let (low, rest) = rest.split_first_chunk()?;
        // 16 digits can exceed 2^53: such a token leaves no room, which the caller checks.
        let token = Token::new(sixteen_digits(*high, *low)?.min(Token::MAX))?;
        let (id, rest) = match rest.split_at_checked(ID) {
            Some((digits, rest)) if digits.iter().all(u8::is_ascii_digit) => (Some(Id::parse(digits)?), rest),
            _ => (None, rest),
        };
        let owner = match rest.split_first() {
            None => None,
            Some((b' ', name)) => Some(Owner::parse(name)?),
            Some(_) => return None,
        };
        Some(Self { timestamp, token, id, owner })
    }

    /// Reads a member of a sorted set of holders: the score is the timestamp in seconds, the member the rest of the
    /// value.
    #[must_use]
    pub fn read_member(score: f64, member: &'a [u8]) -> Option<Self> {
        Self::read_rest(timestamp_of(score)?, member).filter(|record| record.token.is_valid())
    }

    /// The value as written to the key.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let mut out = Encoded { bytes: [0; Encoded::MAX], length: 0, timestamp: self.timestamp, token: self.token };
        let [high, [s8, s9, micros @ ..]] = sixteen_bytes(self.timestamp.0);
        out.push(&high);
        out.push(&[s8, s9, b'.']);
        out.push(&micros);
        let [high, low] = sixteen_bytes(self.token.get());
        out.push(&high);
        out.push(&low);
        if let Some(id) = self.id {
            out.push_id(id);
        }
        if let Some(owner) = self.owner {
            out.push(b" ");
            out.push(owner.as_bytes());
        }
        out
    }
}

/// The timestamp in the score of a sorted set of holders.
#[must_use]
pub fn timestamp_of(score: f64) -> Option<UnixMicros> {
    const LATEST: f64 = 1e10;
    if !(0.0..LATEST).contains(&score) {
        return None;
    }
    // A whole number between 0 and 10^16.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let micros = (score * 1e6).round() as u64;
    Some(UnixMicros(micros))
}

/// The timestamp as written in a value: the first 17 characters of ours, all of a classic one.
#[must_use]
pub fn timestamp_text<'a>(value: Value<'_>, bytes: &'a [u8]) -> Option<&'a [u8]> {
    match value {
        Value::Ours(_) => bytes.get(..TIMESTAMP),
        Value::Classic(_) => Some(bytes),
        Value::Foreign => None,
    }
}

/// A value that this module writes, as bytes, without an allocation.
#[derive(Debug)]
pub struct Encoded {
    bytes: [u8; Self::MAX],
    length: usize,
    timestamp: UnixMicros,
    token: Token,
}

impl Encoded {
    const MAX: usize = TIMESTAMP + TOKEN + ID + 1 + Owner::MAX;

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The timestamp as written: the score of a holder in a set.
    #[must_use]
    pub fn score(&self) -> &[u8] {
        self.as_bytes().get(..TIMESTAMP).unwrap_or_default()
    }

    /// The rest: the member of a holder in a set.
    #[must_use]
    pub fn member(&self) -> &[u8] {
        self.as_bytes().get(TIMESTAMP..).unwrap_or_default()
    }

    /// The encoded record.
    #[must_use]
    pub fn record(&self) -> Option<Record<'_>> {
        Record::read(self.as_bytes())
    }

    /// The timestamp in it, on which the key's native expiry depends.
    #[must_use]
    pub const fn timestamp(&self) -> UnixMicros {
        self.timestamp
    }

    /// The grant in it.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the compiler then knows the length reached, and drops the checks")]
    fn push(&mut self, bytes: &[u8]) {
        let end = self.length.saturating_add(bytes.len());
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
            self.length = end;
        }
    }

    /// Appends the 19 digits of an ID.
    fn push_id(&mut self, id: Id) {
        let (high, low) = (id.get() / TEN_TO_16, id.get() % TEN_TO_16);
        let [.., a, b, c] = eight_bytes(high);
        self.push(&[a, b, c]);
        self.push(sixteen_bytes(low).as_flattened());
    }
}

const TEN_TO_8: u64 = 100_000_000;
const TEN_TO_16: u64 = TEN_TO_8 * TEN_TO_8;

/// The last 16 decimal digits of a number, with leading zeros.
fn sixteen_bytes(number: u64) -> [[u8; 8]; 2] {
    [eight_bytes(number / TEN_TO_8 % TEN_TO_8), eight_bytes(number % TEN_TO_8)]
}

/// A number below 10^8 as eight digits, in one register: it is split into fours, pairs and digits. The multiplications
/// and shifts divide each lane by 100 or by 10.
fn eight_bytes(number: u64) -> [u8; 8] {
    let fours = (number / 10_000) | (number % 10_000) << 32;
    let hundreds = (fours.wrapping_mul(10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | fours.wrapping_sub(hundreds.wrapping_mul(100)) << 16;
    let tens = (pairs.wrapping_mul(103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | pairs.wrapping_sub(tens.wrapping_mul(10)) << 8;
    (digits | ZEROS).to_le_bytes()
}

/// One to 20 ASCII digits as a number; `None` if there is anything else or the number does not fit.
#[must_use]
#[inline]
pub fn number(digits: &[u8]) -> Option<u64> {
    if !(1..=20).contains(&digits.len()) {
        return None;
    }
    // Eight at a time, which cannot overflow, then one by one.
    let (eights, rest) = digits.as_chunks::<8>();
    let mut number = 0_u64;
    for eight in eights {
        number = number.checked_mul(TEN_TO_8)?.checked_add(eight_digits(*eight)?)?;
    }
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// Sixteen ASCII digits as a number.
fn sixteen_digits(high: [u8; 8], low: [u8; 8]) -> Option<u64> {
    eight_digits(high)?.checked_mul(TEN_TO_8)?.checked_add(eight_digits(low)?)
}

/// Eight times `0`.
const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// Eight ASCII digits as a number, in one register: digits are joined into pairs, pairs into fours, fours into eight.
fn eight_digits(bytes: [u8; 8]) -> Option<u64> {
    const HIGH_HALVES: u64 = u64::from_le_bytes([0xf0; 8]);
    const SIX: u64 = u64::from_le_bytes([6; 8]);
    let word = u64::from_le_bytes(bytes);
    // Each byte is 0x30 to 0x3f, and still is with 6 added: 0x30 to 0x39.
    if word & HIGH_HALVES != ZEROS || word.wrapping_add(SIX) & HIGH_HALVES != ZEROS {
        return None;
    }
    let ones = word.wrapping_sub(ZEROS);
    let pairs = ones.wrapping_mul(10).wrapping_add(ones >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

/// A timestamp as clients of the classic pattern write it: seconds, plain or with a fraction, or whole milli-, micro-
/// or nanoseconds, distinguished by size. Fractions of a microsecond round up. A longer value is not read: it may be
/// 100 MB of other data.
fn classic(bytes: &[u8]) -> Option<UnixMicros> {
    if bytes.len() > LONGEST_NUMBER {
        return None;
    }
    let point = bytes.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => {
            let (whole, fraction) = bytes.split_at_checked(at)?;
            (whole, fraction.get(1..)?)
        }
        None => (bytes, &b"0"[..]),
    };
    if whole.first() == Some(&b'0') || fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let whole = number(whole)?;
    let micros = match whole {
        1_000_000_000..100_000_000_000 => {
            whole.checked_mul(PER_SECOND)?.checked_add(fraction_micros_ceil(fraction)?)?
        }
        _ if point.is_some() => return None,
        1_000_000_000_000..100_000_000_000_000 => whole.checked_mul(1_000)?,
        1_000_000_000_000_000..100_000_000_000_000_000 => whole,
        1_000_000_000_000_000_000..9_200_000_000_000_000_000 => whole.div_ceil(1_000),
        _ => return None,
    };
    Some(UnixMicros(micros))
}

/// The digits after a decimal point, in microseconds, rounded up.
fn fraction_micros_ceil(digits: &[u8]) -> Option<u64> {
    let (head, tail) = digits.split_at_checked(6).unwrap_or((digits, &[]));
    let missing = u32::try_from(6_usize.saturating_sub(head.len())).ok()?;
    let micros = number(head)?.checked_mul(10_u64.checked_pow(missing)?)?;
    micros.checked_add(u64::from(tail.iter().any(|digit| *digit != b'0')))
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
