//! The entry points: the C functions with which the server loads and unloads the module.

use crate::driver::{self, Writer};
use crate::server::api::args::Args;
use crate::server::api::context::Context;
use crate::server::api::{self, api};
use crate::server::edge;
use crate::server::entries::events;
use crate::server::entries::info_fields;
use crate::server::entries::register;
use crate::server::facts::version::Version;
use crate::server::log;
use crate::server::panics::guarded;
use crate::server::server_call;
use crate::server::settings::configure;
use crate::server::state::module;
use redis_module::raw;
use std::ffi::CStr;

pub use register::Registration;

const OK: i32 = 0;
const ERR: i32 = 1;

/// Valkey 9 moves slots atomically only if every module declares support for it. This module does: slots are looked up,
/// not remembered. Redis has no such option, and uses the bit for something else.
const VALKEY_ATOMIC_SLOT_MIGRATION: i32 = 1 << 5;

/// Valkey 8.1 lets `RM_Replicate` skip the command lookup for a module that replicates only existing commands, which
/// `check_commands` has checked. Redis has no such option.
const VALKEY_SKIP_COMMAND_VALIDATION: i32 = 1 << 4;

/// Defines the functions with which the server loads and unloads the module. Takes its name, its version as MODULE LIST
/// shows it, and `fn(&Context, &[&[u8]]) -> Result<(), String>`, which gets the module arguments.
macro_rules! export_module {
    ($name:expr, $version:expr, $load:path) => {
        /// The entry point for loading.
        ///
        /// # Safety
        /// Called by the server when it loads the module.
        #[no_mangle]
        #[allow(non_snake_case, unsafe_code)]
        pub unsafe extern "C" fn RedisModule_OnLoad(
            ctx: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: libc::c_int,
        ) -> libc::c_int {
            // SAFETY: these are the server's own arguments.
            unsafe { $crate::server::entries::on_load::on_load($name, $version, $load, ctx, argv, argc) }
        }

        /// The entry point for unloading; the server does not call it while clients wait.
        ///
        /// # Safety
        /// Called by the server when it unloads the module.
        #[no_mangle]
        #[allow(non_snake_case, unsafe_code)]
        pub unsafe extern "C" fn RedisModule_OnUnload(ctx: *mut redis_module::raw::RedisModuleCtx) -> libc::c_int {
            // SAFETY: the server's own context.
            unsafe { $crate::server::entries::on_load::on_unload(ctx) }
        }
    };
}
pub(crate) use export_module;

/// Loads the module.
///
/// # Safety
/// Called with the server's arguments for loading the module.
pub unsafe fn on_load(
    name: &CStr,
    version: i32,
    load: fn(&Context, &[&[u8]]) -> Result<(), String>,
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: libc::c_int,
) -> libc::c_int {
    // SAFETY: these are the server's own arguments. Nothing is allocated before this call, which sets up the allocator.
    let status =
        unsafe { raw::Export_RedisModule_Init(ctx, name.as_ptr(), version, raw::REDISMODULE_APIVER_1.cast_signed()) };
    if status != OK {
        return ERR;
    }
    // SAFETY: the init call has succeeded and nothing is registered yet.
    if let Err(missing) = unsafe { api::init() } {
        log::without_api(ctx, missing);
        return ERR;
    }
    // SAFETY: the context is good until this returns.
    let context = unsafe { Context::new(ctx) };
    log::open(&context);
    let loaded = guarded(|| {
        // SAFETY: argv and argc are the server's own; a load has no command name in front.
        let args = unsafe { Args::of_load(&context, argv, argc) };
        let args: Vec<&[u8]> = (0..args.count()).filter_map(|at| args.at(at)).collect();
        load(&context, &args)
    });
    if let Some(Ok(())) = loaded {
        return OK;
    }
    if let Some(Err(reason)) = loaded {
        log::warning(&format!("the module is not loaded: {reason}"));
    }
    module().unload();
    log::close();
    ERR
}

/// Unloads the module and frees all of its memory.
///
/// # Safety
/// Called with the server's context for unloading the module.
pub unsafe fn on_unload(ctx: *mut raw::RedisModuleCtx) -> libc::c_int {
    // SAFETY: the server's own context, good until this returns.
    let context = unsafe { Context::new(ctx) };
    guarded(|| {
        let settings = &module().settings;
        if settings.are_changed() {
            let command = settings.load_command();
            log::warning(&format!(
                "the module is unloaded, and its settings are lost. To load it again with the same settings: {command}"
            ));
        }
        // Redis 6.2 unloads a module that has a timer, which would then call unloaded code.
        let edge = edge::ServerEdge::of(&context, Writer::Timer);
        driver::Entry::new(&module().driver, edge).stop_timer();
        module().unload();
        log::close();
    });
    OK
}

/// The server commands that the module needs: to write locks outside commands and on replicas, and to ask whether a
/// slot is served here.
const NEEDED: [&CStr; 7] = [c"SET", c"DEL", c"ZADD", c"ZREM", c"PEXPIREAT", c"PERSIST", c"EXISTS"];

/// Checks that the server has the commands that the module calls and replicates. Without them, grants would not reach
/// replicas and no waiter would be served.
///
/// # Errors
/// The missing commands.
pub fn check_commands(context: &Context) -> Result<(), String> {
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|name| !server_call::has_command(context, name))
        .map(|name| name.to_string_lossy())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("it needs the commands {}, which rename-command removed", missing.join(", ")))
}

/// Reads the module arguments and registers the settings.
///
/// # Errors
/// The problem, naming the argument.
pub fn load_settings(context: &Context, args: &[&[u8]]) -> Result<(), String> {
    configure::load(context, &module().settings, args)
}

/// Tells the server which options the module supports.
pub fn set_options(context: &Context) {
    let mut valkey = 0;
    if Version::of(context).is_valkey() {
        // SAFETY: takes nothing, and returns the options that the server knows.
        let known = api().get_module_options_all.map_or(0, |options| unsafe { options() });
        valkey = VALKEY_ATOMIC_SLOT_MIGRATION | (known & VALKEY_SKIP_COMMAND_VALIDATION);
    }
    let options = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    // SAFETY: the context comes from module load.
    unsafe { (api().set_module_options)(context.as_ptr(), options.cast_signed() | valkey) };
}

/// Registers the commands, the INFO section, and the callbacks.
///
/// # Errors
/// The part that the server did not accept.
pub fn register_all(context: &Context, commands: &[Registration]) -> Result<(), String> {
    let category = register::add_category(context);
    for command in commands {
        register::register(context, command, category)?;
    }
    info_fields::register(context)?;
    events::begin(context)
}

/// Logs that the module is loaded, and which settings an operator may have forgotten.
pub fn log_loaded(context: &Context, name: &str, has_arguments: bool) {
    log::notice(&format!("{name} loaded"));
    let settings = &module().settings;
    if !has_arguments && !settings.are_changed() && is_running(context) {
        log::warning(&format!(
            "loaded into a running server without settings: all are at their defaults. Settings from before an unload, \
             or from the configuration file, are not in force, and CONFIG REWRITE loses them. Pass them when you load \
             the module: {}",
            settings.load_command_for_example()
        ));
    }
}

/// Whether a client is loading the module into a running server: when the server starts, there are no clients yet.
fn is_running(context: &Context) -> bool {
    let clients = context.server_info(c"clients", c"connected_clients");
    clients.and_then(|count| count.trim().parse::<u64>().ok()).is_some_and(|count| count > 0)
}
