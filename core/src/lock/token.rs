//! The token: the number that identifies a grant and fences its holder's writes.
//!
//! On one server, a key's tokens always grow. The next token is `max(now in µs, last token of this server + 1, token in
//! the key + 1)`, always below 2^53.
//!
//! ```
//! use redis_lock_core::lock::time::{Micros, UnixMicros};
//! use redis_lock_core::lock::token::Tokens;
//!
//! let mut tokens = Tokens::new();
//! let now = UnixMicros(1_763_710_000_000_000);
//! let first = tokens.next(now, None);
//! assert_eq!(first.get(), now.0);
//! // The clock was set back by a minute; the token still grows.
//! let second = tokens.next(now.before(Micros::from_ms(60_000)), Some(first));
//! assert_eq!(second.get(), first.get() + 1);
//! ```

use super::time::UnixMicros;

/// The number of a grant: at most [`Token::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// 2^53 - 1, the largest integer that is exact in every language.
    pub const MAX: u64 = (1 << 53) - 1;

    /// The smallest token.
    pub const FIRST: Self = Self(0);

    /// The largest token.
    pub const LAST: Self = Self(Self::MAX);

    /// The token with this number, unless it is too large.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether a value with this token is a lock. No grant has the last token.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 < Self::MAX
    }

    /// Whether the server that granted `later` could have granted this token before it: `later` is not too far ahead.
    #[must_use]
    pub(crate) const fn is_plausible_before(self, later: Self) -> bool {
        later.0.saturating_sub(self.0) <= MOST_AHEAD / 2
    }

    const fn is_far_ahead(self, now: UnixMicros) -> bool {
        self.0.saturating_sub(now.0) > MOST_AHEAD
    }

    /// The number as sent to clients: below 2^53, so it fits.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }
}

/// How far, in µs, a token in a key may be ahead of the clock and still advance the tokens of all other keys: one day.
const MOST_AHEAD: u64 = 86_400_000_000;

/// Issues one server's tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tokens {
    last: u64,
}

impl Tokens {
    /// No token has been granted yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: 0 }
    }

    /// Notes that a token from this or an earlier server was released at `now`: later tokens are larger.
    pub fn given_back(&mut self, now: UnixMicros, token: Token) {
        if !token.is_far_ahead(now) {
            self.last = self.last.max(token.0);
        }
    }

    /// The token of a grant at `now` in a key that holds `in_key`.
    ///
    /// A token more than a day ahead of the clock affects only its key: if it advanced the server's tokens, one forged
    /// value would make every later token useless. After the last valid token the key's tokens start again from the
    /// clock, because nobody could release a grant with a token that is not valid.
    pub fn next(&mut self, now: UnixMicros, in_key: Option<Token>) -> Token {
        let own = Token(now.0.max(self.last.saturating_add(1)).min(Token::MAX));
        let token = match in_key.map(|Token(before)| Token(before.saturating_add(1))) {
            Some(next) if next > own && next.is_valid() => next,
            _ => own,
        };
        if token == own || !token.is_far_ahead(now) {
            self.last = token.0;
        }
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: UnixMicros = UnixMicros(1_763_710_000_482_913);

    #[test]
    fn a_token_is_the_time_of_its_grant_in_microseconds() {
        assert_eq!(Tokens::new().next(NOW, None), Token(NOW.0));
    }

    #[test]
    fn a_token_is_the_same_number_on_the_wire() {
        for number in [0, 5, NOW.0, Token::MAX] {
            assert_eq!(u64::try_from(Token::new(number).unwrap().as_i64()), Ok(number));
        }
        assert_eq!(Token::new(Token::MAX + 1), None);
    }

    #[test]
    fn tokens_exceed_a_returned_one_unless_it_is_far_ahead() {
        for (lead, moves) in [(0, true), (5, true), (MOST_AHEAD, true), (MOST_AHEAD + 1, false)] {
            let back = Token(NOW.0 + lead);
            let mut tokens = Tokens::new();
            tokens.given_back(NOW, back);
            assert_eq!(tokens.next(NOW, None), Token(if moves { back.0 + 1 } else { NOW.0 }), "{lead}");
            // The same for a token in a key; the next token in that key exceeds it anyway.
            let mut tokens = Tokens::new();
            assert_eq!(tokens.next(NOW, Some(Token(back.0 - 1))), Token(back.0.max(NOW.0)));
            assert_eq!(tokens.next(NOW, None), Token(if moves { back.0 + 1 } else { NOW.0 }), "{lead}");
        }
    }

    #[test]
    fn a_token_in_the_key_that_is_ahead_of_the_clock_is_exceeded() {
        let ahead = Token(NOW.0 + 5_000_000);
        let mut tokens = Tokens::new();
        assert_eq!(tokens.next(NOW, Some(ahead)), Token(ahead.0 + 1));
        assert_eq!(tokens.next(NOW, None), Token(ahead.0 + 2));
    }

    #[test]
    fn a_forged_token_does_not_use_up_the_tokens_of_other_keys() {
        let mut tokens = Tokens::new();
        assert_eq!(tokens.next(NOW, Token::new(Token::MAX - 2)).get(), Token::MAX - 1);
        assert_eq!(tokens.next(NOW, None), Token(NOW.0));
        assert_eq!(tokens.next(NOW, None), Token(NOW.0 + 1));
    }

    #[test]
    fn no_grant_has_a_token_that_is_not_valid() {
        for before in [Token::MAX - 1, Token::MAX] {
            let mut tokens = Tokens::new();
            assert_eq!(tokens.next(NOW, Token::new(before)), Token(NOW.0));
            assert_eq!(tokens.next(NOW, Token::new(before)), Token(NOW.0 + 1));
        }
    }

    #[test]
    fn tokens_of_a_server_grow_after_its_clock_was_set_back_by_days() {
        let mut tokens = Tokens::new();
        let first = tokens.next(NOW, None);
        let back = UnixMicros(NOW.0 - 3 * MOST_AHEAD);
        for in_key in [None, Some(first), None] {
            assert!(tokens.next(back, in_key) > first);
        }
        // Forged tokens cannot move them on, not even in small steps.
        for step in 1..=5 {
            tokens.next(back, Token::new(NOW.0 + step * MOST_AHEAD / 2));
        }
        assert!(tokens.next(back, None).get() < NOW.0 + 10);
    }

    proptest! {
        #[test]
        fn tokens_of_a_server_grow_whatever_its_clock_does(
            steps in prop::collection::vec((0..i64::from(u32::MAX), prop::option::of(0..2_000_000_000_000_000_u64)), 1..50),
        ) {
            let mut tokens = Tokens::new();
            let mut last = None;
            for (step, in_key) in steps {
                let now = UnixMicros(NOW.0 + u64::try_from(step).unwrap());
                let in_key = in_key.map(|token| Token(token.min(NOW.0 + MOST_AHEAD - 1)));
                let token = tokens.next(now, in_key);
                prop_assert!(Some(token) > last, "no token in a key is far ahead");
                prop_assert!(Some(token) > in_key);
                prop_assert!(token.get() >= now.0);
                last = Some(token);
            }
        }
    }
}
