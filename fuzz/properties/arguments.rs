//! Arguments: the parser reads what a plain reading of the contract reads, and names the same argument at
//! fault.

use redis_lock::commands::parse::{self, Name, Options};
use redis_lock::lock::error::Error;
use redis_lock::lock::record::{Id, Owner};
use redis_lock::lock::time::Micros;

/// The commands with options, as `src/commands` calls the parser.
const COMMANDS: [(&str, usize, &[Name]); 5] = [
    ("LOCK.ACQUIRE", 1, &[Name::Ex, Name::Px, Name::Wait, Name::Id, Name::Owner, Name::Session, Name::Details]),
    ("LOCK.RECOVER", 1, &[Name::Ex, Name::Px, Name::Id, Name::Owner, Name::Session]),
    ("LOCK.EXTEND", 2, &[Name::Ex, Name::Px]),
    ("LOCK.INFO", 1, &[Name::Full]),
    ("LOCK.TOP", 0, &[Name::Count]),
];

const TEN_YEARS_MS: u128 = 315_360_000_000;

/// The first byte of the input chooses the command; the rest is its arguments, between line ends.
pub fn check(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let (command, from, known) = COMMANDS[usize::from(*first) % COMMANDS.len()];
    let args: Vec<&[u8]> = if rest.is_empty() { Vec::new() } else { rest.split(|byte| *byte == b'\n').collect() };
    for arg in &args {
        assert_eq!(
            parse::token(arg).map(|token| u128::from(token.get())),
            digits(arg, 20, 0, (1 << 53) - 1).ok_or(Error::Token)
        );
    }
    let found = Options::parse(&args.as_slice(), from, command, known);
    let expected = expected(&args, from, command, known);
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            assert_eq!(found.lease(), expected.lease.ok_or(Error::LeaseMissing));
            assert_eq!(found.wait(), expected.wait.unwrap_or(Micros(0)));
            assert_eq!(found.count(), expected.count);
            let flags = ["SESSION", "DETAILS", "FULL"].map(|name| expected.seen.contains(&name));
            assert_eq!([found.session, found.details, found.full], flags);
            match found.request() {
                Ok(request) => {
                    assert_eq!((Ok(request.lease), request.id), (found.lease(), expected.id));
                    assert_eq!(request.owner, expected.owner);
                }
                Err(error) => assert_eq!((error, expected.lease), (Error::LeaseMissing, None)),
            }
        }
        (Err(found), Err(expected)) => {
            assert_eq!(found, expected);
            let text = found.to_string();
            assert!(text.starts_with("ERR ") && text.is_ascii() && !text.contains(['\r', '\n']));
        }
        (found, expected) => panic!("{found:?} instead of {:?}", expected.map(|expected| expected.seen)),
    }
}

#[derive(Default)]
struct Expected<'a> {
    lease: Option<Micros>,
    wait: Option<Micros>,
    id: Option<Id>,
    owner: Option<Owner<'a>>,
    count: Option<usize>,
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
        out.seen.push(text);
        if matches!(name, Name::Session | Name::Details | Name::Full) {
            continue;
        }
        let (_, value) = rest.next().ok_or(Error::NoValue(text))?;
        let ms = |number: u128| Micros::from_ms(number.try_into().unwrap());
        match name {
            Name::Ex => out.lease = Some(ms(digits(value, 20, 1, TEN_YEARS_MS / 1_000).ok_or(Error::Lease)? * 1_000)),
            Name::Px => out.lease = Some(ms(digits(value, 20, 1, TEN_YEARS_MS).ok_or(Error::Lease)?)),
            Name::Wait => out.wait = Some(ms(digits(value, 20, 0, TEN_YEARS_MS).ok_or(Error::Wait)?)),
            Name::Count => out.count = Some(digits(value, 20, 1, 1_000).ok_or(Error::Count)?.try_into().unwrap()),
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
