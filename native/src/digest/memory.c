/* Files on file systems in memory that every workspace has: below /dev/shm, and what was added to /dev. Always read anew. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "digest/digest.h"
#include "digest/entry.h"

#define READ_MOST (64u << 20) /* in all; more counts by history */

struct memory {
    struct digest *digest;
    struct pair *sum;
    uint64_t read;
    dev_t device;
    bool devices; /* in /dev itself */
    char path[ENTRY_PATH];
};

static struct bunshin_error *directory(struct memory *memory, int fd);

static struct bunshin_error *entry(struct memory *memory, int fd, const char *name, const struct stat *info) {
    struct body body = {0};
    struct hash_state state;
    memory->read += S_ISREG(info->st_mode) ? (uint64_t)info->st_size : 0;
    if (memory->read > READ_MOST) {
        memory->digest->by_history = true;
        return digest_unique(memory->digest, "more than 64 MB of files in memory");
    }
    TRY(entry_body(fd, name, info, &body));
    hash_init(&state);
    hash_text(&state, memory->path, strlen(memory->path));
    hash_number(&state, info->st_mode);
    hash_number(&state, (uint64_t)info->st_uid << 32 | info->st_gid);
    hash_update(&state, body.hash.bytes, HASH_SIZE);
    if (!S_ISDIR(info->st_mode) && info->st_nlink > 1) {
        memory->digest->by_history = true; /* which names belong together */
        TRY(digest_unique(memory->digest, "linked files in memory"));
    }
    struct hash_state with_times = state;
    struct hash hash = hash_end(&state);
    sum_add(&memory->sum->loose, &hash);
    hash_number(&with_times, (uint64_t)info->st_mtim.tv_sec);
    hash_number(&with_times, (uint64_t)info->st_mtim.tv_nsec);
    hash = hash_end(&with_times);
    sum_add(&memory->sum->strict, &hash);
    if (!S_ISDIR(info->st_mode))
        return NULL;
    int inner = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return inner < 0 ? bunshin_error_os("cannot open %s", memory->path) : directory(memory, inner);
}

/* Takes the descriptor. */
static struct bunshin_error *directory(struct memory *memory, int fd) {
    DIR *stream = fdopendir(fd);
    size_t length = strlen(memory->path);
    struct bunshin_error *error = NULL;
    if (!stream) {
        close(fd);
        return bunshin_error_os("cannot list %s", memory->path);
    }
    for (struct dirent *item; !error && (item = readdir(stream));) {
        struct stat info;
        if (!strcmp(item->d_name, ".") || !strcmp(item->d_name, "..") || length + strlen(item->d_name) + 2 > sizeof memory->path)
            continue;
        snprintf(memory->path + length, sizeof memory->path - length, "/%s", item->d_name);
        if (fstatat(fd, item->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_dev == memory->device &&
            !(memory->devices && settings_makes(memory->path)))
            error = entry(memory, fd, item->d_name, &info);
        memory->path[length] = '\0';
    }
    closedir(stream);
    return error;
}

struct bunshin_error *files_in_memory(struct digest *digest, struct pair *ret) {
    static const char *const roots[] = {"/dev/shm", "/dev"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        struct memory memory = {.digest = digest, .sum = ret, .devices = i == 1};
        struct stat info;
        int fd = open(roots[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &info) != 0) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        memory.device = info.st_dev;
        snprintf(memory.path, sizeof memory.path, "%s", roots[i]);
        struct bunshin_error *error = directory(&memory, fd);
        if (error) {
            bunshin_error_destroy(error);
            digest->by_history = true;
            TRY(digest_unique(digest, "files that could not be read"));
        }
    }
    return NULL;
}
