//! The application's clients, for each kind of place.

use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, TlsCertificates,
};
use serde_json::Value;
use serverlock::Servers;

use crate::order::{Failure, Order, cannot};

pub(crate) enum Place {
    One(Box<Client>),
    Group(Servers),
}

fn settings(order: &Order) -> RedisConnectionInfo {
    let at = order.get("at");
    let mut settings = RedisConnectionInfo::default();
    if let Some(user) = at.get("user").and_then(Value::as_str) {
        settings = settings.set_username(user);
    }
    if let Some(password) = at.get("password").and_then(Value::as_str) {
        settings = settings.set_password(password);
    }
    if order.get("protocol").as_u64() == Some(3) {
        settings = settings.set_protocol(ProtocolVersion::RESP3);
    }
    settings
}

fn pairs(list: &Value) -> Vec<(String, u16)> {
    let pair = |pair: &Value| {
        let (host, port) = (pair.get(0)?.as_str()?, pair.get(1)?);
        let port = port.as_u64().or_else(|| port.as_str()?.parse().ok())?;
        Some((host.to_owned(), u16::try_from(port).ok()?))
    };
    list.as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(pair).collect()
}

fn info(addr: ConnectionAddr, order: &Order) -> Result<ConnectionInfo, Failure> {
    Ok(addr.into_connection_info()?.set_redis_settings(settings(order)))
}

impl Place {
    pub(crate) fn of(order: &Order) -> Result<Self, Failure> {
        let at = order.get("at");
        let field = |name: &str| at.get(name).unwrap_or(&Value::Null);
        match field("kind").as_str().unwrap_or_default() {
            "single" => {
                let host = field("host").as_str().unwrap_or_default().to_owned();
                let port = u16::try_from(field("port").as_u64().unwrap_or(0)).unwrap_or(0);
                let Some(ca) = field("tls").get("ca").and_then(Value::as_str) else {
                    return Ok(Self::One(Box::new(Client::open(info(ConnectionAddr::Tcp(host, port), order)?)?)));
                };
                let root_cert = Some(std::fs::read(ca).map_err(|error| cannot(error.to_string()))?);
                let addr = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
                let certificates = TlsCertificates { client_tls: None, root_cert };
                Ok(Self::One(Box::new(Client::build_with_tls(info(addr, order)?, certificates)?)))
            }
            "unix" => {
                let path = field("path").as_str().unwrap_or_default().into();
                Ok(Self::One(Box::new(Client::open(info(ConnectionAddr::Unix(path), order)?)?)))
            }
            "sentinel" => {
                let sentinels = pairs(field("sentinels"));
                let node = SentinelNodeConnectionInfo::default().set_redis_connection_info(settings(order));
                let master = field("master").as_str().unwrap_or_default().to_owned();
                let client = SentinelClient::build(sentinels, master, Some(node), SentinelServerType::Master)?;
                Ok(Self::Group(client.into()))
            }
            "cluster" => {
                let client = |(host, port)| Ok(Client::open(info(ConnectionAddr::Tcp(host, port), order)?)?);
                let clients: Result<Vec<_>, Failure> = pairs(field("nodes")).into_iter().map(client).collect();
                Ok(Self::Group(Servers::cluster(clients?)))
            }
            other => Err(cannot(format!("a place of the kind {other}"))),
        }
    }
}
