//! Sends commands to the server that has the key. In a cluster it follows MOVED and ASK.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Client, Cmd, ConnectionAddr, RedisResult, Value};

use crate::connection::Connection;
use crate::failures::{Call, Failure, Reply, failure, number, text};
use crate::slot::slot;
use crate::sync::locked;

const MOST_HOPS: u32 = 5;
const MOST_SERVERS: usize = 1000;

/// Where the locks are: one server, a group behind Sentinels, or a cluster.
#[derive(Clone, Debug)]
pub struct Servers(Kind);

#[derive(Clone)]
enum Kind {
    One(Arc<Client>),
    #[cfg(feature = "sentinel")]
    Sentinel(Arc<Asked>),
    Cluster(Arc<[Client]>),
    #[cfg(feature = "testing")]
    Memory,
}

/// Sentinels, asked by one caller at a time, because each further caller would block a thread.
#[cfg(feature = "sentinel")]
struct Asked {
    client: Mutex<redis::sentinel::SentinelClient>,
    turn: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::One(_) => "one server",
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => "Sentinels",
            Self::Cluster(_) => "a cluster",
            #[cfg(feature = "testing")]
            Self::Memory => "a server in memory",
        })
    }
}

impl From<Client> for Servers {
    fn from(client: Client) -> Self {
        Self(Kind::One(Arc::new(client)))
    }
}

impl From<&Client> for Servers {
    fn from(client: &Client) -> Self {
        client.clone().into()
    }
}

#[cfg(feature = "sentinel")]
impl From<redis::sentinel::SentinelClient> for Servers {
    fn from(client: redis::sentinel::SentinelClient) -> Self {
        Self(Kind::Sentinel(Arc::new(Asked { client: Mutex::new(client), turn: tokio::sync::Mutex::default() })))
    }
}

impl Servers {
    /// A cluster, given by some of its servers. The first one's password and TLS settings apply to all.
    pub fn cluster(clients: impl IntoIterator<Item = Client>) -> Self {
        Self(Kind::Cluster(clients.into_iter().collect()))
    }

    /// A server in memory, which has no address.
    #[cfg(feature = "testing")]
    pub(crate) fn in_memory() -> Self {
        Self(Kind::Memory)
    }

    fn is_cluster(&self) -> bool {
        matches!(self.0, Kind::Cluster(_))
    }

    /// The client for the server at that address; without an address, for the only server, or the master.
    pub(crate) fn client(&self, address: Option<&str>) -> RedisResult<Client> {
        match &self.0 {
            Kind::One(client) => Ok(client.as_ref().clone()),
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(asked) => locked(&asked.client).get_client(),
            Kind::Cluster(clients) => {
                let none = || (redis::ErrorKind::InvalidClientConfig, "a cluster needs at least one server");
                let first = clients.first().ok_or_else(none)?;
                let Some(address) = address else { return Ok(first.clone()) };
                let info = first.get_connection_info();
                Client::open(info.clone().set_addr(placed(info.addr(), address)))
            }
            #[cfg(feature = "testing")]
            Kind::Memory => Err((redis::ErrorKind::InvalidClientConfig, "a server in memory has no address").into()),
        }
    }

    /// The cluster addresses that the application named.
    fn seeds(&self) -> Vec<String> {
        let Kind::Cluster(clients) = &self.0 else { return Vec::new() };
        clients.iter().map(|client| client.get_connection_info().addr().to_string()).collect()
    }

    /// Like [`Self::client`], without holding up other tasks.
    #[cfg_attr(not(feature = "sentinel"), allow(clippy::unused_async))] // Only Sentinels have to be asked.
    pub(crate) async fn find(&self, address: Option<&str>) -> Result<Client, Failure> {
        #[cfg(feature = "sentinel")]
        if let Kind::Sentinel(asked) = &self.0 {
            let _turn = asked.turn.lock().await;
            let servers = self.clone();
            return match tokio::task::spawn_blocking(move || servers.client(None)).await {
                Ok(client) => client.map_err(failure),
                Err(_) => Err(Failure::broken("the runtime is ending")),
            };
        }
        self.client(address).map_err(failure)
    }
}

/// The same kind of address, with another host and port.
fn placed(addr: &ConnectionAddr, address: &str) -> ConnectionAddr {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let (host, port) = (host.trim_matches(['[', ']']).to_owned(), port.parse().unwrap_or(6379));
    match addr {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// A connection being opened.
pub(crate) type Dialing = Pin<Box<dyn Future<Output = Result<Arc<Connection>, Failure>> + Send>>;

/// One server, reached over the application's connections.
pub(crate) trait Server: Send + Sync {
    /// One exchange, after an ASKING if `is_asking`. A command is sent at most once.
    fn call(&self, cmd: Cmd, is_asking: bool, timeout: Duration) -> Call;
    /// Keeps to one connection, unless there have ever been two. Returns whether it does. `crowded` is called when
    /// callers have to wait.
    fn narrow(&self, crowded: Box<dyn FnOnce() + Send>) -> bool;
    /// Ends `narrow`.
    fn widen(&self);
    /// Whether calls take another route while a reply is late.
    fn passes_late_replies(&self) -> bool {
        false
    }
    /// How many calls are in flight, and how many wait for a turn.
    fn in_use(&self) -> (usize, usize) {
        (0, 0)
    }
    /// Opens a dedicated connection to a server that has no address.
    fn dial(&self) -> Option<Dialing> {
        None
    }
    /// A connection on which the calling thread itself blocks, if threads send the calls.
    fn connection(&self, _timeout: Duration) -> Option<Result<Arc<Connection>, Failure>> {
        None
    }
}

/// Creates the route to a server: the only one, or the one at an address.
pub(crate) type Opens = Box<dyn Fn(Option<String>) -> Arc<dyn Server> + Send + Sync>;

/// Sends commands to the server that has the key.
pub(crate) struct Router {
    servers: Servers,
    opens: Opens,
    map: Mutex<Map>,
}

#[derive(Default)]
struct Map {
    only: Option<Arc<dyn Server>>,
    by_address: HashMap<String, Arc<dyn Server>>,
    slots: Vec<(u16, u16, String)>,
}

impl Router {
    pub(crate) fn new(servers: Servers, opens: Opens) -> Self {
        Self { servers, opens, map: Mutex::default() }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.servers.is_cluster()
    }

    /// The sum over all servers: see [`Server::in_use`].
    pub(crate) fn in_use(&self) -> (usize, usize) {
        let map = locked(&self.map);
        let all = map.only.iter().chain(map.by_address.values()).map(|server| server.in_use());
        all.fold((0, 0), |(slots, queue), (more, longer)| (slots.saturating_add(more), queue.saturating_add(longer)))
    }

    fn only(&self) -> Arc<dyn Server> {
        let mut map = locked(&self.map);
        Arc::clone(map.only.get_or_insert_with(|| (self.opens)(None)))
    }

    /// See [`Server::passes_late_replies`]; it is the same for all servers of a cluster.
    pub(crate) fn passes_late_replies(&self) -> bool {
        let map = locked(&self.map);
        map.only.iter().chain(map.by_address.values()).any(|server| server.passes_late_replies())
    }

    fn at(&self, address: &str) -> Arc<dyn Server> {
        let mut map = locked(&self.map);
        if map.by_address.len() > MOST_SERVERS {
            map.by_address.clear();
        }
        if let Some(known) = map.by_address.get(address) {
            return Arc::clone(known);
        }
        let made = (self.opens)(Some(address.to_owned()));
        map.by_address.insert(address.to_owned(), Arc::clone(&made));
        made
    }

    /// The known address of a key in a cluster.
    fn address(&self, key: &[u8]) -> Option<String> {
        let slot = slot(key);
        let map = locked(&self.map);
        map.slots.iter().find(|(from, to, _)| (*from..=*to).contains(&slot)).map(|(_, _, address)| address.clone())
    }

    async fn located(&self, key: &[u8], timeout: Duration) -> Result<String, Failure> {
        if let Some(known) = self.address(key) {
            return Ok(known);
        }
        self.refresh(timeout).await?;
        self.address(key).ok_or_else(|| Failure::broken("no server of the cluster serves the slot of the key"))
    }

    /// One exchange with the key's server.
    pub(crate) fn call(self: &Arc<Self>, key: &[u8], cmd: Cmd, timeout: Duration) -> Call {
        if !self.is_cluster() {
            return self.only().call(cmd, false, timeout);
        }
        let (router, key) = (Arc::clone(self), key.to_vec());
        Box::pin(async move { router.routed(&key, &cmd, timeout).await })
    }

    async fn routed(&self, key: &[u8], cmd: &Cmd, timeout: Duration) -> Reply {
        let mut address = self.located(key, timeout).await?;
        let mut is_asking = false;
        for _ in 0..MOST_HOPS {
            let reply = self.at(&address).call(cmd.clone(), is_asking, timeout).await;
            let Err(Failure::Reply(said)) = &reply else { return reply };
            if !matches!(said.code.as_str(), "MOVED" | "ASK") {
                return reply;
            }
            // MOVED slot address
            let Some(named) = said.text.split(' ').nth(2).map(str::to_owned) else { return reply };
            is_asking = said.code == "ASK";
            if !is_asking {
                let _ = self.refresh(timeout).await;
            }
            address = match self.address(key) {
                Some(known) if !is_asking && known != address => known,
                _ => named,
            };
        }
        Err(Failure::broken("the cluster redirects the call in a circle"))
    }

    /// Asks again which server has which keys.
    pub(crate) async fn refresh(&self, timeout: Duration) -> Result<(), Failure> {
        if !self.is_cluster() {
            return Ok(());
        }
        let mut addresses: Vec<String> =
            locked(&self.map).slots.iter().map(|(_, _, address)| address.clone()).collect();
        addresses.extend(self.servers.seeds());
        addresses.dedup();
        let mut last = Failure::broken("a cluster needs at least one server");
        for address in addresses {
            let mut cmd = Cmd::new();
            cmd.arg("CLUSTER").arg("SLOTS");
            match self.at(&address).call(cmd, false, timeout).await {
                Ok(reply) => {
                    let slots = slots(&reply, &address);
                    if !slots.is_empty() {
                        locked(&self.map).slots = slots;
                        return Ok(());
                    }
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// The address of the key's server in a cluster.
    pub(crate) async fn server_of(&self, key: &[u8], timeout: Duration) -> Result<Option<String>, Failure> {
        Ok(if self.is_cluster() { Some(self.located(key, timeout).await?) } else { None })
    }

    /// Opens a connection to the server that has the key.
    pub(crate) async fn dial(&self, key: &[u8], timeout: Duration) -> Result<Arc<Connection>, Failure> {
        let address = self.server_of(key, timeout).await?;
        self.dial_at(address.as_deref(), timeout).await
    }

    /// Opens a connection to the server at that address; without an address, to the only server, or the master.
    pub(crate) async fn dial_at(&self, address: Option<&str>, timeout: Duration) -> Result<Arc<Connection>, Failure> {
        if let (None, Some(dialing)) = (address, self.only().dial()) {
            return dialing.await;
        }
        let client = self.servers.find(address).await?;
        // This runs on a thread of the runtime, because some callers have too small a stack for it.
        match tokio::spawn(async move { Connection::open(&client, timeout).await }).await {
            Ok(connection) => connection,
            Err(_) => Err(Failure::broken("the runtime is ending")),
        }
    }

    /// Opens the connection of a lone wait.
    pub(crate) async fn dial_alone(&self, key: &[u8], timeout: Duration) -> Result<Arc<Connection>, Failure> {
        match self.only().connection(timeout) {
            Some(connection) => connection,
            None => self.dial(key, timeout).await,
        }
    }

    /// `narrow` and `widen` apply to a single server; a cluster cannot be narrowed.
    pub(crate) fn narrow(&self, crowded: Box<dyn FnOnce() + Send>) -> bool {
        !self.is_cluster() && self.only().narrow(crowded)
    }

    pub(crate) fn widen(&self) {
        if !self.is_cluster() {
            self.only().widen();
        }
    }
}

/// Reads CLUSTER SLOTS. A server that does not know its own name has the address that was queried.
fn slots(reply: &Value, asked: &str) -> Vec<(u16, u16, String)> {
    let Value::Array(ranges) = reply else { return Vec::new() };
    let range = |range: &Value| -> Option<(u16, u16, String)> {
        let Value::Array(words) = range else { return None };
        let [from, to, Value::Array(master), ..] = words.as_slice() else { return None };
        let [host, port, ..] = master.as_slice() else { return None };
        let mut host = text(host);
        if host.is_empty() || host == "?" {
            asked.rsplit_once(':').map_or(asked, |(host, _)| host).clone_into(&mut host);
        }
        let bound = |value| number(value).and_then(|slot| u16::try_from(slot).ok());
        Some((bound(from)?, bound(to)?, format!("{host}:{}", number(port)?)))
    };
    ranges.iter().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unnamed_server_of_a_cluster_has_the_address_that_was_queried() {
        let node = |host: &str, port| Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        let reply = Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Int(99), node("10.0.0.1", 7000), node("10.0.0.2", 7001)]),
            Value::Array(vec![Value::Int(100), Value::Int(16383), node("", 7002)]),
            Value::Nil,
        ]);
        let expected = vec![(0, 99, "10.0.0.1:7000".to_owned()), (100, 16383, "here:7002".to_owned())];
        assert_eq!(slots(&reply, "here:7000"), expected);
    }

    #[test]
    fn an_ipv6_address_is_read_with_its_brackets() {
        let any = ConnectionAddr::Tcp("a".into(), 1);
        assert_eq!(placed(&any, "[::1]:7000"), ConnectionAddr::Tcp("::1".into(), 7000));
    }
}
