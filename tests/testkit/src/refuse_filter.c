/* A module that somebody may load in addition to ours: its command filter makes the server refuse to change the key
   "a-refused" with its own commands, even when a module calls them. */
#include <stddef.h>
#include <string.h>
#include <strings.h>

static void *(*register_filter)(void *, void (*)(void *), int);
static int (*args_count)(void *);
static void *(*arg_get)(void *, int);
static int (*arg_replace)(void *, int, void *);
static const char *(*string_ptr_len)(void *, size_t *);
static void *(*create_string)(void *, const char *, size_t);

static int is(void *filter, int at, const char *text) {
    size_t length;
    const char *bytes = string_ptr_len(arg_get(filter, at), &length);
    return length == strlen(text) && strncasecmp(bytes, text, length) == 0;
}

static void refuse(void *filter) {
    if (args_count(filter) < 2 || !is(filter, 1, "a-refused")) return;
    if (is(filter, 0, "SET") || is(filter, 0, "DEL")) arg_replace(filter, 0, create_string(NULL, "refused", 7));
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    (void)argv, (void)argc;
    int (*get_api)(const char *, void *) = (int (*)(const char *, void *))((void **)ctx)[0];
    void (*set_attribs)(void *, const char *, int, int);
    get_api("RedisModule_SetModuleAttribs", &set_attribs);
    set_attribs(ctx, "refuse", 1, 1);
    get_api("RedisModule_RegisterCommandFilter", &register_filter);
    get_api("RedisModule_CommandFilterArgsCount", &args_count);
    get_api("RedisModule_CommandFilterArgGet", &arg_get);
    get_api("RedisModule_CommandFilterArgReplace", &arg_replace);
    get_api("RedisModule_StringPtrLen", &string_ptr_len);
    get_api("RedisModule_CreateString", &create_string);
    return register_filter(ctx, refuse, 0) ? 0 : 1;
}
