/* Files that have a name: regular files, directories, devices. What has none any more is in ghost.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/described.h"
#include "fork/locate.h"
#include "fork/rebuild.h"

#define ONCE (O_CREAT | O_EXCL | O_TRUNC | O_NOCTTY) /* flags of opening, not of the open file */
#define DELETED " (deleted)"

/* ---- capture ---- */

/* The path in a link of /proc, and whether it has been taken from what is there. A name may really end so. */
static bool is_deleted(const char *link, const struct stat *info, char *ret_path, size_t size) {
    size_t length = strlen(link), cut = strlen(DELETED);
    struct stat named;
    snprintf(ret_path, size, "%s", link);
    if (length <= cut || strcmp(link + length - cut, DELETED))
        return false;
    if (lstat(link, &named) == 0 && named.st_ino == info->st_ino && named.st_dev == info->st_dev)
        return false;
    snprintf(ret_path, size, "%.*s", (int)(length - cut), link);
    return true;
}

static bool is_known_device(const char *link) {
    static const char *const known[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(link, known[i]))
            return true;
    return false;
}

struct bunshin_error *file_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    struct stat info, named;
    char path[4300];
    const char *link = holder->link;
    if (fstat(holder->copy, &info) != 0)
        return bunshin_error_os("cannot look at %.200s", link);
    if (*link != '/')
        return namespace_capture(capture, holder, &info, ret);
    if (procfile_is(link))
        return procfile_capture(capture, holder, &info, ret);
    bool path_only = ret->flags & O_PATH, device = S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode);
    if (is_deleted(link, &info, path, sizeof path)) {
        bool nameless = ret->flags & O_TMPFILE & ~O_DIRECTORY;
        if (S_ISDIR(info.st_mode) || info.st_nlink == 0 || nameless) {
            if (device && info.st_rdev)
                return capture_refuse(holder, "a deleted device, %.100s", path);
            return ghost_capture(capture, holder->copy, path, &info, ret);
        }
    } else if (device && !path_only && !is_known_device(link))
        return capture_refuse(holder, "the device %.100s", link);
    ret->kind = KIND_FILE;
    int found = path_only ? lstat(path, &named) : stat(path, &named);
    if (found == 0 && named.st_ino == info.st_ino && (named.st_dev == info.st_dev || !S_ISDIR(info.st_mode)))
        return capture_text(capture, path, &ret->path);
    /* Its name was deleted or lies hidden; it may have another. */
    size_t number;
    TRY(locate_want_name(capture, holder->copy, &number));
    ret->object = (int32_t)number;
    return NULL;
}

/* It has no other name either. An overlay counts the names that a file has in its layer, also those that are covered. */
static struct bunshin_error *capture_nameless(struct capture *capture, int32_t index) {
    struct image_description record = *CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, index);
    const struct described *described = described_find(capture, index);
    const struct frozen_process *process = freeze_find(capture->frozen, record.holder);
    struct stat info;
    char path[4300], opened[48];
    snprintf(opened, sizeof opened, "self/fd/%d", described->copy);
    ssize_t length = readlinkat(capture->init->proc, opened, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = '\0';
    if (fstat(described->copy, &info) != 0)
        return bunshin_error_os("cannot look at %.200s", path);
    char name[4300];
    if (!is_deleted(path, &info, name, sizeof name))
        return bunshin_error_unsupported(record.holder, process ? process->stat.comm : "bunshin-init", record.holder_fd,
                                         "a file that cannot be found by its name, %.100s", path);
    TRY(ghost_capture(capture, described->copy, name, &info, &record));
    *CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, index) = record;
    return NULL;
}

struct bunshin_error *file_connect(struct capture *capture) {
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description); i++) {
        struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i);
        if (record->kind != KIND_FILE || record->object == IMAGE_NONE)
            continue;
        const struct located *located = locate_at(capture, (size_t)record->object);
        record->object = IMAGE_NONE;
        if (!located->found) {
            TRY(capture_nameless(capture, i));
            continue;
        }
        record->path = located->path;
    }
    return NULL;
}

/* The working directory or the executable of a process, which has no name any more. */
static struct bunshin_error *capture_gone(struct capture *capture, const struct frozen_process *frozen, const char *path, int flags,
                                          const struct stat *info, struct image_description *ret) {
    char name[48];
    int copy = -1;
    if (!(flags & O_PATH)) {
        snprintf(name, sizeof name, "%d/exe", frozen->alive);
        if ((copy = openat(capture->init->proc, name, O_RDONLY | O_CLOEXEC)) < 0)
            return bunshin_error_os("cannot open the executable of pid %d", frozen->pid);
    }
    struct bunshin_error *error = ghost_capture(capture, copy, path, info, ret);
    if (copy >= 0)
        close(copy);
    return error;
}

struct bunshin_error *capture_path(struct capture *capture, struct frozen_process *frozen, const char *link, int flags, int32_t *ret) {
    bool shared = flags & MAPPED_SHARED, gone = false;
    struct stat info = {0};
    char path[4300];
    flags &= ~MAPPED_SHARED;
    size_t length = strlen(link);
    if (length > strlen(DELETED) && !strcmp(link + length - strlen(DELETED), DELETED)) {
        snprintf(path, sizeof path, "%d/%s", frozen->alive, flags & O_PATH ? "cwd" : "exe");
        if (fstatat(capture->init->proc, path, &info, 0) != 0)
            return bunshin_error_os("cannot look at %s", path);
        gone = is_deleted(link, &info, path, sizeof path);
    }
    uint64_t key = 0x9e3779b97f4a7c15ull ^ (uint64_t)flags;
    for (const char *at = link; *at; at++)
        key = (key ^ (uint8_t)*at) * 0x100000001b3ull;
    if (gone) /* one path may have been that of many */
        key = (key ^ info.st_ino) * 0x100000001b3ull;
    for (size_t i = 0; i < capture->described_count; i++)
        if (capture->described[i].fd < 0 && capture->described[i].key == key) {
            *ret = capture->described[i].description;
            return NULL;
        }
    struct image_description record = {
        .kind = KIND_FILE, .flags = flags, .object = IMAGE_NONE, .same_as = IMAGE_NONE, .holder = frozen->pid, .holder_fd = -1};
    struct described described = {.key = key, .pid = frozen->pid, .fd = -1, .copy = -1};
    if (procfile_is(link)) { /* a working directory: entered when the process it tells of is there */
        if (gone || !freeze_find(capture->frozen, atoi(link + 6)))
            return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "a working directory of a dead process, %.100s", link);
        record.kind = KIND_PROC;
        TRY(capture_text(capture, link, &record.path));
    } else if (gone) {
        TRY(capture_gone(capture, frozen, path, flags, &info, &record));
        described.inode = info.st_ino;
        described.device = info.st_dev;
    } else {
        /* A mapping that only reads shows what writers write, if the file is in the upper layer when it is mapped. */
        record.copy_up = shared && settings_wrote(&capture->init->settings, link);
        if (record.copy_up)
            record.flags = O_RDWR;
        TRY(capture_text(capture, link, &record.path));
    }
    TRY(capture_add(capture, TABLE_DESCRIPTION, &record, sizeof record, &described.description));
    *ret = described.description;
    return described_add(capture, &described);
}

/* ---- rebuild ---- */

struct bunshin_error *file_rebuild(struct rebuild *rebuild, int32_t index) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    const char *path = (const char *)IMAGE_HEAP(rebuild->image, record->path);
    int flags = record->flags & ~ONCE;
    int fd = open(path, flags | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 && (flags & O_ACCMODE) == O_RDWR && record->holder_fd < 0 && !record->copy_up)
        fd = open(path, (flags & ~O_ACCMODE) | O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return bunshin_error_os("cannot open %.300s", path);
    return rebuild_place(rebuild, index, fd);
}

bool file_is_later(const struct rebuild *rebuild, int32_t index) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    struct stat info;
    return rebuild->one_table && record->kind == KIND_FILE && record->flags & O_PATH &&
           lstat((const char *)IMAGE_HEAP(rebuild->image, record->path), &info) == 0 && S_ISSOCK(info.st_mode);
}

struct bunshin_error *file_rebuild_later(struct rebuild *rebuild) {
    for (int32_t i = 0; i < (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count; i++)
        if (!rebuild->made[i] && IMAGE_DESCRIPTION(rebuild->image, i)->kind == KIND_FILE)
            TRY(file_rebuild(rebuild, i));
    return NULL;
}
