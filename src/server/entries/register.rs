//! Registers a command with all metadata that the server accepts.

use crate::server::api::api;
use crate::server::api::command_docs::{Arg, Doc, Flags, Keys, Kind};
use crate::server::api::context::Context;
use crate::server::clients::permissions::Reader;
use crate::server::entries::{run, Command, Run};
use redis_module::raw;
use std::ffi::{CStr, CString};
use std::ptr;

/// A command to be registered.
#[derive(Clone, Copy)]
pub struct Registration {
    doc: &'static Doc,
    run: Run,
}

impl Registration {
    /// The registration of a command.
    #[must_use]
    pub const fn of<C: Command>() -> Self {
        Self { doc: C::DOC, run: run::<C> }
    }
}

/// Whether the commands have their own ACL category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// They do.
    Own,
    /// The server has no module categories, or did not accept it.
    None,
}

/// The ACL category of all our commands, if the server lets a module add one (7.4, Valkey 8).
const CATEGORY: &CStr = c"lock";
/// The module version that introduced the commands.
const SINCE: &CStr = c"1.0.0";
const OK: i32 = 0;

impl Flags {
    /// The kind that applies on this server.
    fn here(self) -> Self {
        match self {
            Self::ReadUnnamed if !Reader::can_be_known() => Self::Admin,
            kind => kind,
        }
    }

    /// The names of the flags for the server, first all, then without those that some servers do not know: `blocking`
    /// (6.2), and `all-dbs` (before Valkey 9.1, where a user may be restricted to some databases).
    fn names(self) -> &'static [&'static CStr] {
        match self.here() {
            Self::WriteDenyOomBlocking => &[c"write deny-oom blocking", c"write deny-oom"],
            Self::WriteDenyOom => &[c"write deny-oom fast"],
            Self::Write => &[c"write fast"],
            Self::WriteSlow => &[c"write"],
            Self::Read => &[c"readonly fast"],
            Self::ReadSlow | Self::ReadUnnamed => &[c"readonly"],
            Self::Admin => &[c"readonly admin all-dbs", c"readonly admin"],
            Self::Help => &[c"allow-loading allow-stale"],
        }
    }

    /// The ACL categories that the server would give one of its own commands with these flags.
    fn categories(self) -> &'static CStr {
        match self.here() {
            Self::WriteDenyOomBlocking => c"lock write slow blocking",
            Self::WriteDenyOom | Self::Write => c"lock write fast",
            Self::WriteSlow => c"lock write slow",
            Self::Read => c"lock read fast",
            Self::ReadSlow | Self::ReadUnnamed => c"lock read slow",
            Self::Admin => c"lock read slow admin dangerous",
            Self::Help => c"lock slow",
        }
    }
}

/// Adds the ACL category.
#[must_use]
pub fn add_category(context: &Context) -> Category {
    // SAFETY: the context comes from module load, the name is a C string.
    match api().add_acl_category.map(|add| unsafe { add(context.as_ptr(), CATEGORY.as_ptr()) }) {
        Some(OK) => Category::Own,
        _ => Category::None,
    }
}

/// Registers a command.
///
/// # Errors
/// The part that the server did not accept.
pub fn register(context: &Context, registration: &Registration, category: Category) -> Result<(), String> {
    let Registration { doc, run } = *registration;
    let refused =
        |what: &str| format!("the server did not accept {what} of the command {}", doc.name.to_string_lossy());
    // Servers before 7.0 check key permissions only if a first key is declared.
    let (first, last, step) = match doc.keys {
        Keys::None => (0, 0, 0),
        Keys::First(_) => (1, 1, 1),
        Keys::Counted(_) => (2, 2, 1),
    };
    let create = |flags: &CStr| {
        // Only before 7.0, which has no key specs. Later servers ask in their I/O threads, beside the main thread, and
        // crash: they do not protect their own state.
        let asks = matches!(doc.keys, Keys::Counted(_)) && api().set_command_info.is_none();
        let asks = if asks { " getkeys-api" } else { "" };
        let flags = CString::new(format!("{}{asks}", flags.to_string_lossy())).unwrap_or_default();
        // SAFETY: the context comes from module load, name and flags are C strings.
        unsafe {
            let (name, flags) = (doc.name.as_ptr(), flags.as_ptr());
            (api().create_command)(context.as_ptr(), name, Some(run), flags, first, last, step) == OK
        }
    };
    if !doc.flags.names().iter().any(|flags| create(flags)) {
        return Err(refused("the flags"));
    }
    let Some(get_command) = api().get_command else { return Ok(()) };
    // SAFETY: the context comes from module load, the name is a C string.
    let command = unsafe { get_command(context.as_ptr(), doc.name.as_ptr()) };
    if command.is_null() {
        return Err(refused("the name"));
    }
    if let (Category::Own, Some(set)) = (category, api().set_command_acl_categories) {
        // SAFETY: the command is ours and the module is being loaded.
        if unsafe { set(command, doc.flags.categories().as_ptr()) } != OK {
            return Err(refused("the ACL categories"));
        }
    }
    match api().set_command_info {
        // SAFETY: the command is ours and the module is being loaded.
        Some(set) if !unsafe { describe(set, command, doc) } => Err(refused("the description")),
        _ => Ok(()),
    }
}

type SetInfo = unsafe extern "C" fn(*mut raw::RedisModuleCommand, *const raw::RedisModuleCommandInfo) -> i32;

/// # Safety
/// `command` belongs to this module, which is being loaded.
unsafe fn describe(set: SetInfo, command: *mut raw::RedisModuleCommand, doc: &Doc) -> bool {
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let mut key_specs: Vec<_> =
        [key_spec(doc.keys), routing(doc.keys), Some(no_key_spec())].into_iter().flatten().collect();
    // The lists have to outlive the server call, which copies them.
    let mut lists = Vec::new();
    let args = c_args(doc.args, &mut lists);
    let info = raw::RedisModuleCommandInfo {
        version: &raw const version,
        summary: doc.summary.as_ptr(),
        complexity: doc.complexity.as_ptr(),
        since: SINCE.as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: doc.arity,
        key_specs: key_specs.as_mut_ptr(),
        args,
    };
    // SAFETY: the caller promises that `command` is the module's. Every list ends with an entry of zeros. The lists,
    // `version` and `info` live until the call returns.
    unsafe { set(command, &raw const info) == OK }
}

/// In a cluster, most servers find a command by the first key only: by a range, not by a number of keys.
/// `keys/served.rs` checks the others. Permissions ignore what is marked as no key.
fn routing(keys: Keys) -> Option<raw::RedisModuleCommandKeySpec> {
    let Keys::Counted(access) = keys else { return None };
    let mut spec = range_from(2);
    spec.flags = u64::from(access.flags() | raw::REDISMODULE_CMD_KEY_NOT_KEY);
    Some(spec)
}

/// The positions of the keys.
fn key_spec(keys: Keys) -> Option<raw::RedisModuleCommandKeySpec> {
    let (Keys::First(access) | Keys::Counted(access)) = keys else { return None };
    let mut spec = range_from(1);
    spec.flags = u64::from(access.flags());
    if matches!(keys, Keys::Counted(_)) {
        spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
        spec.fk.keynum =
            raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 { keynumidx: 0, firstkey: 1, keystep: 1 };
    }
    Some(spec)
}

/// One key at this position.
fn range_from(position: i32) -> raw::RedisModuleCommandKeySpec {
    let mut spec = no_key_spec();
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = position;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 1, limit: 0 };
    spec
}

/// The end of a list.
fn no_key_spec() -> raw::RedisModuleCommandKeySpec {
    // SAFETY: all of the structure is integers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// A list of arguments in the server's form; stored in `lists`.
fn c_args(args: &[Arg], lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>) -> *mut raw::RedisModuleCommandArg {
    if args.is_empty() {
        return ptr::null_mut();
    }
    let mut list: Vec<_> = args.iter().map(|arg| c_arg(arg, lists)).collect();
    // SAFETY: all of the structure is integers and pointers, for which zero is a value: the end.
    list.push(unsafe { std::mem::zeroed() });
    // The list's memory does not move with it.
    let first = list.as_mut_ptr();
    lists.push(list);
    first
}

fn c_arg(arg: &Arg, lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>) -> raw::RedisModuleCommandArg {
    let (kind, subargs) = match arg.kind {
        Kind::Key | Kind::Keys => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, ptr::null_mut()),
        Kind::Integer => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, ptr::null_mut()),
        Kind::String => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, ptr::null_mut()),
        Kind::Token => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN, ptr::null_mut()),
        Kind::OneOf(args) => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF, c_args(args, lists)),
    };
    let optional = if arg.optional { raw::REDISMODULE_CMD_ARG_OPTIONAL } else { raw::REDISMODULE_CMD_ARG_NONE };
    let multiple = if matches!(arg.kind, Kind::Keys) { raw::REDISMODULE_CMD_ARG_MULTIPLE } else { 0 };
    raw::RedisModuleCommandArg {
        name: arg.name.as_ptr(),
        type_: kind,
        key_spec_index: if matches!(arg.kind, Kind::Key | Kind::Keys) { 0 } else { -1 },
        token: arg.token.map_or(ptr::null(), CStr::as_ptr),
        summary: ptr::null(),
        since: ptr::null(),
        flags: (optional | multiple).cast_signed(),
        deprecated_since: ptr::null(),
        subargs,
        display_text: ptr::null(),
    }
}
