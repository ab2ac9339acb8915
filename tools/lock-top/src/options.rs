//! The command line.

use crate::model::By;
use crate::target::{Login, Target, DEFAULT_PORT, SENTINEL_PORT};
use lexopt::prelude::*;
use redis::{ClientTlsConfig, TlsCertificates};
use std::ffi::OsString;
use std::time::Duration;

pub const HELP: &str = "\
lock-top shows who holds and who waits for the locks of redis-lock.

Usage: lock-top [OPTION]... [SERVER]...

A SERVER is HOST, HOST:PORT, the path of a unix socket, or a URL: redis://,
rediss:// (TLS) or unix://. It is 127.0.0.1:6379 if none is named. For a
cluster, name any node: lock-top finds the other masters. With --sentinel, each
SERVER is a Sentinel (port 26379).

Servers (same option letters as redis-cli):
  -h HOST              a server, like HOST without -h
  -p PORT              port of the servers that name none
  -s SOCKET, -u URL    a server, like the path or the URL without -s and -u
  --sentinel NAME      the group NAME, as the Sentinels know it
  --only               only the servers named here, not the rest of a cluster
  --user NAME          ACL user
  -a, --pass PASSWORD  password; others can see it in the list of processes, so
                       set REDISCLI_AUTH or use --pass-file
  --pass-file FILE     file with the password in its first line
  -n, --db N           database that --all scans (default 0), and the only one
                       that --held-for scans (default: all of them)
  --tls                connect with TLS
  --cacert FILE        CA certificate (default: the system's)
  --cert FILE, --key FILE   certificate and key of this client
  --insecure           accept any certificate

View:
  --by WORD            sort by waiters (default), wait or held
  --all                also locks that nobody waits for (LOCK.SCAN)
  --count N            how many locks LOCK.TOP lists, 1 to 200 (default 50)
  --interval SECONDS   time between two polls, 0.5 to 60 (default 1)
  --read-only          never release or cancel anything
  --no-color           no colours, as with the variable NO_COLOR
  --ascii              draw with ASCII letters only

Scripts:
  --once               print one snapshot as text, and end
  --held-for TIME      print the locks that have been held for at least this
                       time (90s, 30m, 1h, 2d), even if nobody waits for them,
                       and end
  --metrics            print how many these are, for Prometheus; needs
                       --held-for
  --json               print JSON; needs --once or --held-for

  --help, --version

A poll is at most 13 calls to each server, over one connection, plus SELECT if
locks are in several databases. With --once, the exit status is 1 if a server
could not be asked. With --held-for it is 1 if such a lock was found, and 2 if a
server could not be asked. It is 2 for bad arguments.
";

pub enum Asked {
    Help,
    Version,
    Run(Box<Options>),
}

// Each `bool` is an independent switch.
#[allow(clippy::struct_excessive_bools)]
pub struct Options {
    pub targets: Vec<Target>,
    /// The name of the group, if the targets are Sentinels.
    pub sentinel: Option<String>,
    /// How to log in to servers that other servers report.
    pub login: Login,
    pub only: bool,
    pub by: By,
    pub all: bool,
    pub count: usize,
    pub interval: Duration,
    pub read_only: bool,
    pub color: bool,
    pub ascii: bool,
    pub once: bool,
    /// Print the locks that have been held for at least this time.
    pub held_for: Option<Duration>,
    pub metrics: bool,
    pub json: bool,
}

/// The raw arguments. They are resolved last, because the login and the port may follow the servers.
#[derive(Default)]
struct Deferred {
    servers: Vec<String>,
    port: Option<u16>,
    cacert: Option<OsString>,
    cert: Option<OsString>,
    key: Option<OsString>,
    pass: Option<OsString>,
}

/// Reads the arguments; `env` returns environment variables.
pub fn parse(
    args: impl IntoIterator<Item = impl Into<OsString>>,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Asked, String> {
    // lexopt skips the first argument of the process, but not of a list.
    let mut parser = lexopt::Parser::from_args(args);
    let mut options = Options {
        targets: Vec::new(),
        sentinel: None,
        login: Login { password: env("REDISCLI_AUTH").filter(|text| !text.is_empty()), ..Login::default() },
        only: false,
        by: By::default(),
        all: false,
        count: 50,
        interval: Duration::from_secs(1),
        read_only: false,
        color: env("NO_COLOR").is_none_or(|text| text.is_empty()),
        ascii: !is_utf8(&env),
        once: false,
        held_for: None,
        metrics: false,
        json: false,
    };
    let mut deferred = Deferred::default();
    while let Some(arg) = parser.next().map_err(|error| error.to_string())? {
        match arg {
            Long("help") => return Ok(Asked::Help),
            Long("version") => return Ok(Asked::Version),
            Value(server) => deferred.servers.push(text(server)?),
            arg => option(&mut options, &mut deferred, &arg_name(&arg), &mut parser)?,
        }
    }
    match (&options.held_for, options.once) {
        (None, false) if options.json => return Err("--json needs --once or --held-for".into()),
        (None, _) if options.metrics => return Err("--metrics needs --held-for".into()),
        (Some(_), true) => return Err("--once and --held-for print different things: use one of them".into()),
        _ if options.metrics && options.json => return Err("--metrics and --json exclude each other".into()),
        _ => {}
    }
    finish_login(&mut options.login, &deferred)?;
    let is_sentinel = options.sentinel.is_some();
    let port = deferred.port.unwrap_or(if is_sentinel { SENTINEL_PORT } else { DEFAULT_PORT });
    if deferred.servers.is_empty() {
        deferred.servers.push("127.0.0.1".into());
    }
    // A Sentinel has its own login, which only its URL can contain.
    let without = Login { user: None, password: None, ..options.login.clone() };
    let login = if is_sentinel { &without } else { &options.login };
    options.targets =
        deferred.servers.iter().map(|server| Target::parse(server, login, port)).collect::<Result<_, _>>()?;
    Ok(Asked::Run(Box::new(options)))
}

fn arg_name(arg: &lexopt::Arg<'_>) -> String {
    match arg {
        Short(letter) => format!("-{letter}"),
        Long(name) => format!("--{name}"),
        Value(_) => String::new(),
    }
}

fn option(
    options: &mut Options,
    deferred: &mut Deferred,
    name: &str,
    parser: &mut lexopt::Parser,
) -> Result<(), String> {
    let mut value = || parser.value().map_err(|_| format!("{name} needs a value"));
    let login = &mut options.login;
    match name {
        "--sentinel" => options.sentinel = Some(text(value()?)?),
        "--only" => options.only = true,
        "--user" => login.user = Some(text(value()?)?),
        "-h" => deferred.servers.push(text(value()?)?),
        "-p" => deferred.port = u16::try_from(within(name, &text(value()?)?, 1, 65_535)?).ok(),
        "-s" => {
            let path = text(value()?)?;
            if !path.starts_with('/') {
                return Err(format!("-s is the path of a socket, which begins with /, not {path}"));
            }
            deferred.servers.push(path);
        }
        "-u" => {
            let url = text(value()?)?;
            if !url.contains("://") {
                // The value is not repeated, because it can contain a password.
                return Err("-u is a URL: redis://, rediss:// or unix://".into());
            }
            deferred.servers.push(url);
        }
        "-a" | "--pass" => login.password = Some(text(value()?)?),
        "--pass-file" => deferred.pass = Some(value()?),
        "-n" | "--db" => login.db = Some(within(name, &text(value()?)?, 0, i64::from(i32::MAX))?),
        "--tls" => login.tls = true,
        "--cacert" => deferred.cacert = Some(value()?),
        "--cert" => deferred.cert = Some(value()?),
        "--key" => deferred.key = Some(value()?),
        "--insecure" => login.insecure = true,
        "--by" => {
            let word = text(value()?)?;
            options.by = By::of_word(&word).ok_or_else(|| format!("--by is waiters, wait or held, not {word}"))?;
        }
        "--all" => options.all = true,
        "--count" => options.count = usize::try_from(within(name, &text(value()?)?, 1, 200)?).unwrap_or(50),
        "--interval" => options.interval = interval(&text(value()?)?)?,
        "--read-only" => options.read_only = true,
        "--no-color" | "--no-colour" => options.color = false,
        "--ascii" => options.ascii = true,
        "--once" => options.once = true,
        "--held-for" => options.held_for = Some(span(&text(value()?)?)?),
        "--metrics" => options.metrics = true,
        "--json" => options.json = true,
        other => return Err(format!("unknown option {other}; --help lists them")),
    }
    Ok(())
}

fn text(value: OsString) -> Result<String, String> {
    value.into_string().map_err(|value| format!("not UTF-8: {}", value.to_string_lossy()))
}

fn within(name: &str, value: &str, least: i64, most: i64) -> Result<i64, String> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{name} is a whole number from {least} to {most}, not {value}"))
}

fn interval(value: &str) -> Result<Duration, String> {
    let seconds = value.parse::<f64>().ok().filter(|seconds| (0.5..=60.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("--interval is from 0.5 to 60 seconds, not {value}"))
}

/// A time with its unit, of at most ten years, the longest lease.
fn span(value: &str) -> Result<Duration, String> {
    let read = || {
        let (number, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
        let seconds = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)].iter().find(|(name, _)| *name == unit)?.1;
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
        let seconds = number.parse::<u64>().ok().filter(|_| is_plain)?.checked_mul(seconds)?;
        (1..=315_360_000).contains(&seconds).then(|| Duration::from_secs(seconds))
    };
    read().ok_or_else(|| format!("--held-for is a time such as 90s, 30m, 1h or 2d, not {value}"))
}

/// Whether the locale can show letters beyond ASCII.
fn is_utf8(env: &impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| env(name).filter(|text| !text.is_empty()));
    locale.is_some_and(|locale| locale.to_lowercase().replace('-', "").contains("utf8"))
}

fn finish_login(login: &mut Login, deferred: &Deferred) -> Result<(), String> {
    let read = |file: &OsString| std::fs::read(file).map_err(|error| format!("{}: {error}", file.to_string_lossy()));
    if let Some(file) = &deferred.pass {
        let content = String::from_utf8(read(file)?).map_err(|_| "the password file is not UTF-8".to_string())?;
        login.password = Some(content.lines().next().unwrap_or_default().into());
    }
    if login.user.is_some() && login.password.is_none() {
        return Err("--user needs a password: REDISCLI_AUTH, --pass-file or --pass".into());
    }
    let client_tls = match (&deferred.cert, &deferred.key) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        (None, None) => None,
        _ => return Err("--cert and --key need each other".into()),
    };
    let root_cert = deferred.cacert.as_ref().map(read).transpose()?;
    if client_tls.is_some() || root_cert.is_some() {
        login.certificates = Some(TlsCertificates { client_tls, root_cert });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &str, env: &[(&str, &str)]) -> Result<Options, String> {
        let env = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        match parse(args.split_whitespace(), env)? {
            Asked::Run(options) => Ok(*options),
            Asked::Help => Err("help".into()),
            Asked::Version => Err("version".into()),
        }
    }

    fn refused(args: &str) -> String {
        parsed(args, &[]).err().unwrap_or_else(|| panic!("accepted: {args}"))
    }

    #[test]
    fn without_arguments_the_server_is_the_local_one() {
        let options = parsed("", &[]).unwrap();
        assert_eq!(options.targets[0].address(), "127.0.0.1:6379");
        assert!(options.ascii && options.color && !options.read_only && !options.once);
    }

    #[test]
    fn options_come_before_or_after_servers() {
        let options = parsed("db1:7000 --by held --count 7 db2 -n 3 --interval 0.5 --user ops --pass x", &[]).unwrap();
        assert_eq!(options.targets.iter().map(Target::address).collect::<Vec<_>>(), ["db1:7000", "db2:6379"]);
        assert_eq!((options.by, options.count, options.interval), (By::Held, 7, Duration::from_millis(500)));
        let login = options.targets[1].login();
        assert_eq!((login.db, login.user.as_deref(), login.password.as_deref()), (Some(3), Some("ops"), Some("x")));
    }

    #[test]
    fn the_environment_gives_password_colour_and_letters() {
        let env = [("REDISCLI_AUTH", "secret"), ("NO_COLOR", "1"), ("LANG", "de_DE.UTF-8")];
        let options = parsed("", &env).unwrap();
        assert_eq!(options.targets[0].login().password.as_deref(), Some("secret"));
        assert!(!options.color && !options.ascii);
        assert!(parsed("--ascii", &env).unwrap().ascii);
        assert!(parsed("", &[("LC_ALL", "C"), ("LANG", "C.UTF-8")]).unwrap().ascii);
    }

    #[test]
    fn the_options_of_redis_cli_mean_the_same_here() {
        let at = |args: &str| {
            let options = parsed(args, &[]).unwrap_or_else(|error| panic!("{args}: {error}"));
            let login = options.targets[0].login().clone();
            let addresses: Vec<_> = options.targets.iter().map(Target::address).collect();
            (addresses.join(" "), login.user, login.password, login.db, login.tls)
        };
        let plain = |address: &str| (address.to_string(), None, None, None, false);
        assert_eq!(at("-h db1"), plain("db1:6379"));
        assert_eq!(at("-p 7000"), plain("127.0.0.1:7000"));
        assert_eq!(at("-h db1 -p 7000"), plain("db1:7000"));
        assert_eq!(at("-p 7000 -h ::1 db2 db3:7001"), plain("[::1]:7000 db2:7000 db3:7001"));
        assert_eq!(at("-s /run/redis.sock"), plain("/run/redis.sock"));
        assert_eq!(at("-u redis://db1:7001"), plain("db1:7001"));
        let secret = Some("secret".to_string());
        assert_eq!(at("-h db1 -a secret -n 3"), ("db1:6379".into(), None, secret.clone(), Some(3), false));
        let whole = "-h db1 -p 7000 --user ops --pass secret -n 3 --tls";
        assert_eq!(at(whole), ("db1:7000".into(), Some("ops".into()), secret.clone(), Some(3), true));
        assert_eq!(at("-u rediss://ops:secret@db1/3"), ("db1:6379".into(), Some("ops".into()), secret, Some(3), true));
        assert_eq!(at("--sentinel locks -h s1 -p 5000"), plain("s1:5000"));
    }

    #[test]
    fn a_time_has_a_unit() {
        let of = |text: &str| parsed(&format!("--held-for {text}"), &[]).unwrap().held_for.unwrap().as_secs();
        assert_eq!(["90s", "30m", "1h", "2d"].map(of), [90, 1_800, 3_600, 172_800]);
    }

    #[test]
    fn sentinels_have_their_own_port_and_login() {
        let options = parsed("--sentinel locks s1 redis://:theirs@s2:5000 --pass ours", &[]).unwrap();
        assert_eq!(options.targets.iter().map(Target::address).collect::<Vec<_>>(), ["s1:26379", "s2:5000"]);
        assert_eq!(options.targets[0].login().password, None);
        assert_eq!(options.targets[1].login().password.as_deref(), Some("theirs"));
        assert_eq!(options.login.password.as_deref(), Some("ours"));
    }

    #[test]
    fn a_bad_argument_is_named() {
        let cases = [
            ("--by size", "--by is waiters, wait or held, not size"),
            ("--count 0", "--count is a whole number from 1 to 200, not 0"),
            ("--interval 0.1", "--interval is from 0.5 to 60 seconds, not 0.1"),
            ("--interval NaN", "--interval is from 0.5 to 60 seconds, not NaN"),
            ("--json", "--json needs --once or --held-for"),
            ("--metrics", "--metrics needs --held-for"),
            ("--once --metrics", "--metrics needs --held-for"),
            ("--held-for 1h --metrics --json", "--metrics and --json exclude each other"),
            ("--once --held-for 1h", "--once and --held-for print different things"),
            ("--held-for 3600", "--held-for is a time such as 90s, 30m, 1h or 2d, not 3600"),
            ("--held-for 0s", "--held-for is a time"),
            ("--held-for +1h", "--held-for is a time"),
            ("--held-for 99999999999999999999d", "--held-for is a time"),
            ("--user bob", "--user needs a password"),
            ("--cert x", "--cert and --key need each other"),
            ("--cacert /no/such/file", "/no/such/file: No such file"),
            ("--frobnicate", "unknown option --frobnicate"),
            ("-x", "unknown option -x"),
            ("-h", "-h needs a value"),
            ("-p 0", "-p is a whole number from 1 to 65535, not 0"),
            ("-s redis.sock", "-s is the path of a socket, which begins with /, not redis.sock"),
            ("-u db1:7000", "-u is a URL: redis://, rediss:// or unix://"),
            ("--user", "--user needs a value"),
            ("db1:x", "not HOST or HOST:PORT: db1:x"),
        ];
        for (args, expected) in cases {
            let error = refused(args);
            assert!(error.starts_with(expected), "{args}: {error}");
        }
        assert_eq!(refused("--help"), "help");
        assert_eq!(refused("--version"), "version");
    }

    #[test]
    fn the_help_fits_80_columns_and_names_every_option() {
        assert!(HELP.lines().all(|line| line.len() <= 80));
        let source = include_str!("options.rs");
        let options = source
            .lines()
            .filter_map(|line| line.trim().strip_prefix("\"--"))
            .filter_map(|line| line.split('"').next());
        for option in options.filter(|option| !option.contains(' ')) {
            assert!(HELP.contains(&format!("--{option}")), "--{option} is not in the help");
        }
    }
}
