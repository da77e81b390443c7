/* What the preload library (src/frozen/) is told: the clock once, and for each call a key of the seed and of the call. */
#define _GNU_SOURCE
#include "frozen/frozen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digest/hash.h"
#include "init/init.h"

_Static_assert(sizeof(struct frozen) == 56 && sizeof FROZEN_DIRECTORY == sizeof INIT_PRIVATE, "both sides mean the same");

struct bunshin_error *frozen_settings(const char *const *word, struct settings *settings) {
    char *end = NULL;
    if (*word[0]) {
        settings->frozen |= FROZEN_CLOCK;
        settings->frozen_at.tv_sec = strtoll(word[0], &end, 10);
        if (!*end)
            settings->frozen_at.tv_nsec = strtol(word[1], &end, 10);
    }
    if (*word[2] && (!end || !*end)) {
        settings->frozen |= FROZEN_RANDOM;
        settings->seed = strtoull(word[2], &end, 10);
    }
    if (end && *end)
        return bunshin_error_new(BUNSHIN_ERROR_INVALID, EINVAL, "cannot freeze the clock at \"%s.%s\" with seed \"%s\"", word[0], word[1],
                                 word[2]);
    return NULL;
}

static struct bunshin_error *tell(const struct settings *settings, const struct hash *call) {
    struct frozen told = {.magic = FROZEN_MAGIC,
                          .flags = settings->frozen,
                          .seconds = settings->frozen_at.tv_sec,
                          .nanoseconds = (uint32_t)settings->frozen_at.tv_nsec};
    memcpy(told.call, call->bytes, sizeof told.call);
    int fd = open(FROZEN_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && pwrite(fd, &told, sizeof told, 0) == sizeof told;
    if (fd >= 0)
        close(fd);
    if (!ok || !(settings->frozen & FROZEN_RANDOM))
        return ok ? NULL : bunshin_error_os("cannot write %s", FROZEN_FILE);
    /* Anew: a process that is still counting in the old one counts for the call that it belongs to. */
    unlink(FROZEN_TICKETS);
    fd = open(FROZEN_TICKETS, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    ok = fd >= 0 && ftruncate(fd, FROZEN_BUCKETS * sizeof(uint32_t)) == 0 && fchmod(fd, 0666) == 0;
    if (fd >= 0)
        close(fd);
    return ok ? NULL : bunshin_error_os("cannot make %s", FROZEN_TICKETS);
}

static void begin(const struct settings *settings, struct hash_state *ret) {
    hash_init(ret);
    hash_number(ret, settings->seed);
}

struct bunshin_error *frozen_prepare(struct init *init) {
    struct hash_state state;
    if (!init->settings.frozen)
        return NULL;
    begin(&init->settings, &state);
    struct hash none = hash_end(&state);
    return tell(&init->settings, &none);
}

struct bunshin_error *frozen_begin_call(struct init *init, enum call_kind kind, const char *text, const char *const *argv) {
    struct hash_state state;
    if (!(init->settings.frozen & FROZEN_RANDOM))
        return NULL;
    begin(&init->settings, &state);
    hash_number(&state, kind);
    if (text)
        hash_text(&state, text, strlen(text));
    for (; argv && *argv; argv++)
        hash_text(&state, *argv, strlen(*argv));
    struct hash call = hash_end(&state);
    return tell(&init->settings, &call);
}
