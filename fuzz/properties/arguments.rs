//! Arguments: the parser gives the same result as a plain reading of the contract, and names the same wrong argument.

use redis_lock::commands::parse::{self, Name, Options};
use redis_lock::engine::queue::By;
use redis_lock::lock::error::Error;
use redis_lock::lock::record::{Id, Owner};
use redis_lock::lock::request::Share;
use redis_lock::lock::time::Micros;
use std::collections::BTreeSet;

/// A command with options.
struct Command {
    name: &'static str,
    from: From,
    known: &'static [Name],
}

/// Where the options begin.
enum From {
    Argument(usize),
    /// After numkeys, its keys and `more` arguments; at least `behind` arguments follow the keys.
    Keys {
        more: usize,
        behind: usize,
    },
}

const fn command(name: &'static str, from: From, known: &'static [Name]) -> Command {
    Command { name, from, known }
}

/// The commands with options or several keys, with the parser calls of `src/commands`.
const COMMANDS: [Command; 9] = [
    command(
        "LOCK.ACQUIRE",
        From::Argument(1),
        &[
            Name::Ex,
            Name::Px,
            Name::Wait,
            Name::Id,
            Name::Owner,
            Name::Session,
            Name::Details,
            Name::Shared,
            Name::Limit,
            Name::Notify,
            Name::Snotify,
            Name::Result,
        ],
    ),
    command("LOCK.RECOVER", From::Argument(1), &[Name::Ex, Name::Px, Name::Id, Name::Owner, Name::Session]),
    command("LOCK.EXTEND", From::Argument(2), &[Name::Ex, Name::Px]),
    command("LOCK.INFO", From::Argument(1), &[Name::Full]),
    command("LOCK.TOP", From::Argument(0), &[Name::Count, Name::By]),
    command(
        "LOCK.MACQUIRE",
        From::Keys { more: 0, behind: 2 },
        &[Name::Ex, Name::Px, Name::Wait, Name::Id, Name::Owner, Name::Session, Name::Notify, Name::Snotify],
    ),
    command("LOCK.MEXTEND", From::Keys { more: 1, behind: 3 }, &[Name::Ex, Name::Px]),
    command("LOCK.MRELEASE", From::Keys { more: 1, behind: 1 }, &[]),
    command("LOCK.SCAN", From::Argument(1), &[Name::Match, Name::Count, Name::State, Name::Client]),
];

/// The commands and the names of their options, in capitals.
pub fn options() -> impl Iterator<Item = (&'static str, BTreeSet<String>)> {
    let names = |known: &[Name]| known.iter().map(|name| format!("{name:?}").to_uppercase()).collect();
    COMMANDS.iter().map(move |command| (command.name, names(command.known)))
}

const TEN_YEARS_MS: u128 = 315_360_000_000;
/// The longest wait without a connection: an hour.
const LONGEST_NOTIFY_WAIT: Micros = Micros(3_600_000_000);

/// The first byte of the input chooses the command; the rest is its arguments, one per line.
pub fn check(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let command = &COMMANDS[usize::from(*first) % COMMANDS.len()];
    let args: Vec<&[u8]> = if rest.is_empty() { Vec::new() } else { rest.split(|byte| *byte == b'\n').collect() };
    for arg in &args {
        let token = digits(arg, 20, 0, (1 << 53) - 1).ok_or(Error::Token);
        assert_eq!(parse::token(arg).map(|token| u128::from(token.get())), token);
        let is_cursor = digits(arg, 20, 0, u64::MAX.into()).is_some();
        assert_eq!(parse::cursor(arg), if is_cursor { Ok(*arg) } else { Err(Error::Cursor) });
        // The arguments of LOCK.CANCEL.
        let is_channel = (1..=256).contains(&arg.len());
        assert_eq!(parse::channel(arg), if is_channel { Ok(*arg) } else { Err(Error::Channel) });
        let number = digits(arg, 19, 0, u128::MAX).ok_or(Error::Id);
        assert_eq!(parse::id(arg).map(|id| u128::from(id.get())), number);
    }
    let from = match command.from {
        From::Argument(from) => from,
        From::Keys { more, behind } => {
            let Some(end) = keys(&args, behind) else { return };
            end + more
        }
    };
    let found = Options::parse(&args.as_slice(), from, command.name, command.known);
    let expected = expected(&args, from, command.name, command.known);
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            assert_eq!(found.lease(), expected.lease.ok_or(Error::LeaseMissing));
            assert_eq!(found.wait(), expected.wait.unwrap_or(Micros(0)));
            assert_eq!((found.count(), found.pattern, found.state), (expected.count, expected.pattern, expected.state));
            assert_eq!((found.client, found.by()), (expected.client, expected.by.unwrap_or(By::Waiters)));
            let flags = ["SESSION", "DETAILS", "FULL"].map(|name| expected.seen.contains(&name));
            assert_eq!([found.session, found.details, found.full], flags);
            check_ask(&found, &expected);
            match found.request() {
                Ok(request) => {
                    assert_eq!((Ok(request.lease), request.id), (found.lease(), expected.id));
                    assert_eq!((request.owner, request.share), (expected.owner, expected.share));
                }
                Err(error) => assert_eq!((error, expected.lease), (Error::LeaseMissing, None)),
            }
        }
        (Err(found), Err(expected)) => {
            assert_eq!(found, expected);
            assert_text(found);
        }
        (found, expected) => panic!("{found:?} instead of {:?}", expected.map(|expected| expected.seen)),
    }
}

/// A command that wants a result needs a wait and asks for the whole lock. One that waits without a connection needs an
/// ID and a wait of at most an hour.
fn check_ask(found: &Options<'_>, expected: &Expected<'_>) {
    let option = if expected.notify.is_some_and(|(_, is_sharded)| is_sharded) { "SNOTIFY" } else { "NOTIFY" };
    let seen = |name| expected.seen.contains(&name);
    let beside = ["SHARED", "LIMIT", "SESSION"].into_iter().find(|name| seen(*name));
    let error = match (expected.lease, expected.notify, expected.wait, expected.id) {
        (None, ..) => Some(Error::LeaseMissing),
        (_, _, None, _) if seen("RESULT") => Some(Error::Needs { option: "RESULT", missing: "WAIT" }),
        _ if seen("RESULT") && beside.is_some() => beside.map(|option| Error::ResultWith { option }),
        (_, None, ..) => None,
        (_, _, None, _) => Some(Error::Needs { option, missing: "WAIT" }),
        (.., None) => Some(Error::Needs { option, missing: "ID" }),
        (_, _, Some(wait), _) => (wait > LONGEST_NOTIFY_WAIT).then_some(Error::NotifyWaitTooLong),
    };
    error.into_iter().for_each(assert_text);
    match found.ask() {
        Ok(ask) => {
            let notify = ask.notify.map(|channel| (channel.name, channel.is_sharded));
            assert_eq!((error, notify), (None, expected.notify));
            assert_eq!((ask.wait, ask.session), (found.wait(), found.session));
            assert_eq!(ask.wants_result, seen("RESULT"));
        }
        Err(found) => assert_eq!(Some(found), error),
    }
}

fn assert_text(error: Error) {
    let text = error.to_string();
    assert!(text.starts_with("ERR ") && text.is_ascii() && !text.contains(['\r', '\n']));
}

/// Several keys, counted by the first argument: where they end, if they are valid.
fn keys(args: &[&[u8]], behind: usize) -> Option<usize> {
    let most = args.len().saturating_sub(1 + behind).min(1_024) as u128;
    let first = args.first().filter(|arg| !arg.starts_with(b"0"));
    let count = first.and_then(|arg| digits(arg, 20, 1, most)).map(|count| usize::try_from(count).unwrap());
    let found = parse::keys(&args, behind);
    assert_eq!(found, count.map(|count| 1..count + 1).ok_or(Error::NumKeys));
    let Ok(keys) = found else {
        assert_text(Error::NumKeys);
        return None;
    };
    let same = |key: &usize| (1..*key).find(|earlier| args[*earlier] == args[*key]).map(|earlier| (*key, earlier));
    let expected = keys.clone().find_map(|key| same(&key)).map(|(key, earlier)| Error::SameKey { key, earlier });
    assert_eq!(parse::different_keys(&args, keys.clone()).err(), expected);
    if let Some(error) = expected {
        assert_text(error);
        return None;
    }
    Some(keys.end)
}

#[derive(Default)]
struct Expected<'a> {
    lease: Option<Micros>,
    wait: Option<Micros>,
    id: Option<Id>,
    owner: Option<Owner<'a>>,
    count: Option<usize>,
    share: Share,
    pattern: Option<&'a [u8]>,
    state: Option<&'a [u8]>,
    client: Option<u64>,
    by: Option<By>,
    /// The channel, and whether it is a sharded one.
    notify: Option<(&'a [u8], bool)>,
    seen: Vec<&'static str>,
}

/// A number of 1 to `longest` digits between two bounds.
fn digits(arg: &[u8], longest: usize, least: u128, most: u128) -> Option<u128> {
    let text = std::str::from_utf8(arg).ok()?;
    let is_number = !text.is_empty() && text.len() <= longest && text.bytes().all(|byte| byte.is_ascii_digit());
    let number: u128 = is_number.then(|| text.parse().unwrap())?;
    (least..=most).contains(&number).then_some(number)
}

fn expected<'a>(args: &[&'a [u8]], from: usize, command: &'static str, known: &[Name]) -> Result<Expected<'a>, Error> {
    let mut out = Expected::default();
    let mut rest = args.iter().enumerate().skip(from);
    while let Some((at, arg)) = rest.next() {
        let upper = String::from_utf8_lossy(arg).to_ascii_uppercase();
        let (text, name) = match upper.as_str() {
            "EX" => ("EX", Name::Ex),
            "PX" => ("PX", Name::Px),
            "WAIT" => ("WAIT", Name::Wait),
            "ID" => ("ID", Name::Id),
            "OWNER" => ("OWNER", Name::Owner),
            "SESSION" => ("SESSION", Name::Session),
            "DETAILS" => ("DETAILS", Name::Details),
            "FULL" => ("FULL", Name::Full),
            "COUNT" => ("COUNT", Name::Count),
            "SHARED" => ("SHARED", Name::Shared),
            "LIMIT" => ("LIMIT", Name::Limit),
            "MATCH" => ("MATCH", Name::Match),
            "STATE" => ("STATE", Name::State),
            "CLIENT" => ("CLIENT", Name::Client),
            "BY" => ("BY", Name::By),
            "NOTIFY" => ("NOTIFY", Name::Notify),
            "SNOTIFY" => ("SNOTIFY", Name::Snotify),
            "RESULT" => ("RESULT", Name::Result),
            _ => return Err(Error::NotAnOption { position: at + 1, command }),
        };
        if !known.contains(&name) {
            return Err(Error::NotAnOption { position: at + 1, command });
        }
        let is_lease = matches!(name, Name::Ex | Name::Px);
        if is_lease && out.lease.is_some() {
            return Err(Error::LeaseTwice);
        }
        if !is_lease && out.seen.contains(&text) {
            return Err(Error::Twice(text));
        }
        if matches!(name, Name::Shared | Name::Limit) && out.share != Share::Alone {
            return Err(Error::ShareTwice);
        }
        if matches!(name, Name::Notify | Name::Snotify) && out.notify.is_some() {
            return Err(Error::ChannelTwice);
        }
        out.seen.push(text);
        if name == Name::Shared {
            out.share = Share::Shared;
        }
        if matches!(name, Name::Result | Name::Session | Name::Details | Name::Full | Name::Shared) {
            continue;
        }
        let (_, value) = rest.next().ok_or(Error::NoValue(text))?;
        let ms = |number: u128| Micros::from_ms(number.try_into().unwrap());
        match name {
            Name::Ex => out.lease = Some(ms(digits(value, 20, 1, TEN_YEARS_MS / 1_000).ok_or(Error::Lease)? * 1_000)),
            Name::Px => out.lease = Some(ms(digits(value, 20, 1, TEN_YEARS_MS).ok_or(Error::Lease)?)),
            Name::Wait => out.wait = Some(ms(digits(value, 20, 0, TEN_YEARS_MS).ok_or(Error::Wait)?)),
            Name::Count => out.count = Some(digits(value, 20, 1, 1_000).ok_or(Error::Count)?.try_into().unwrap()),
            Name::Limit => {
                let most = digits(value, 20, 1, 4_096).ok_or(Error::Limit)?;
                out.share = Share::Limit(most.try_into().unwrap());
            }
            Name::Match => out.pattern = Some(value),
            Name::Notify | Name::Snotify => {
                let is_channel = (1..=256).contains(&value.len());
                out.notify = Some((*value, name == Name::Snotify)).filter(|_| is_channel);
                out.notify.ok_or(Error::Channel)?;
            }
            Name::State => out.state = Some(value),
            Name::Client => {
                out.client = Some(digits(value, 20, 0, u64::MAX.into()).ok_or(Error::Client)?.try_into().unwrap());
            }
            Name::By => {
                out.by = Some(match String::from_utf8_lossy(value).to_ascii_lowercase().as_str() {
                    "waiters" => By::Waiters,
                    "wait" => By::Wait,
                    "held" => By::Held,
                    _ => return Err(Error::By),
                });
            }
            Name::Id => {
                let number = digits(value, 19, 0, u128::MAX).ok_or(Error::Id)?;
                out.id = Id::parse(value).filter(|id| u128::from(id.get()) == number);
                assert!(out.id.is_some());
            }
            _ => {
                let visible = value.iter().all(|byte| (33..=126).contains(byte)) && (1..=128).contains(&value.len());
                out.owner = Owner::parse(value).filter(|owner| owner.as_bytes() == *value);
                assert_eq!(out.owner.is_some(), visible);
                out.owner.ok_or(Error::Owner)?;
            }
        }
    }
    Ok(out)
}
