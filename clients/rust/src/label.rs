//! The owner that a lock shows to others. By default it is `host:pid`, so that operators see which process holds what.

use std::borrow::Cow;
use std::sync::OnceLock;

pub(crate) const LONGEST: usize = 128;

/// The option `owner`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Label {
    /// The process that sends the request, which is a different one after a fork.
    #[default]
    HostAndPid,
    Named(String),
    /// No owner is sent.
    Off,
}

impl Label {
    pub(crate) fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::HostAndPid => Some(host_and_pid(host(), std::process::id()).into()),
            Self::Named(name) => Some(name.into()),
            Self::Off => None,
        }
    }
}

/// The name of this machine, in visible ASCII characters.
fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| visible(&host_name()))
}

#[cfg(unix)]
fn host_name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

fn visible(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_graphic() { letter } else { '?' }).collect()
}

fn host_and_pid(host: &str, pid: u32) -> String {
    let end = format!(":{pid}");
    let start = host.get(..LONGEST.saturating_sub(end.len())).unwrap_or(host);
    format!("{start}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_its_host_and_process_by_default() {
        let owner = Label::default().text().unwrap().into_owned();
        assert_eq!(owner, format!("{}:{}", visible(&host_name()), std::process::id()));
        assert_eq!(Label::Off.text(), None);
        assert_eq!(Label::Named("alice".into()).text().unwrap(), "alice");
    }

    #[test]
    fn a_host_name_that_is_not_an_owner_becomes_one() {
        assert_eq!(host_and_pid(&visible("web 1.büro"), 7), "web?1.b?ro:7");
        let longest = host_and_pid(&"h".repeat(200), 4321);
        assert!(longest.len() == LONGEST && longest.ends_with("h:4321"), "{longest}");
    }
}
