//! A server whose clocks stop during a step, and are set between steps.

use super::clocks::Clocks;
use super::command::{name, Answers, Command, Content, Received, Seen, CONTROL};
use super::model::fake::Settings;
use super::model::steps::{Acquire, Share, CLIENTS, KEYS};
use redis_lock_core::lock::retention::Retention;
use testkit::{clock, server_time_us, Conn, Reply, Server};

pub struct Real {
    moved: clock::Clocks,
    server: Server,
    control: Conn,
    /// The connection that has selected the other database.
    other: Conn,
    /// The clients' numbers on the server, and their connections.
    clients: Vec<(u64, Conn)>,
    /// Whether the module lets CLIENT UNBLOCK end waits.
    pub can_unblock: bool,
}

type Words = Vec<Vec<u8>>;

fn words(words: &[&dyn ToString]) -> Words {
    words.iter().map(|word| word.to_string().into_bytes()).collect()
}

fn text(key: u8) -> String {
    String::from_utf8(name(key)).unwrap()
}

fn counted(keys: &[u8]) -> Words {
    std::iter::once(keys.len().to_string().into_bytes()).chain(keys.iter().map(|key| name(*key))).collect()
}

impl Real {
    /// Starts a server; `None`, with a message, if its clocks cannot be stopped.
    pub fn start(settings: &Settings, clocks: Clocks) -> Option<Self> {
        let moved = clock::Clocks::new(&clocks.numbers())?;
        let retention = match settings.retention {
            Retention::Forever => -1,
            Retention::Ms(ms) => i64::try_from(ms).unwrap(),
        };
        let (margin, place) = (settings.margin.0 / 1_000, settings.limits.place.0 / 1_000);
        let options = Server::with()
            .module_args(&["margin-ms", &margin.to_string(), "retention-ms", &retention.to_string()])
            .module_args(&["place-ms", &place.to_string(), "max-waiters", &settings.limits.waiters.to_string()]);
        let server = moved.of(options).start();
        server.allow_silent_changes();
        let mut control = server.conn();
        let mut other = server.conn();
        other.ok(&["SELECT", "1"]);
        // So the same command finds a key expired on both servers.
        control.ok(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        let version @ (is_valkey, major, minor) = control.version();
        // Before Redis 7.4 and Valkey 8.0 the module does not let CLIENT UNBLOCK end waits.
        let can_unblock = (major, minor) >= if is_valkey { (8, 0) } else { (7, 4) };
        let mut own = Self { moved, server, control, other, clients: Vec::new(), can_unblock };
        // Valkey 8.1 and later load modules in such a way that they bypass a preloaded library when reading the clocks.
        let reads_past = version >= (true, 8, 1);
        let stands = u64::try_from(server_time_us(&mut own.control)).unwrap() == clocks.wall();
        if reads_past || !stands {
            eprintln!("skipped: the clocks of this server cannot be stopped");
            return None;
        }
        for _ in 0..CLIENTS {
            let client = own.connect();
            own.clients.push(client);
        }
        Some(own)
    }

    fn connect(&self) -> (u64, Conn) {
        let mut conn = self.server.conn();
        (u64::try_from(conn.int(&["CLIENT", "ID"])).unwrap(), conn)
    }

    pub fn conns(&self) -> Vec<u64> {
        self.clients.iter().map(|(conn, _)| *conn).collect()
    }

    /// Opens a new connection for a client whose connection has ended.
    pub fn reconnect(&mut self, client: usize) -> u64 {
        self.clients[client] = self.connect();
        self.clients[client].0
    }

    /// Moves the clocks to these readings.
    pub fn set_clocks(&mut self, clocks: Clocks) {
        self.moved.set(0, &clocks.numbers());
    }

    /// Waits until this many iterations of the event loop have ended.
    pub fn settle(&mut self, iterations: usize) {
        for _ in 0..iterations {
            assert_eq!(self.control.execute(&["PING"]), Reply::Status("PONG".into()));
        }
    }

    /// Sends commands so that the server reads them together. Returns the replies to the clients that do not wait for a
    /// lock.
    pub fn execute(&mut self, commands: &[Command]) -> Answers {
        let mut bytes = Vec::new();
        let mut replies = 0;
        for command in commands {
            let mut add = |words: &Words| {
                bytes.extend(testkit::encoded(words));
                replies += 1;
            };
            match command {
                Command::Acquire { conn, command, several } => {
                    self.ask(*conn, &acquire(command, *several), command.in_transaction);
                }
                Command::Recover { conn, key, lease, id } => {
                    let mut recover = words(&[&"LOCK.RECOVER", &text(*key), &"PX", lease]);
                    recover.extend(id.iter().flat_map(|id| words(&[&"ID", id])));
                    self.ask(*conn, &recover, false);
                }
                Command::Swap => {
                    for key in 0..KEYS {
                        let (from, to) = (text(key), text(KEYS - 1 - key));
                        self.other.int(&["DEL", &to]);
                        self.control.int(&["COPY", &from, &to, "DB", "1"]);
                    }
                    add(&words(&[&"SWAPDB", &0, &1]));
                }
                other => add(&plain(other)),
            }
        }
        self.control.send_bytes(&bytes);
        (0..replies).map(|_| (CONTROL, received(&self.control.read()))).collect()
    }

    fn ask(&mut self, conn: u64, command: &Words, in_transaction: bool) {
        let (_, conn) = self.clients.iter_mut().find(|(own, _)| *own == conn).unwrap();
        if in_transaction {
            conn.ok(&["MULTI"]);
            assert_eq!(conn.execute(command), Reply::Status("QUEUED".into()));
            conn.send(&["EXEC"]);
        } else {
            conn.send(command);
        }
    }

    /// The replies to clients since the last call.
    pub fn answers(&mut self) -> Answers {
        let mut answers = Vec::new();
        for (number, conn) in &mut self.clients {
            while conn.has_reply() {
                answers.push((*number, received(&conn.read())));
            }
        }
        answers
    }

    /// A key's current content.
    pub fn inspect(&mut self, key: u8, full: bool) -> Seen {
        let name = text(key);
        self.control.send(&["PTTL", &name]);
        self.control.send(&["GET", &name]);
        self.control.send(&["ZRANGE", &name, "0", "-1", "WITHSCORES"]);
        if full {
            self.control.send(&["LOCK.INFO", &name, "FULL"]);
        }
        let (left, string, set) = (self.control.read().int(), self.control.read(), self.control.read());
        let content = match (string, &set) {
            (text @ Reply::Text(_), _) => Some(Content::String(text.text())),
            (_, Reply::List(list)) if !list.is_empty() => {
                let mut set: Vec<_> = list.chunks(2).map(|pair| (pair[0].text(), micros(&pair[1].text()))).collect();
                set.sort();
                Some(Content::Set(set))
            }
            (Reply::Nil, _) => None,
            other => panic!("neither a string nor a set: {other:?}"),
        };
        let stored = content.map(|content| (content, u64::try_from(left).ok()));
        let full = full.then(|| {
            let info = self.control.read();
            let count = |of: &Reply, field: &str| u64::try_from(of.field(field).int()).unwrap();
            let line = info
                .field("queue")
                .list()
                .iter()
                .map(|row| {
                    let id = Some(row.field("id")).filter(|id| !id.is_nil()).map(|id| id.text().parse().unwrap());
                    (count(row, "client"), id, count(row, "waited-ms"), count(row, "left-ms"))
                })
                .collect();
            let Reply::List(fields) = &info else { panic!("no map: {info:?}") };
            let mut tokens = Vec::new();
            if fields.contains(&Reply::Text(b"holders".to_vec())) {
                tokens = info.field("holders").list().iter().map(|holder| count(holder, "token")).collect();
                tokens.sort_unstable();
            }
            (line, tokens)
        });
        Seen { stored, full }
    }
}

/// A score, which is a double, in seconds.
fn micros(score: &str) -> u64 {
    let seconds: f64 = score.parse().unwrap();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let micros = (seconds * 1e6).round() as u64;
    micros
}

fn acquire(command: &Acquire, several: bool) -> Words {
    let mut args = if several {
        [words(&[&"LOCK.MACQUIRE"]), counted(&command.keys)].concat()
    } else {
        words(&[&"LOCK.ACQUIRE", &text(command.keys[0]), &"DETAILS"])
    };
    args.extend(words(&[&"PX", &command.lease]));
    match command.share {
        Share::Alone => {}
        Share::Shared => args.extend(words(&[&"SHARED"])),
        Share::Limit(most) => args.extend(words(&[&"LIMIT", &most])),
    }
    if command.wait > 0 {
        args.extend(words(&[&"WAIT", &command.wait]));
    }
    if let Some(id) = command.id {
        args.extend(words(&[&"ID", &id]));
    }
    if command.session {
        args.extend(words(&[&"SESSION"]));
    }
    if command.wants_result {
        args.extend(words(&[&"RESULT"]));
    }
    args
}

/// A command that gets its reply at once.
fn plain(command: &Command) -> Words {
    match command {
        Command::Extend { token, keys, lease, several: false } => {
            words(&[&"LOCK.EXTEND", &text(keys[0]), token, &"PX", lease])
        }
        Command::Extend { token, keys, lease, several: true } => {
            [words(&[&"LOCK.MEXTEND"]), counted(keys), words(&[token, &"PX", lease])].concat()
        }
        Command::Release { token, key, result: None } => words(&[&"LOCK.RELEASE", &text(*key), token]),
        Command::Release { token, key, result: Some(result) } => {
            words(&[&"LOCK.RELEASE", &text(*key), token, &"RESULT", result])
        }
        Command::ReleaseAll { token, keys } => [words(&[&"LOCK.MRELEASE"]), counted(keys), words(&[token])].concat(),
        Command::Check { token, key } => words(&[&"LOCK.CHECK", &text(*key), token]),
        Command::Cancel { key, id } => words(&[&"LOCK.CANCEL", &text(*key), id]),
        Command::Kill { conn } => words(&[&"CLIENT", &"KILL", &"ID", conn]),
        Command::Unblock { conn } => words(&[&"CLIENT", &"UNBLOCK", conn]),
        Command::Delete { key } => words(&[&"DEL", &text(*key)]),
        Command::Put { key, value, expires_in_ms } => {
            let mut set = words(&[&"SET", &text(*key)]);
            set.push(value.clone());
            set.extend(expires_in_ms.iter().flat_map(|ms| words(&[&"PX", ms])));
            set
        }
        Command::Rename { from, to } => words(&[&"RENAME", &text(*from), &text(*to)]),
        Command::Copy { from, to } => words(&[&"COPY", &text(*from), &text(*to), &"REPLACE"]),
        Command::Flush => words(&[&"FLUSHDB"]),
        Command::Notice { key } => words(&[&"EXISTS", &text(*key)]),
        Command::Acquire { .. } | Command::Recover { .. } | Command::Swap => panic!("{command:?} is not plain"),
    }
}

fn received(reply: &Reply) -> Received {
    let count = |reply: &Reply| Some(reply).filter(|it| !it.is_nil()).map(|it| u64::try_from(it.int()).unwrap());
    match reply {
        Reply::Nil => Received::Nil,
        Reply::Int(number) => Received::Number(*number),
        Reply::Status(_) => Received::Done,
        Reply::Error(text) => Received::Error(text.clone()),
        Reply::Text(bytes) => Received::Result(bytes.clone()),
        Reply::List(list) => match &list[..] {
            // EXEC, or a result
            [only] => received(only),
            [token, overdue, before, _] => Received::Details(count(token).unwrap(), count(overdue), count(before)),
            other => panic!("an unexpected list: {other:?}"),
        },
        other => panic!("an unexpected reply: {other:?}"),
    }
}
