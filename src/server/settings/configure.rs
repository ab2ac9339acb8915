//! Applies the settings: from module arguments on every server, with `CONFIG GET/SET lock.<name>` on 7.0 and later.

use crate::lock::record::number;
use crate::server::api::api;
use crate::server::api::context::Context;
use crate::server::panics::guarded;
use crate::server::settings::{Setting, Settings};
use redis_module::raw;

/// Reads the module arguments, pairs of `name value`, and registers the settings with the server. After that the
/// server's configuration file overrides them.
///
/// # Errors
/// The problem, naming the argument.
pub fn load(context: &Context, settings: &'static Settings, args: &[&[u8]]) -> Result<(), String> {
    let all = settings.all();
    let given = read_arguments(&all, args)?;
    for (setting, given) in all.into_iter().zip(given) {
        setting.value.set(given.unwrap_or(setting.default));
        register(context, setting)?;
    }
    if let Some(load_configs) = api().load_configs {
        // SAFETY: called once, when the module is loaded, after the settings were registered.
        if unsafe { load_configs(context.as_ptr()) } != 0 {
            return Err("the server did not accept its configuration of lock.*".into());
        }
    }
    Ok(())
}

fn read_arguments(all: &[&Setting], args: &[&[u8]]) -> Result<Vec<Option<i64>>, String> {
    let mut given = vec![None; all.len()];
    for pair in args.chunks(2) {
        let name = pair.first().copied().unwrap_or_default();
        let shown = String::from_utf8_lossy(name);
        let found = all.iter().zip(&mut given).find(|(setting, _)| setting.name.to_bytes().eq_ignore_ascii_case(name));
        let Some((setting, slot)) = found else {
            let known: Vec<_> = all.iter().map(|setting| setting.name.to_string_lossy()).collect();
            return Err(format!("module argument '{shown}' is unknown, there are: {}", known.join(", ")));
        };
        let Some(value) = pair.get(1) else {
            return Err(format!("module argument '{shown}' has no value"));
        };
        let value = match value.strip_prefix(b"-") {
            Some(digits) => number(digits).and_then(|value| i64::try_from(value).ok()).and_then(i64::checked_neg),
            None => number(value).and_then(|value| i64::try_from(value).ok()),
        };
        let (min, max) = (setting.min, setting.max);
        match value {
            Some(value) if (min..=max).contains(&value) => {
                if slot.replace(value).is_some() {
                    return Err(format!("module argument '{shown}' is given twice"));
                }
            }
            _ => return Err(format!("module argument '{shown}' is not a whole number between {min} and {max}")),
        }
    }
    Ok(given)
}

/// Registers a setting if the server has a configuration for modules. Its default there is the module argument, so that
/// a rewritten configuration file contains only differences from it.
fn register(context: &Context, setting: &'static Setting) -> Result<(), String> {
    let Some(register) = api().register_numeric_config else {
        return Ok(());
    };
    // SAFETY: the context comes from module load; name and setting are static, and the callbacks get the setting back
    // as their `privdata`.
    let status = unsafe {
        register(
            context.as_ptr(),
            setting.name.as_ptr(),
            setting.value.get(),
            raw::REDISMODULE_CONFIG_DEFAULT,
            setting.min,
            setting.max,
            Some(get),
            Some(set),
            None,
            std::ptr::from_ref(setting).cast_mut().cast(),
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(format!("the server did not accept the setting lock.{}", setting.name.to_string_lossy()))
    }
}

unsafe extern "C" fn get(_name: *const libc::c_char, setting: *mut libc::c_void) -> libc::c_longlong {
    // SAFETY: this is the pointer to a static setting that was registered.
    guarded(|| unsafe { &*setting.cast::<Setting>() }.value.get()).unwrap_or(0)
}

unsafe extern "C" fn set(
    _name: *const libc::c_char,
    value: libc::c_longlong,
    setting: *mut libc::c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> libc::c_int {
    // SAFETY: this is the pointer to a static setting that was registered; the server has checked
    // the bounds.
    guarded(|| unsafe { &*setting.cast::<Setting>() }.value.set(value));
    0
}
