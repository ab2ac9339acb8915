//! The queue of the portable lock, on servers without the module: order, hand-off, claims, several holders and several
//! keys. Each test runs with functions and with the script.

mod claims;
mod dead;
mod limits;
mod order;
mod several;

use super::{load, Way};
use testkit::clock::Clocks;
use testkit::{skipped, Conn, Reply, Server};

/// The queue of lock `k`.
const QUEUE: &str = "k:queue:{k}";

/// A server without the module, and one way to call the lock there.
struct Place {
    server: Server,
    conn: Conn,
    way: Way,
}

impl Place {
    /// Sends a command, split at spaces, with the lock and its queue as keys.
    fn execute(&mut self, command: &str) -> Reply {
        self.conn.execute(&self.way.queued(command))
    }

    /// An attempt asks for `k` for a minute, and may wait for up to a minute.
    fn ask(&mut self, id: u32, channel: &str, more: &str) -> Reply {
        self.execute(format!("LOCK.ACQUIRE k PX 60000 WAIT 60000 ID {id} NOTIFY {channel} {more}").trim_end())
    }

    /// Asserts that the attempt has to wait, and to ask again after this many milliseconds.
    #[track_caller]
    fn waits(&mut self, id: u32, channel: &str, more: &str) -> i64 {
        let reply = self.ask(id, channel, more);
        let [word, ms] = reply.list() else { panic!("{reply:?}") };
        assert_eq!(word.text(), "WAITING");
        ms.int()
    }

    /// Asserts that the attempt is granted `k`. Returns its token.
    #[track_caller]
    fn is_granted(&mut self, id: u32, channel: &str, more: &str) -> i64 {
        self.ask(id, channel, more).int()
    }

    #[track_caller]
    fn release(&mut self, token: i64) {
        assert_eq!(self.execute(&format!("LOCK.RELEASE k {token}")), Reply::Int(1));
    }

    /// The IDs in the queue, in order; notified attempts are marked with `!`.
    fn queue(&mut self) -> Vec<String> {
        let reply = self.conn.execute(&["ZRANGEBYSCORE", QUEUE, "(-inf", "+inf", "WITHSCORES"]);
        let words: Vec<String> = reply.list().iter().map(Reply::text).collect();
        words
            .chunks(2)
            .map(|pair| {
                let id = pair[0].split(' ').next().unwrap().trim_start_matches('0');
                if pair[1].starts_with('-') {
                    format!("{id}!")
                } else {
                    id.to_string()
                }
            })
            .collect()
    }

    /// The skipped channels.
    fn skipped(&mut self) -> Vec<String> {
        let reply = self.conn.execute(&["ZRANGEBYSCORE", QUEUE, "-inf", "-inf"]);
        reply.list().iter().map(|member| member.text()[1..].to_string()).collect()
    }

    fn subscriber(&self, channel: &str) -> Subscriber {
        let mut conn = self.server.conn();
        assert_eq!(conn.execute(&["SUBSCRIBE", channel]).list()[2], Reply::Int(1));
        Subscriber(conn)
    }
}

/// A connection that is subscribed to one channel.
struct Subscriber(Conn);

impl Subscriber {
    #[track_caller]
    fn receives(&mut self, message: &str) {
        assert_eq!(self.0.read().list()[2].text(), message);
    }

    /// Asserts that nothing was published to it. `other` may publish on `channel`.
    #[track_caller]
    fn received_nothing(&mut self, other: &mut Conn, channel: &str) {
        other.int(&["PUBLISH", channel, "the end"]);
        self.receives("the end");
    }
}

/// Runs a test once for each way to call the lock, each on its own server.
fn in_each_way(test: impl Fn(&mut Place)) {
    for which in 0.. {
        let (server, mut conn) = Server::with().without_module().connected();
        let Some(way) = load(&mut conn).into_iter().nth(which) else { break };
        test(&mut Place { server, conn, way });
    }
}

/// A server whose clock the test moves.
struct Clocked {
    place: Place,
    clocks: Clocks,
    now_us: i64,
}

impl Clocked {
    fn pass(&mut self, us: i64) {
        self.now_us += us;
        self.clocks.set(3, &[self.now_us]);
    }
}

/// Like [`in_each_way`], with a clock that stops where the test sets it. Skips, with a message, if clocks cannot be
/// moved.
fn with_a_clock(test: impl Fn(&mut Clocked)) {
    for which in 0.. {
        let Some(clocks) = Clocks::new(&[0; 4]) else { return };
        let (server, mut conn) = clocks.of(Server::with().without_module()).connected();
        let Some(way) = load(&mut conn).into_iter().nth(which) else { break };
        let mut clocked = Clocked { place: Place { server, conn, way }, clocks, now_us: 1_790_000_000_123_457 };
        clocked.pass(0);
        if testkit::server_time_us(&mut clocked.place.conn) != clocked.now_us {
            skipped("a clock that stands still", "a preloaded library does not move this server's clocks");
            return;
        }
        test(&mut clocked);
    }
}
