//! The commands of the storm's clients.

use super::{Command, Storm};
use crate::hostile::random::{KEYS, NUMBERS, VALUES};

impl Storm {
    pub fn word(&mut self, from: &[&str]) -> Vec<u8> {
        self.dice.pick(from).into()
    }

    /// Mostly a key that is used often; now and then anything.
    pub fn key(&mut self) -> Vec<u8> {
        match self.dice.below(60) {
            0 => self.anything(),
            _ => self.word(KEYS),
        }
    }

    /// Up to 40 bytes of any kind.
    pub fn bytes(&mut self) -> Vec<u8> {
        (0..self.dice.below(41)).map(|_| u8::try_from(self.dice.below(256)).unwrap()).collect()
    }

    pub fn anything(&mut self) -> Vec<u8> {
        if self.dice.one_in(3) {
            return self.bytes();
        }
        let at = self.dice.index(self.hostile.len());
        // The cost of the long ones is mostly their transport.
        let long = self.hostile[at].len() > 1_000 && !self.dice.one_in(200);
        self.hostile[if long { 0 } else { at }].clone()
    }

    fn number(&mut self) -> Vec<u8> {
        match self.dice.below(12) {
            0 => self.word(NUMBERS),
            1 => self.anything(),
            _ => (1 + self.dice.below(25)).to_string().into(),
        }
    }

    /// Keys and a token, mostly of a recent grant.
    fn grants(&mut self) -> (Vec<Vec<u8>>, Vec<u8>) {
        let late = self.grants.len() - 1 - self.dice.index(self.grants.len().min(12));
        let (keys, token) = self.grants[late].clone();
        let token = token.to_string().into();
        match self.dice.below(10) {
            0 => (vec![self.key()], self.number()),
            1 => (vec![self.key()], token),
            // The token of the expired values.
            3 => (vec![self.key()], b"1763710000482913".to_vec()),
            2 => (keys.into_iter().chain([self.key()]).collect(), token),
            _ => (keys, token),
        }
    }

    /// One of the LOCK.* commands, mostly well-formed.
    pub fn lock_command(&mut self) -> Command {
        let name: &[u8] = match self.dice.below(29) {
            0..=8 => b"LOCK.ACQUIRE",
            9 | 10 => b"LOCK.RECOVER",
            11..=13 => b"LOCK.RELEASE",
            14 | 15 => b"LOCK.EXTEND",
            16 => b"LOCK.CHECK",
            17 => b"LOCK.CANCEL",
            18 | 19 => b"LOCK.INFO",
            20 => b"LOCK.TOP",
            21 => b"LOCK.SCAN",
            22..=24 => b"LOCK.MACQUIRE",
            25 | 26 => b"LOCK.MRELEASE",
            27 => b"LOCK.MEXTEND",
            _ => b"LOCK.HELP",
        };
        let mut args = vec![name.to_vec()];
        match name {
            b"LOCK.RELEASE" | b"LOCK.CHECK" | b"LOCK.EXTEND" => {
                let (keys, token) = self.grants();
                args.extend([keys[0].clone(), token]);
            }
            b"LOCK.MRELEASE" | b"LOCK.MEXTEND" => {
                let last = self.grants.iter().rfind(|(keys, _)| keys.len() > 1).cloned();
                let last = last.filter(|_| self.dice.one_in(2)).map(|(keys, token)| (keys, token.to_string().into()));
                let (keys, token) = last.unwrap_or_else(|| self.grants());
                args.push(keys.len().to_string().into());
                args.extend(keys);
                args.push(token);
            }
            b"LOCK.MACQUIRE" => {
                let mut keys: Vec<_> = (0..=self.dice.below(3)).map(|_| self.key()).collect();
                if !self.dice.one_in(10) {
                    keys.sort_unstable();
                    keys.dedup();
                }
                args.push(keys.len().to_string().into());
                args.extend(keys);
            }
            b"LOCK.SCAN" => args.push(if self.dice.one_in(4) { self.number() } else { b"0".to_vec() }),
            b"LOCK.TOP" | b"LOCK.HELP" => {}
            _ => args.push(self.key()),
        }
        match name {
            b"LOCK.EXTEND" | b"LOCK.MEXTEND" => args.extend([self.word(&["PX", "EX", "px"]), self.number()]),
            b"LOCK.CANCEL" if self.dice.one_in(4) => args.extend([b"CHANNEL".to_vec(), self.word(&["c", "d", "\0"])]),
            b"LOCK.CANCEL" => args.push(self.number()),
            b"LOCK.INFO" if self.dice.one_in(2) => args.push(self.word(&["FULL", "full"])),
            b"LOCK.TOP" => self.top_options(&mut args),
            b"LOCK.SCAN" => self.scan_options(&mut args),
            b"LOCK.ACQUIRE" | b"LOCK.RECOVER" | b"LOCK.MACQUIRE" => {
                args.extend([self.word(&["PX", "PX", "PX", "px", "EX"]), self.number()]);
                // Only LOCK.ACQUIRE allows other holders.
                if name == b"LOCK.ACQUIRE" || self.dice.one_in(40) {
                    match self.dice.below(8) {
                        0 | 1 => args.push(self.word(&["SHARED", "shared"])),
                        2 | 3 => args.extend([b"LIMIT".to_vec(), self.small()]),
                        _ => {}
                    }
                }
                self.options(&mut args);
                // A single connection's tokens must grow, but a claim returns an earlier one.
                if self.width > 1 && name != b"LOCK.RECOVER" && self.dice.one_in(4) {
                    self.notified(&mut args);
                }
            }
            _ => {}
        }
        self.spoil(&mut args);
        args
    }

    /// 1 to 5; now and then anything.
    fn small(&mut self) -> Vec<u8> {
        match self.dice.below(12) {
            0 => self.number(),
            _ => (1 + self.dice.below(5)).to_string().into(),
        }
    }

    fn options(&mut self, args: &mut Command) {
        let has_details = args[0] == b"LOCK.ACQUIRE";
        while self.dice.one_in(2) {
            match self.dice.below(10) {
                0..=2 => args.extend([b"ID".to_vec(), (1 + self.dice.below(12)).to_string().into()]),
                3 | 4 => args.extend([b"OWNER".to_vec(), self.word(&["alice", "bob", "a b", "\0"])]),
                5 if has_details => args.push(b"DETAILS".to_vec()),
                5 | 6 => args.push(b"SESSION".to_vec()),
                _ => args.extend([b"WAIT".to_vec(), self.dice.below(30).to_string().into()]),
            }
        }
    }

    /// It waits without a connection.
    fn notified(&mut self, args: &mut Command) {
        args.truncate(args.iter().position(|word| word == b"WAIT").unwrap_or(args.len()));
        args.extend([b"WAIT".to_vec(), self.dice.below(40).to_string().into()]);
        if !args.contains(&b"ID".to_vec()) {
            args.extend([b"ID".to_vec(), (1 + self.dice.below(12)).to_string().into()]);
        }
        args.extend([self.word(&["NOTIFY", "NOTIFY", "SNOTIFY", "notify"]), self.word(&["c", "d", "\0", ""])]);
    }

    fn scan_options(&mut self, args: &mut Command) {
        while self.dice.one_in(2) {
            match self.dice.below(5) {
                0 => args.extend([b"COUNT".to_vec(), self.number()]),
                4 => args.extend([b"CLIENT".to_vec(), self.small()]),
                1 => args.extend([b"STATE".to_vec(), self.word(&["held", "Expired", "FOREIGN", "free"])]),
                2 => args.extend([b"MATCH".to_vec(), self.word(&["*", "a", "[^a]", "[", "\\", "", "?"])]),
                _ => args.extend([b"MATCH".to_vec(), self.anything()]),
            }
        }
    }

    fn top_options(&mut self, args: &mut Command) {
        while self.dice.one_in(2) {
            match self.dice.below(3) {
                0 => args.extend([b"COUNT".to_vec(), self.number()]),
                1 => args.extend([b"BY".to_vec(), self.anything()]),
                _ => args.extend([b"by".to_vec(), self.word(&["waiters", "Wait", "HELD", "owner"])]),
            }
        }
    }

    /// Sometimes an argument is missing, extra, or anything at all.
    fn spoil(&mut self, args: &mut Command) {
        match self.dice.below(40) {
            0 => args.truncate(1 + self.dice.index(args.len())),
            1 => args.insert(1 + self.dice.index(args.len()), self.anything()),
            2 if args.len() > 1 => {
                let at = 1 + self.dice.index(args.len() - 1);
                args[at] = self.anything();
            }
            3 => args[0] = args[0].to_ascii_lowercase(),
            _ => {}
        }
    }

    /// A plain command on the same keys.
    pub fn plain_command(&mut self) -> Command {
        let (key, value) = (self.key(), self.word(VALUES));
        let short = self.dice.below(20).to_string().into_bytes();
        let name = self.word(&["RPUSH", "APPEND", "GETSET", "SETNX"]);
        match self.dice.below(17) {
            0 | 1 => vec![b"SET".to_vec(), key, value],
            2 => vec![b"SET".to_vec(), key, value, b"PX".to_vec(), b"3".to_vec()],
            3 => vec![name, key, value],
            4 => vec![self.word(&["RENAME", "COPY", "RENAMENX"]), key, self.key()],
            5 => vec![b"MOVE".to_vec(), key, self.word(&["0", "1"])],
            6 => vec![b"PEXPIRE".to_vec(), key, short],
            7 => vec![b"SETRANGE".to_vec(), key, short, value],
            8 => vec![b"SELECT".to_vec(), self.word(&["0", "0", "0", "1", "77"])],
            9 => vec![self.word(&["INCR", "PERSIST", "GET", "GETDEL"]), key],
            // Foreign sets, forged holders, and members that come and go under a lock.
            10 => vec![b"ZADD".to_vec(), key, self.score(), self.member()],
            11 => vec![b"ZADD".to_vec(), key, self.score(), self.member(), self.score(), self.member()],
            12 => match self.dice.below(4) {
                0 => vec![b"ZREM".to_vec(), key, self.member()],
                1 => vec![b"ZREMRANGEBYRANK".to_vec(), key, self.word(&["0", "-1", "1"]), self.word(&["0", "-1", "2"])],
                2 => vec![b"ZINCRBY".to_vec(), key, self.word(&["1", "-1e9", "inf"]), self.member()],
                _ => vec![b"ZPOPMIN".to_vec(), key],
            },
            _ => vec![self.word(&["DEL", "UNLINK"]), key],
        }
    }

    /// A command after which each key's tokens still grow: it gives a key neither another key's tokens nor forged ones.
    /// It does not wait, as no other client would release the lock.
    pub fn lone_command(&mut self) -> Command {
        const MOVES: [&[u8]; 7] = [b"RENAME", b"COPY", b"RENAMENX", b"MOVE", b"SELECT", b"SETRANGE", b"APPEND"];
        // A token that leaves no room for a larger one, and holders that have an ID.
        const MADE_UP: [&[u8]; 3] = [b"9007199254740990", b"17637100004829150000", b"17637100004829160000"];
        loop {
            let command = if self.dice.one_in(4) { self.plain_command() } else { self.lock_command() };
            let is_made_up = |arg: &Vec<u8>| MADE_UP.iter().any(|made_up| arg.starts_with(made_up));
            let is_not_for_it = |arg: &Vec<u8>| is_made_up(arg) || arg.eq_ignore_ascii_case(b"WAIT");
            if !MOVES.contains(&&command[0][..]) && !command.iter().any(is_not_for_it) {
                return command;
            }
        }
    }

    /// A command from an operator, or from a client that misbehaves.
    pub fn operator_command(&mut self) -> Command {
        let line = self.dice.pick(&[
            "CLIENT PAUSE 3 WRITE",
            "CLIENT PAUSE 2 ALL",
            "CLIENT UNPAUSE",
            "CLIENT KILL TYPE normal SKIPME yes",
            "CLIENT UNBLOCK 7 ERROR",
            "CLIENT UNBLOCK 9 TIMEOUT",
            "CLIENT NO-EVICT on",
            "CONFIG SET lock.margin-ms 0",
            "CONFIG SET lock.margin-ms 2",
            "CONFIG SET lock.retention-ms -1",
            "CONFIG SET lock.retention-ms 300",
            "CONFIG SET lock.place-ms 0",
            "CONFIG SET lock.place-ms 200",
            "CONFIG SET lock.max-waiters 3",
            "CONFIG SET lock.max-waiters 200",
            "CONFIG SET lock.max-waiters -7",
            "CONFIG SET maxmemory-policy volatile-lru",
            "CONFIG SET maxmemory-policy allkeys-lru",
            "CONFIG SET maxmemory-policy noeviction",
            "CONFIG SET notify-keyspace-events KEAd",
            "CONFIG SET min-replicas-to-write 1",
            "DEBUG SLEEP 0.002",
            "DEBUG SET-ACTIVE-EXPIRE 0",
            "DEBUG SET-ACTIVE-EXPIRE 1",
            "DEBUG RELOAD",
            "FLUSHDB",
            "FLUSHALL ASYNC",
            "SWAPDB 0 1",
            "HELLO 3",
            "HELLO 2",
            "RESET",
            "QUIT",
            "INFO lock",
            "COMMAND DOCS lock.acquire",
            "MEMORY USAGE a",
        ]);
        if matches!(line, "QUIT") || line.starts_with("CLIENT KILL") {
            self.kills[0] = true;
        }
        line.split(' ').map(Into::into).collect()
    }

    /// A lock's timestamp, past or far in the future, or something else.
    fn score(&mut self) -> Vec<u8> {
        self.word(&[
            "1763710031.482913",
            "9999999999",
            "9999999999.999999",
            "1763710031",
            "0",
            "-1",
            "1e10",
            "inf",
            "17",
        ])
    }

    /// A recent grant's member as the module writes it, or something else.
    fn member(&mut self) -> Vec<u8> {
        match self.dice.below(8) {
            0 => self.word(&["player", "", "9007199254740991", "1763710000482913 ", "17637100004829137"]),
            1 | 2 => self.grants().1,
            _ => self.word(&[
                "1763710000482913",
                "1763710000482914 bob",
                "17637100004829150000000000000000007",
                "17637100004829160000000000000000007 alice",
                "9007199254740990",
            ]),
        }
    }
}
