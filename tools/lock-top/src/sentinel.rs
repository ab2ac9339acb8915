//! The servers of a group according to its Sentinels: the master and its replicas.

use crate::link::{Link, Trouble};
use crate::reply::{list, Fields};
use crate::target::{Login, Target};

/// Asks the Sentinels in turn until one replies; otherwise returns one line per Sentinel that says why it did not.
pub fn members(sentinels: &[Target], name: &str, login: &Login) -> Result<Vec<Target>, String> {
    let mut troubles = Vec::new();
    for sentinel in sentinels {
        match ask(sentinel, name, login) {
            Ok(members) => return Ok(members),
            Err(trouble) => troubles.push(format!("Sentinel {}: {trouble}", sentinel.address())),
        }
    }
    Err(troubles.join("; "))
}

fn ask(sentinel: &Target, name: &str, login: &Login) -> Result<Vec<Target>, Trouble> {
    let mut link = Link::open(sentinel)?;
    let explain = |trouble| match &trouble {
        Trouble::Said(text) if text.contains("No such master") => {
            Trouble::Said(format!("it knows no group named {name}; SENTINEL MASTERS lists those that it knows"))
        }
        _ if trouble.is_unknown_command() => Trouble::Said("this is not a Sentinel".into()),
        _ => trouble,
    };
    let master = link.ask(&["SENTINEL", "MASTER", name]).map_err(explain)?;
    let replicas = link.ask(&["SENTINEL", "REPLICAS", name]).map_err(explain)?;
    let server = |fields: &Fields<'_>| {
        let port = fields.number("port").and_then(|port| u16::try_from(port).ok())?;
        Some(Target::at(&fields.text("ip")?, port, login))
    };
    let replicas = list(&replicas).unwrap_or_default().iter().map(Fields::of);
    // A replica that has been away for a long time may never return.
    let here = replicas.filter(|replica| replica.text("flags").is_none_or(|flags| !flags.contains("s_down")));
    Ok(server(&Fields::of(&master)).into_iter().chain(here.filter_map(|replica| server(&replica))).collect())
}
