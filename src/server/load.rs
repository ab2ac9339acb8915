//! Loading: checks the server, reads the settings, registers commands and event handlers.

use super::callback::{c_command, guarded};
use super::context::{log_notice, log_warning, Args, Context};
use super::{api, events, settings};
use crate::commands::parse::Arguments;
use crate::commands::{acquire, cancel, check, extend, help, info, recover, release, top};
use redis_module::raw;
use std::ffi::CStr;

const NAME: &CStr = c"lock";
/// 0.1.0 as MODULE LIST shows it.
const VERSION: i32 = 100;
const OK: i32 = 0;
const ERR: i32 = 1;

struct Command {
    name: &'static CStr,
    flags: &'static CStr,
    /// 1: the first argument is a key; 0: there is none.
    key: i32,
    run: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, i32) -> i32,
}

static COMMANDS: [Command; 9] = [
    Command { name: c"lock.acquire", flags: c"write deny-oom fast", key: 1, run: c_command!(acquire::run) },
    Command { name: c"lock.recover", flags: c"write deny-oom fast", key: 1, run: c_command!(recover::run) },
    Command { name: c"lock.extend", flags: c"write fast", key: 1, run: c_command!(extend::run) },
    Command { name: c"lock.release", flags: c"write fast", key: 1, run: c_command!(release::run) },
    Command { name: c"lock.check", flags: c"readonly fast", key: 1, run: c_command!(check::run) },
    Command { name: c"lock.info", flags: c"readonly fast", key: 1, run: c_command!(info::run) },
    Command { name: c"lock.cancel", flags: c"write fast", key: 1, run: c_command!(cancel::run) },
    Command { name: c"lock.top", flags: c"readonly admin", key: 0, run: c_command!(top::run) },
    Command { name: c"lock.help", flags: c"allow-loading allow-stale", key: 0, run: c_command!(help::run) },
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
    // SAFETY: argv and argc are the server's own; a load has no command name in front.
    let loaded = guarded(|| load(&context, &unsafe { Args::of_load(&context, argv, argc) }));
    match loaded {
        Some(Ok(())) => OK,
        Some(Err(reason)) => {
            log_warning(&format!("the module is not loaded: {reason}"));
            ERR
        }
        None => ERR,
    }
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

fn load(context: &Context, args: &Args<'_>) -> Result<(), String> {
    let args: Vec<&[u8]> = (0..args.count()).filter_map(|at| args.at(at)).collect();
    settings::load(context, &args)?;
    // SAFETY: the context is that of the load.
    unsafe {
        (api::api().set_module_options)(
            context.as_ptr(),
            raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED.cast_signed(),
        );
    }
    for command in &COMMANDS {
        register(context, command)?;
    }
    events::subscribe(context)?;
    log_notice(concat!("lock ", env!("CARGO_PKG_VERSION"), " loaded"));
    Ok(())
}

fn register(context: &Context, command: &'static Command) -> Result<(), String> {
    // SAFETY: the context is that of the load, name and flags are C strings.
    let status = unsafe {
        (api::api().create_command)(
            context.as_ptr(),
            command.name.as_ptr(),
            Some(command.run),
            command.flags.as_ptr(),
            command.key,
            command.key,
            command.key,
        )
    };
    if status == OK {
        Ok(())
    } else {
        Err(format!("the server did not accept the command {}", command.name.to_string_lossy()))
    }
}
