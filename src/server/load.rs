//! Loading: checks the server, reads the settings, registers commands and event handlers.

use super::callback::{c_command, guarded};
use super::context::{close_log, log_notice, log_warning, open_log, Args, Context};
use super::metadata::{self, Run};
use super::{api, closed, events, info_section, settings, state, timer, write};
use crate::commands::doc::Doc;
use crate::commands::parse::Arguments;
use crate::commands::{
    acquire, cancel, check, extend, help, info, macquire, mextend, mrelease, recover, release, scan, top,
};
use redis_module::raw;
use std::ffi::CStr;

const NAME: &CStr = c"lock";
/// The version of the crate as MODULE LIST shows it: 1.2.3 is 10203, so minor and patch stay below 100.
const VERSION: i32 = {
    let [major, minor, patch] = [
        part(env!("CARGO_PKG_VERSION_MAJOR")),
        part(env!("CARGO_PKG_VERSION_MINOR")),
        part(env!("CARGO_PKG_VERSION_PATCH")),
    ];
    assert!(minor < 100 && patch < 100, "minor and patch have two digits in MODULE LIST");
    major * 10_000 + minor * 100 + patch
};

#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // The compiler runs it.
const fn part(text: &str) -> i32 {
    let (digits, mut number, mut at) = (text.as_bytes(), 0, 0);
    while at < digits.len() {
        number = number * 10 + (digits[at] - b'0') as i32;
        at += 1;
    }
    number
}
/// Valkey 9 moves slots at once only if every module says that it can do with that. We can: slots
/// are looked at, not remembered. Redis has no such option, and other uses for the bit.
const VALKEY_ATOMIC_SLOT_MIGRATION: i32 = 1 << 5;
const OK: i32 = 0;
const ERR: i32 = 1;

static COMMANDS: [(&Doc, Run); 13] = [
    (&acquire::DOC, c_command!(acquire)),
    (&recover::DOC, c_command!(recover)),
    (&extend::DOC, c_command!(extend)),
    (&release::DOC, c_command!(release)),
    (&check::DOC, c_command!(check)),
    (&cancel::DOC, c_command!(cancel)),
    (&info::DOC, c_command!(info)),
    (&top::DOC, c_command!(top)),
    (&macquire::DOC, c_command!(macquire)),
    (&mextend::DOC, c_command!(mextend)),
    (&mrelease::DOC, c_command!(mrelease)),
    (&scan::DOC, c_command!(scan)),
    (&help::DOC, c_command!(help)),
];

/// The server's way in.
///
/// # Safety
/// Called by the server when it loads the module.
#[no_mangle]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: libc::c_int,
) -> libc::c_int {
    // SAFETY: these are the server's own arguments. Nothing is allocated before this call, which
    // brings the allocator.
    let status =
        unsafe { raw::Export_RedisModule_Init(ctx, NAME.as_ptr(), VERSION, raw::REDISMODULE_APIVER_1.cast_signed()) };
    if status != OK {
        return ERR;
    }
    // SAFETY: the init call has succeeded and nothing is registered yet.
    if let Err(missing) = unsafe { api::init() } {
        log_without_api(ctx, missing);
        return ERR;
    }
    // SAFETY: the context is good until this returns.
    let context = unsafe { Context::new(ctx) };
    open_log(&context);
    // SAFETY: argv and argc are the server's own; a load has no command name in front.
    let loaded = guarded(|| load(&context, &unsafe { Args::of_load(&context, argv, argc) }));
    if let Some(Ok(())) = loaded {
        return OK;
    }
    if let Some(Err(reason)) = loaded {
        log_warning(&format!("the module is not loaded: {reason}"));
    }
    close_log();
    ERR
}

/// The server's way out; it does not get here while clients wait.
///
/// # Safety
/// Called by the server when it unloads the module.
#[no_mangle]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnUnload(ctx: *mut raw::RedisModuleCtx) -> libc::c_int {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    guarded(|| {
        if settings::are_changed() {
            let command = settings::load_command();
            log_warning(&format!("unloaded, and its settings with it. To load it again with them: {command}"));
        }
        timer::stop(&context);
        write::unload();
        closed::unload();
        state::unload();
        close_log();
    });
    OK
}

/// The one line that a server gets which is too old.
fn log_without_api(ctx: *mut raw::RedisModuleCtx, missing: &str) {
    let text = std::ffi::CString::new(format!(
        "the module is not loaded: it needs Redis 6.2 or later, this server has no {missing}"
    ))
    .unwrap_or_default();
    // SAFETY: the function is looked up, not assumed; the format takes the one string that follows.
    unsafe {
        if let Some(log) = raw::RedisModule_Log {
            log(ctx, c"warning".as_ptr(), c"%s".as_ptr(), text.as_ptr());
        }
    }
}

/// The server's commands that write locks outside of commands and on replicas, or tell whose a slot is.
const NEEDED: [&CStr; 7] = [c"SET", c"DEL", c"ZADD", c"ZREM", c"PEXPIREAT", c"PERSIST", c"EXISTS"];

/// Makes sure that the server knows the commands that the module calls and replicates: without them grants would not
/// reach replicas, and nobody who waits would be served.
fn check_commands(context: &Context) -> Result<(), String> {
    let missing: Vec<_> =
        NEEDED.iter().filter(|name| !closed::is_known(context, name)).map(|name| name.to_string_lossy()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("it needs the commands {}, which rename-command took away", missing.join(", ")))
}

/// Whether the module is loaded by a client, and not when the server starts: then there are none yet.
fn is_running(context: &Context) -> bool {
    let clients = context.server_info(c"clients", c"connected_clients");
    clients.and_then(|count| count.trim().parse::<u64>().ok()).is_some_and(|count| count > 0)
}

fn load(context: &Context, args: &Args<'_>) -> Result<(), String> {
    check_commands(context)?;
    let args: Vec<&[u8]> = (0..args.count()).filter_map(|at| args.at(at)).collect();
    settings::load(context, &args)?;
    let is_valkey = context.version().is_valkey();
    let slot_migration = if is_valkey { VALKEY_ATOMIC_SLOT_MIGRATION } else { 0 };
    // SAFETY: the context is that of the load.
    unsafe {
        (api::api().set_module_options)(
            context.as_ptr(),
            (raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD)
                .cast_signed()
                | slot_migration,
        );
    }
    let has_category = metadata::add_category(context);
    for (doc, run) in COMMANDS {
        metadata::register(context, doc, run, has_category)?;
    }
    info_section::register(context)?;
    events::subscribe(context)?;
    log_notice(concat!("lock ", env!("CARGO_PKG_VERSION"), " loaded"));
    if args.is_empty() && !settings::are_changed() && is_running(context) {
        log_warning(&format!(
            "loaded into a running server without settings: all are at their defaults. Those that it had before it was \
             unloaded, or that are in the configuration file, are not in force, and CONFIG REWRITE loses them. Give them \
             with it: {}",
            settings::load_command_for_example()
        ));
    }
    if cfg!(feature = "broken") {
        log_warning("this build has faults made on purpose, to test the tests: it is not for use");
    }
    Ok(())
}
