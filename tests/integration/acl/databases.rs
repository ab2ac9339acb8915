//! Users who are restricted to some databases (Valkey 9.1): they use locks there, and learn nothing about others.

use super::{is_denied, user};
use testkit::{until, Conn, Reply, Server};

/// `None`, with a message, where permissions know no databases.
fn with_permissions() -> Option<Server> {
    let server = Server::start();
    let knows = server.conn().execute(&["ACL", "SETUSER", "probe", "db=0"]) == Reply::Status("OK".into());
    if !knows {
        eprintln!("skipped: users of some databases: this needs Valkey 9.1");
    }
    knows.then_some(server)
}

fn tenant(server: &Server) -> Conn {
    let mut conn = user(server, &["~*", "&*", "+@all", "db=0,1"]);
    conn.ok(&["SELECT", "1"]);
    conn
}

#[test]
fn a_user_of_some_databases_waits_and_is_notified_there() {
    let Some(server) = with_permissions() else { return };
    let [mut holder, mut waiter, mut subscriber] = [(); 3].map(|()| tenant(&server));
    let token = holder.int(&["LOCK.ACQUIRE", "lock", "PX", "60000"]).to_string();
    waiter.send(&["LOCK.ACQUIRE", "lock", "PX", "60000", "WAIT", "60000"]);
    subscriber.execute(&["SUBSCRIBE", "tenant"]);
    until("it waits", || (holder.lock("lock", "waiters") == Reply::Int(1)).then_some(()));
    let ask = ["LOCK.ACQUIRE", "lock", "PX", "60000", "WAIT", "60000", "ID", "7", "NOTIFY", "tenant"];
    assert_eq!(holder.execute(&ask), Reply::Status("WAITING".into()));
    assert_eq!(holder.int(&["LOCK.RELEASE", "lock", &token]), 1);
    let token = waiter.read().int().to_string();
    assert_eq!(waiter.int(&["LOCK.RELEASE", "lock", &token]), 1);
    assert_eq!(subscriber.read().list()[2].text(), "granted 7 lock");
    holder.int(&ask);
}

#[test]
fn a_user_of_some_databases_learns_nothing_about_others() {
    let Some(server) = with_permissions() else { return };
    let mut admin = server.conn();
    admin.ok(&["SELECT", "3"]);
    admin.int(&["LOCK.ACQUIRE", "secret", "PX", "60000", "OWNER", "somebody"]);
    let mut waiter = server.conn();
    waiter.ok(&["SELECT", "3"]);
    waiter.send(&["LOCK.ACQUIRE", "secret", "PX", "60000", "WAIT", "60000"]);
    until("it waits", || (admin.lock("secret", "waiters") == Reply::Int(1)).then_some(()));
    assert_eq!(admin.execute(&["LOCK.TOP"]).list().len(), 1, "it lists the locks of all databases");

    let mut tenant = tenant(&server);
    assert!(is_denied(&tenant.execute(&["SELECT", "3"])));
    assert!(is_denied(&tenant.execute(&["LOCK.TOP"])), "it shows the locks of all databases");
    assert_eq!(tenant.state("secret"), "free");
    assert_eq!(tenant.execute(&["LOCK.SCAN", "0", "COUNT", "1000"]).list()[1].list().len(), 0);
    let script = "redis.call('SELECT', 3) return redis.call('LOCK.INFO', 'secret')";
    assert!(matches!(tenant.execute(&["EVAL", script, "1", "secret"]), Reply::Error(_)));

    let mut operator = user(&server, &["~*", "&*", "+@all", "alldbs"]);
    assert_eq!(operator.execute(&["LOCK.TOP"]).list().len(), 1);
}
