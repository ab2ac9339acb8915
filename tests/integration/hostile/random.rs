//! The parts of random commands: numbers from a seed, and keys and values that some command understands.

const SEED: u64 = 0x10C4_2026;

/// `SplitMix64`: the same numbers from the same seed, everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Up to 40 bytes of any kind.
    pub fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(41)).map(|_| u8::try_from(self.next() % 256).unwrap()).collect()
    }
}

pub const KEYS: &[&str] = &["a", "b", "c", "d", "\0", "名", "", "list", "hash"];
pub const NUMBERS: &[&str] = &[
    "0",
    "1",
    "7",
    "42",
    "5000",
    "-1",
    "+1",
    "1.5",
    "",
    " 1",
    "315360000000",
    "315360000001",
    "9007199254740991",
    "9007199254740992",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1763710000482913",
];
pub const VALUES: &[&str] = &[
    "1763710031",
    "1763710031.48",
    "1763710031482",
    "9199999999999999999",
    "9999999999",
    "true",
    "",
    "-1",
    "1763710031.4829131763710000482913",
    "9999999999.9999991763710000482913 bob",
    "1763710031.48291317637100004829130000000000000000042 alice",
    "1763710031.4829139007199254740991",
    "1763710031.4829131763710000482913 ",
    "0000000000.0000000000000000000000",
];

/// `LOCK_SEED` names another seed.
pub fn seed() -> u64 {
    std::env::var("LOCK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED)
}
