#define _GNU_SOURCE
#include "digest/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/buffer.h"

#define ATTRIBUTES_MOST 65536
#define OVERLAY "user.overlay."
#define ESCAPED "user.overlay.overlay."

/* Attributes are asked for by path: the entry may be one that cannot be opened. */
static void through_proc(int directory, const char *path, char ret[ENTRY_PATH + 64]) {
    snprintf(ret, ENTRY_PATH + 64, "/proc/self/fd/%d/%s", directory, path);
}

bool entry_is_opaque(int directory, const char *path) {
    char whole[ENTRY_PATH + 64], value = 0;
    through_proc(directory, path, whole);
    return lgetxattr(whole, OVERLAY "opaque", &value, 1) == 1 && value == 'y';
}

/* What the overlay itself has noted on its layers is none of the workspace's. */
static bool is_ours(const char *name) { return !strncmp(name, OVERLAY, sizeof OVERLAY - 1) && strncmp(name, ESCAPED, sizeof ESCAPED - 1); }

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static struct bunshin_error *attributes(int directory, const char *path, struct hash_state *state) {
    static char names[ATTRIBUTES_MOST], value[ATTRIBUTES_MOST];
    static const char *sorted[ATTRIBUTES_MOST / 2];
    char whole[ENTRY_PATH + 64];
    size_t count = 0;
    through_proc(directory, path, whole);
    ssize_t length = llistxattr(whole, names, sizeof names);
    if (length < 0 && errno != EOPNOTSUPP && errno != ENOENT)
        return bunshin_error_os("cannot list the attributes of %s", path);
    for (ssize_t at = 0; at < length; at += (ssize_t)strlen(names + at) + 1)
        if (!is_ours(names + at))
            sorted[count++] = names + at;
    qsort(sorted, count, sizeof *sorted, by_name);
    hash_number(state, count);
    for (size_t i = 0; i < count; i++) {
        ssize_t size = lgetxattr(whole, sorted[i], value, sizeof value);
        hash_text(state, sorted[i], strlen(sorted[i]));
        hash_text(state, value, size < 0 ? 0 : (size_t)size);
    }
    return NULL;
}

static int open_to_read(int directory, const char *path) {
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = openat(directory, path, flags | O_NOATIME);
    return fd < 0 && errno == EPERM ? openat(directory, path, flags) : fd;
}

static struct bunshin_error *stream(int fd, const char *path, struct hash_state *state) {
    static uint8_t chunk[1 << 18];
    uint64_t total = 0;
    for (;;) {
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return bunshin_error_os("cannot read %s", path);
        if (got == 0)
            break;
        hash_update(state, chunk, (size_t)got);
        total += (uint64_t)got;
    }
    hash_number(state, total);
    return NULL;
}

/* Files that may have to be normalised are looked at as a whole. */
static struct bunshin_error *candidate(int fd, const char *path, struct hash_state *state, struct body *ret) {
    struct buffer text = {0};
    struct bunshin_error *error = buffer_read_all(&text, fd, path);
    if (!error && normal_compiled(path, text.data, text.size, ret)) {
        hash_text(state, "compiled", 8);
        hash_update(state, text.data, 8);
        hash_text(state, text.data + 16, text.size - 16);
    } else if (!error) {
        struct hash_state before = *state;
        hash_text(state, "index", 5);
        if (!normal_index(path, text.data, text.size, state)) {
            *state = before;
            hash_update(state, text.data, text.size);
            hash_number(state, text.size);
        }
    }
    buffer_deinit(&text);
    return error;
}

static struct bunshin_error *content(int directory, const char *path, const struct stat *info, struct hash_state *state, struct body *ret) {
    if ((uint64_t)info->st_size > ENTRY_LARGE) {
        ret->large = true;
        hash_text(state, "large", 5);
        hash_number(state, info->st_ino);
        hash_number(state, (uint64_t)info->st_ctim.tv_sec);
        hash_number(state, (uint64_t)info->st_ctim.tv_nsec);
        hash_number(state, (uint64_t)info->st_size);
        return NULL;
    }
    int fd = open_to_read(directory, path);
    if (fd < 0)
        return bunshin_error_os("cannot open %s", path);
    struct bunshin_error *error = normal_is_candidate(path) ? candidate(fd, path, state, ret) : stream(fd, path, state);
    close(fd);
    return error;
}

struct bunshin_error *entry_body(int directory, const char *path, const struct stat *info, struct body *ret) {
    struct hash_state state;
    *ret = (struct body){0};
    hash_init(&state);
    TRY(attributes(directory, path, &state));
    if (S_ISREG(info->st_mode))
        TRY(content(directory, path, info, &state, ret));
    else if (S_ISLNK(info->st_mode)) {
        char target[4097];
        ssize_t length = readlinkat(directory, path, target, sizeof target);
        if (length < 0)
            return bunshin_error_os("cannot read the link %s", path);
        hash_text(&state, target, (size_t)length);
    } else if (S_ISCHR(info->st_mode) || S_ISBLK(info->st_mode))
        hash_number(&state, info->st_rdev);
    ret->hash = hash_end(&state);
    return NULL;
}
