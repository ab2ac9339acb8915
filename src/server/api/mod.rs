//! The server functions that the module uses, looked up once at load.
//!
//! A function that every supported server has is a plain function pointer, so calls need no unwrapping: on a server
//! that lacks it, and is thus too old, the load fails. A function that only newer servers have is an `Option`.

mod alloc;
pub mod args;
pub mod command_docs;
pub mod context;
pub mod handle;

use redis_module::raw;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

macro_rules! api {
    (required { $($name:ident: $kind:ty = $raw:ident;)* } optional { $($opt:ident: $opt_kind:ty = $opt_raw:ident;)* }) => {
        /// See the functions of the same names in the server's module API reference.
        pub struct Api { $(pub $name: $kind,)* $(pub $opt: Option<$opt_kind>,)* }

        impl Api {
            /// Reads the table that the server filled in, or returns the name of a missing function.
            ///
            /// # Safety
            /// `Export_RedisModule_Init` has succeeded.
            unsafe fn read() -> Result<Self, &'static str> {
                // SAFETY: the statics were filled in by the init call and are not written again.
                unsafe {
                    Ok(Self {
                        $($name: raw::$raw.ok_or(stringify!($raw))?,)*
                        $($opt: raw::$opt_raw,)*
                    })
                }
            }
        }
    };
}

type Ctx = *mut raw::RedisModuleCtx;
type Str = *mut raw::RedisModuleString;
type Blocked = *mut raw::RedisModuleBlockedClient;
type Reply = *mut raw::RedisModuleCallReply;
type Key = *mut raw::RedisModuleKey;
type InfoCtx = *mut raw::RedisModuleInfoCtx;
type Info = *mut raw::RedisModuleServerInfoData;
type Int = libc::c_int;
type Long = libc::c_longlong;
type Chars = *const libc::c_char;

api! {
    required {
        avoid_replica_traffic: unsafe extern "C" fn() -> Int = RedisModule_AvoidReplicaTraffic;
        block_client: unsafe extern "C" fn(Ctx, raw::RedisModuleCmdFunc, raw::RedisModuleCmdFunc, Option<unsafe extern "C" fn(Ctx, *mut libc::c_void)>, Long) -> Blocked = RedisModule_BlockClient;
        call: unsafe extern "C" fn(Ctx, Chars, Chars, ...) -> Reply = RedisModule_Call;
        call_reply_array_element: unsafe extern "C" fn(Reply, usize) -> Reply = RedisModule_CallReplyArrayElement;
        call_reply_integer: unsafe extern "C" fn(Reply) -> Long = RedisModule_CallReplyInteger;
        call_reply_string_ptr: unsafe extern "C" fn(Reply, *mut usize) -> Chars = RedisModule_CallReplyStringPtr;
        call_reply_type: unsafe extern "C" fn(Reply) -> Int = RedisModule_CallReplyType;
        close_key: unsafe extern "C" fn(Key) = RedisModule_CloseKey;
        create_command: unsafe extern "C" fn(Ctx, Chars, raw::RedisModuleCmdFunc, Chars, Int, Int, Int) -> Int = RedisModule_CreateCommand;
        create_string: unsafe extern "C" fn(Ctx, Chars, usize) -> Str = RedisModule_CreateString;
        create_timer: unsafe extern "C" fn(Ctx, raw::mstime_t, raw::RedisModuleTimerProc, *mut libc::c_void) -> raw::RedisModuleTimerID = RedisModule_CreateTimer;
        delete_key: unsafe extern "C" fn(Key) -> Int = RedisModule_DeleteKey;
        free_call_reply: unsafe extern "C" fn(Reply) = RedisModule_FreeCallReply;
        free_server_info: unsafe extern "C" fn(Ctx, Info) = RedisModule_FreeServerInfo;
        free_string: unsafe extern "C" fn(Ctx, Str) = RedisModule_FreeString;
        free_thread_safe_context: unsafe extern "C" fn(Ctx) = RedisModule_FreeThreadSafeContext;
        get_blocked_client_private_data: unsafe extern "C" fn(Ctx) -> *mut libc::c_void = RedisModule_GetBlockedClientPrivateData;
        get_client_id: unsafe extern "C" fn(Ctx) -> libc::c_ulonglong = RedisModule_GetClientId;
        get_client_info_by_id: unsafe extern "C" fn(*mut libc::c_void, u64) -> Int = RedisModule_GetClientInfoById;
        get_context_flags: unsafe extern "C" fn(Ctx) -> Int = RedisModule_GetContextFlags;
        get_detached_thread_safe_context: unsafe extern "C" fn(Ctx) -> Ctx = RedisModule_GetDetachedThreadSafeContext;
        get_expire: unsafe extern "C" fn(Key) -> raw::mstime_t = RedisModule_GetExpire;
        get_selected_db: unsafe extern "C" fn(Ctx) -> Int = RedisModule_GetSelectedDb;
        get_server_info: unsafe extern "C" fn(Ctx, Chars) -> Info = RedisModule_GetServerInfo;
        get_used_memory_ratio: unsafe extern "C" fn() -> f32 = RedisModule_GetUsedMemoryRatio;
        info_add_field_u_long_long: unsafe extern "C" fn(InfoCtx, Chars, libc::c_ulonglong) -> Int = RedisModule_InfoAddFieldULongLong;
        info_add_section: unsafe extern "C" fn(InfoCtx, Chars) -> Int = RedisModule_InfoAddSection;
        info_begin_dict_field: unsafe extern "C" fn(InfoCtx, Chars) -> Int = RedisModule_InfoBeginDictField;
        info_end_dict_field: unsafe extern "C" fn(InfoCtx) -> Int = RedisModule_InfoEndDictField;
        is_keys_position_request: unsafe extern "C" fn(Ctx) -> Int = RedisModule_IsKeysPositionRequest;
        key_at_pos: unsafe extern "C" fn(Ctx, Int) = RedisModule_KeyAtPos;
        key_type: unsafe extern "C" fn(Key) -> Int = RedisModule_KeyType;
        log: unsafe extern "C" fn(Ctx, Chars, Chars, ...) = RedisModule_Log;
        notify_keyspace_event: unsafe extern "C" fn(Ctx, Int, Chars, Str) -> Int = RedisModule_NotifyKeyspaceEvent;
        open_key: unsafe extern "C" fn(Ctx, Str, Int) -> Key = RedisModule_OpenKey;
        register_info_func: unsafe extern "C" fn(Ctx, raw::RedisModuleInfoFunc) -> Int = RedisModule_RegisterInfoFunc;
        replicate: unsafe extern "C" fn(Ctx, Chars, Chars, ...) -> Int = RedisModule_Replicate;
        replicate_verbatim: unsafe extern "C" fn(Ctx) -> Int = RedisModule_ReplicateVerbatim;
        reply_with_array: unsafe extern "C" fn(Ctx, libc::c_long) -> Int = RedisModule_ReplyWithArray;
        reply_with_error: unsafe extern "C" fn(Ctx, Chars) -> Int = RedisModule_ReplyWithError;
        reply_with_long_long: unsafe extern "C" fn(Ctx, Long) -> Int = RedisModule_ReplyWithLongLong;
        reply_with_null: unsafe extern "C" fn(Ctx) -> Int = RedisModule_ReplyWithNull;
        reply_with_null_array: unsafe extern "C" fn(Ctx) -> Int = RedisModule_ReplyWithNullArray;
        reply_with_simple_string: unsafe extern "C" fn(Ctx, Chars) -> Int = RedisModule_ReplyWithSimpleString;
        reply_with_string_buffer: unsafe extern "C" fn(Ctx, Chars, usize) -> Int = RedisModule_ReplyWithStringBuffer;
        select_db: unsafe extern "C" fn(Ctx, Int) -> Int = RedisModule_SelectDb;
        server_info_get_field: unsafe extern "C" fn(Info, Chars) -> Chars = RedisModule_ServerInfoGetFieldC;
        set_abs_expire: unsafe extern "C" fn(Key, raw::mstime_t) -> Int = RedisModule_SetAbsExpire;
        set_disconnect_callback: unsafe extern "C" fn(Blocked, raw::RedisModuleDisconnectFunc) = RedisModule_SetDisconnectCallback;
        set_module_options: unsafe extern "C" fn(Ctx, Int) = RedisModule_SetModuleOptions;
        signal_modified_key: unsafe extern "C" fn(Ctx, Str) -> Int = RedisModule_SignalModifiedKey;
        stop_timer: unsafe extern "C" fn(Ctx, raw::RedisModuleTimerID, *mut *mut libc::c_void) -> Int = RedisModule_StopTimer;
        string_dma: unsafe extern "C" fn(Key, *mut usize, Int) -> *mut libc::c_char = RedisModule_StringDMA;
        string_ptr_len: unsafe extern "C" fn(*const raw::RedisModuleString, *mut usize) -> Chars = RedisModule_StringPtrLen;
        string_truncate: unsafe extern "C" fn(Key, usize) -> Int = RedisModule_StringTruncate;
        subscribe_to_keyspace_events: unsafe extern "C" fn(Ctx, Int, raw::RedisModuleNotificationFunc) -> Int = RedisModule_SubscribeToKeyspaceEvents;
        subscribe_to_server_event: unsafe extern "C" fn(Ctx, raw::RedisModuleEvent, raw::RedisModuleEventCallback) -> Int = RedisModule_SubscribeToServerEvent;
        unblock_client: unsafe extern "C" fn(Blocked, *mut libc::c_void) -> Int = RedisModule_UnblockClient;
        value_length: unsafe extern "C" fn(Key) -> usize = RedisModule_ValueLength;
        wrong_arity: unsafe extern "C" fn(Ctx) -> Int = RedisModule_WrongArity;
        zset_add: unsafe extern "C" fn(Key, f64, Str, *mut Int) -> Int = RedisModule_ZsetAdd;
        zset_first_in_score_range: unsafe extern "C" fn(Key, f64, f64, Int, Int) -> Int = RedisModule_ZsetFirstInScoreRange;
        zset_last_in_score_range: unsafe extern "C" fn(Key, f64, f64, Int, Int) -> Int = RedisModule_ZsetLastInScoreRange;
        zset_range_current_element: unsafe extern "C" fn(Key, *mut f64) -> Str = RedisModule_ZsetRangeCurrentElement;
        zset_range_next: unsafe extern "C" fn(Key) -> Int = RedisModule_ZsetRangeNext;
        zset_rem: unsafe extern "C" fn(Key, Str, *mut Int) -> Int = RedisModule_ZsetRem;
        zset_score: unsafe extern "C" fn(Key, Str, *mut f64) -> Int = RedisModule_ZsetScore;
        zset_range_stop: unsafe extern "C" fn(Key) = RedisModule_ZsetRangeStop;
    }
    optional {
        // 7.2
        get_module_options_all: unsafe extern "C" fn() -> Int = RedisModule_GetModuleOptionsAll;
        cached_microseconds: unsafe extern "C" fn() -> raw::ustime_t = RedisModule_CachedMicroseconds;
        microseconds: unsafe extern "C" fn() -> raw::ustime_t = RedisModule_Microseconds;
        // 7.4, Valkey 8
        add_acl_category: unsafe extern "C" fn(Ctx, Chars) -> Int = RedisModule_AddACLCategory;
        set_command_acl_categories: unsafe extern "C" fn(*mut raw::RedisModuleCommand, Chars) -> Int = RedisModule_SetCommandACLCategories;
        // 7.0.6
        set_context_user: unsafe extern "C" fn(Ctx, *const raw::RedisModuleUser) = RedisModule_SetContextUser;
        // 7.0
        acl_add_log_entry: unsafe extern "C" fn(Ctx, *mut raw::RedisModuleUser, Str, raw::RedisModuleACLLogEntryReason) = RedisModule_ACLAddLogEntry;
        acl_check_channel_permissions: unsafe extern "C" fn(*mut raw::RedisModuleUser, Str, Int) -> Int = RedisModule_ACLCheckChannelPermissions;
        acl_check_key_permissions: unsafe extern "C" fn(*mut raw::RedisModuleUser, Str, Int) -> Int = RedisModule_ACLCheckKeyPermissions;
        free_module_user: unsafe extern "C" fn(*mut raw::RedisModuleUser) = RedisModule_FreeModuleUser;
        get_current_user_name: unsafe extern "C" fn(Ctx) -> Str = RedisModule_GetCurrentUserName;
        get_module_user_from_user_name: unsafe extern "C" fn(Str) -> *mut raw::RedisModuleUser = RedisModule_GetModuleUserFromUserName;
        get_command: unsafe extern "C" fn(Ctx, Chars) -> *mut raw::RedisModuleCommand = RedisModule_GetCommand;
        set_command_info: unsafe extern "C" fn(*mut raw::RedisModuleCommand, *const raw::RedisModuleCommandInfo) -> Int = RedisModule_SetCommandInfo;
        get_client_name_by_id: unsafe extern "C" fn(Ctx, u64) -> Str = RedisModule_GetClientNameById;
        key_at_pos_with_flags: unsafe extern "C" fn(Ctx, Int, Int) = RedisModule_KeyAtPosWithFlags;
        load_configs: unsafe extern "C" fn(Ctx) -> Int = RedisModule_LoadConfigs;
        register_numeric_config: unsafe extern "C" fn(Ctx, Chars, Long, libc::c_uint, Long, Long, raw::RedisModuleConfigGetNumericFunc, raw::RedisModuleConfigSetNumericFunc, raw::RedisModuleConfigApplyFunc, *mut libc::c_void) -> Int = RedisModule_RegisterNumericConfig;
        publish_message: unsafe extern "C" fn(Ctx, Str, Str) -> Int = RedisModule_PublishMessage;
        publish_message_shard: unsafe extern "C" fn(Ctx, Str, Str) -> Int = RedisModule_PublishMessageShard;
        reply_with_map: unsafe extern "C" fn(Ctx, libc::c_long) -> Int = RedisModule_ReplyWithMap;
    }
}

struct Table(UnsafeCell<MaybeUninit<Api>>);

// SAFETY: written once, at load, before any of the module's callbacks can run; only read afterwards.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new(MaybeUninit::uninit()));

/// Fills in the table, or returns the name of the function that the server lacks.
///
/// # Safety
/// Called when the module is loaded, after `Export_RedisModule_Init` has succeeded and before the module registers
/// anything.
pub unsafe fn init() -> Result<(), &'static str> {
    // SAFETY: the caller's promise.
    let api = unsafe { Api::read() }?;
    // SAFETY: nothing reads the table before this returns.
    unsafe { (*TABLE.0.get()).write(api) };
    Ok(())
}

pub fn api() -> &'static Api {
    // SAFETY: this runs only in callbacks, which exist only after `init` has succeeded.
    unsafe { (*TABLE.0.get()).assume_init_ref() }
}
