//! A server's address and login.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates};

pub const DEFAULT_PORT: u16 = 6379;
pub const SENTINEL_PORT: u16 = 26_379;

/// The login for all servers without one of their own.
#[derive(Clone, Default)]
pub struct Login {
    pub user: Option<String>,
    pub password: Option<String>,
    /// The database to scan; `None` if none was named.
    pub db: Option<i64>,
    pub tls: bool,
    /// Accept any certificate.
    pub insecure: bool,
    pub certificates: Option<TlsCertificates>,
}

/// A server to connect to.
#[derive(Clone)]
pub struct Target {
    place: ConnectionAddr,
    login: Login,
}

impl Target {
    /// Reads `HOST`, `HOST:PORT`, the path of a socket, or a URL, which may contain its own login.
    pub fn parse(text: &str, login: &Login, default_port: u16) -> Result<Self, String> {
        if text.contains("://") {
            // The text is not repeated: it can contain a password.
            let info = text
                .into_connection_info()
                .map_err(|_| "this is not the URL of a server: redis://, rediss:// or unix://")?;
            return Ok(Self::of_url(&info, login));
        }
        if text.starts_with('/') {
            return Ok(Self { place: ConnectionAddr::Unix(text.into()), login: login.clone() });
        }
        let (host, port) = host_and_port(text, default_port).ok_or_else(|| format!("not HOST or HOST:PORT: {text}"))?;
        Ok(Self::at(&host, port, login))
    }

    /// A server at an address that another server reported.
    pub fn at(host: &str, port: u16, login: &Login) -> Self {
        let host = host.to_string();
        let place = if login.tls {
            ConnectionAddr::TcpTls { host, port, insecure: login.insecure, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        Self { place, login: login.clone() }
    }

    fn of_url(info: &ConnectionInfo, login: &Login) -> Self {
        let (mut login, settings) = (login.clone(), info.redis_settings());
        if let Some(password) = settings.password() {
            (login.user, login.password) = (settings.username().map(Into::into), Some(password.into()));
        }
        if settings.db() != 0 {
            login.db = Some(settings.db());
        }
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => Self::at(host, *port, &login),
            ConnectionAddr::TcpTls { host, port, insecure, .. } => {
                login.tls = true;
                login.insecure |= *insecure;
                Self::at(host, *port, &login)
            }
            other => Self { place: other.clone(), login },
        }
    }

    /// The same login at another address; an empty host means this server's own.
    pub fn neighbour(&self, host: &str, port: u16) -> Self {
        let own = self.host().unwrap_or_else(|| "127.0.0.1".into());
        Self::at(if host.is_empty() || host == "?" { &own } else { host }, port, &self.login)
    }

    fn host(&self) -> Option<String> {
        match &self.place {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host.clone()),
            _ => None,
        }
    }

    /// The address to display; it identifies the server in the view.
    pub fn address(&self) -> String {
        match &self.place {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            place => place.to_string(),
        }
    }

    pub fn login(&self) -> &Login {
        &self.login
    }

    pub fn client(&self) -> redis::RedisResult<redis::Client> {
        // CLIENT SETINFO would be recorded in each server's ACL LOG if the user may not send it.
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &self.login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.login.password {
            settings = settings.set_password(password);
        }
        // Each query names the database of its lock.
        let info = self.place.clone().into_connection_info()?.set_redis_settings(settings);
        match &self.login.certificates {
            Some(certificates) if self.login.tls => redis::Client::build_with_tls(info, certificates.clone()),
            _ => redis::Client::open(info),
        }
    }
}

/// `HOST`, `HOST:PORT`, `[V6]:PORT`, or a bare IPv6 address.
fn host_and_port(text: &str, default_port: u16) -> Option<(String, u16)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = if port.is_empty() { default_port } else { port.strip_prefix(':')?.parse().ok()? };
        return (!host.is_empty()).then(|| (host.into(), port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, port.parse().ok()?),
        _ => (text, default_port),
    };
    (!host.is_empty()).then(|| (host.into(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Target, String> {
        Target::parse(text, &Login { user: Some("ops".into()), ..Login::default() }, DEFAULT_PORT)
    }

    #[test]
    fn a_server_is_named_in_many_ways() {
        let cases = [
            ("db1", "db1:6379"),
            ("db1:7000", "db1:7000"),
            ("[::1]:7000", "[::1]:7000"),
            ("[::1]", "[::1]:6379"),
            ("::1", "[::1]:6379"),
            ("/run/redis.sock", "/run/redis.sock"),
            ("redis://db1:7001/3", "db1:7001"),
            ("rediss://db1", "db1:6379"),
            ("unix:///run/redis.sock?db=2", "/run/redis.sock"),
        ];
        for (text, address) in cases {
            assert_eq!(parsed(text).map(|target| target.address()), Ok(address.into()), "{text}");
        }
        for bad in ["", ":7000", "db1:", "db1:99999", "[::1", "[]:1", "http://db1"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_url_brings_its_own_login_and_never_shows_it() {
        let target = parsed("rediss://bob:s%20cret@db1:7001/3#insecure").unwrap();
        let login = target.login();
        assert_eq!((login.user.as_deref(), login.password.as_deref()), (Some("bob"), Some("s cret")));
        assert!(login.tls && login.insecure && login.db == Some(3));
        assert_eq!(parsed("redis://db1").unwrap().login().user.as_deref(), Some("ops"));
        let Err(error) = parsed("redis://bob:secret@db1:port") else { panic!("no error") };
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_neighbour_without_a_host_is_at_the_same_host() {
        let target = parsed("rediss://bob:x@db1:7001").unwrap();
        assert_eq!(target.neighbour("", 7002).address(), "db1:7002");
        let other = target.neighbour("db2", 7003);
        assert!(other.address() == "db2:7003" && other.login().tls && other.login().user.as_deref() == Some("bob"));
    }
}
