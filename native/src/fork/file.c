/* Files that have a name (regular files, directories, devices, /proc), and regular files that have none any more. */
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
#include "fork/rebuild.h"

#define ONCE (O_CREAT | O_EXCL | O_TRUNC | O_NOCTTY) /* flags of opening, not of the open file */

/* ---- capture ---- */

struct ghost { /* an unlinked file; runs follow */
    uint64_t size, mode;
    uint32_t uid, gid;
};

static struct bunshin_error *capture_ghost(struct capture *capture, const struct holder *holder, const struct stat *info,
                                           struct image_description *ret) {
    struct ghost ghost = {(uint64_t)info->st_size, info->st_mode & 07777, info->st_uid, info->st_gid};
    struct buffer data = {0};
    struct bunshin_error *error = buffer_append(&data, &ghost, sizeof ghost);
    uint8_t *part = malloc(1 << 18);
    char path[32]; /* the copy may be write-only: a second opening of it is not */
    snprintf(path, sizeof path, "/proc/self/fd/%d", holder->copy);
    int source = open(path, O_RDONLY | O_CLOEXEC);
    if (!error && (!part || source < 0))
        error = part ? bunshin_error_os("cannot read the unlinked file %.200s", holder->link) : bunshin_error_no_memory();
    off_t at = 0;
    while (!error && at < info->st_size) {
        off_t begin = lseek(source, at, SEEK_DATA);
        if (begin < 0)
            break;
        off_t end = lseek(source, begin, SEEK_HOLE);
        if (end < 0)
            end = info->st_size;
        struct image_run run = {
            .offset = (uint64_t)begin, .length = (uint64_t)(end - begin), .store_offset = store_reserve(capture, (uint64_t)(end - begin))};
        for (off_t done = begin; !error && done < end;) {
            ssize_t got = pread(source, part, (size_t)(end - done) < 1 << 18 ? (size_t)(end - done) : 1 << 18, done);
            if (got <= 0) {
                error = bunshin_error_os("cannot read the unlinked file %.200s", holder->link);
                break;
            }
            error = store_write(capture, part, (size_t)got, run.store_offset + (uint64_t)(done - begin));
            done += got;
        }
        if (!error)
            error = buffer_append(&data, &run, sizeof run);
        at = end;
    }
    if (source >= 0)
        close(source);
    free(part);
    if (!error)
        error = capture_heap(capture, data.data, data.size, &ret->data);
    buffer_deinit(&data);
    ret->kind = KIND_GHOST;
    ret->object = capture->store_count - 1;
    return error;
}

static bool is_deleted(const char *link) {
    size_t length = strlen(link);
    return length > 10 && !strcmp(link + length - 10, " (deleted)");
}

struct bunshin_error *file_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    struct stat info, named;
    const char *link = holder->link;
    if (*link != '/')
        return capture_refuse(holder, "an object of an unknown kind, %.100s", link);
    if (fstat(holder->copy, &info) != 0)
        return bunshin_error_os("cannot look at %.200s", link);
    if (!strncmp(link, "/proc/", 6) && link[6] >= '0' && link[6] <= '9')
        return capture_refuse(holder, "an open file of a process, %.100s", link);
    if (is_deleted(link)) {
        char path[4200];
        snprintf(path, sizeof path, "%.*s", (int)(strlen(link) - 10), link);
        TRY(capture_text(capture, path, &ret->path));
        if (S_ISREG(info.st_mode) && info.st_nlink > 0 && !(ret->flags & O_TMPFILE & ~O_DIRECTORY))
            return capture_refuse(holder, "a file whose name was deleted but which has another, %.100s", path);
        if (S_ISREG(info.st_mode))
            return capture_ghost(capture, holder, &info, ret);
        return capture_refuse(holder, "a deleted %s, %.100s", S_ISDIR(info.st_mode) ? "directory" : "file", path);
    }
    if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) {
        static const char *const allowed[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
        bool known = false;
        for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
            known |= !strcmp(link, allowed[i]);
        if (!known)
            return capture_refuse(holder, "the device %.100s", link);
    }
    if (!(ret->flags & O_PATH) && (stat(link, &named) != 0 || named.st_ino != info.st_ino))
        return capture_refuse(holder, "a file that cannot be found by its name, %.100s", link);
    ret->kind = KIND_FILE;
    return capture_text(capture, link, &ret->path);
}

struct bunshin_error *capture_path(struct capture *capture, struct frozen_process *frozen, const char *link, int flags, int32_t *ret) {
    if (is_deleted(link)) {
        if (!(flags & O_PATH))
            return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "an executable that was deleted, %.200s", link);
        /* A working directory that is gone: the fork gets one that is gone too (tree.c). */
    }
    bool shared = flags & MAPPED_SHARED;
    flags &= ~MAPPED_SHARED;
    uint64_t key = 0x9e3779b97f4a7c15ull ^ (uint64_t)flags;
    for (const char *at = link; *at; at++)
        key = (key ^ (uint8_t)*at) * 0x100000001b3ull;
    for (size_t i = 0; i < capture->described_count; i++)
        if (capture->described[i].fd < 0 && capture->described[i].key == key) {
            *ret = capture->described[i].description;
            return NULL;
        }
    struct image_description record = {
        .kind = KIND_FILE, .flags = flags, .object = IMAGE_NONE, .holder = frozen->pid, .holder_fd = -1};
    if (shared) {
        /* A mapping that only reads shows what writers write, if the file is in the upper layer when it is mapped. */
        record.copy_up = settings_wrote(&capture->init->settings, link);
        if (record.copy_up)
            record.flags = O_RDWR;
    }
    TRY(capture_text(capture, link, &record.path));
    struct described described = {.key = key, .pid = frozen->pid, .fd = -1, .copy = -1};
    TRY(capture_add(capture, TABLE_DESCRIPTION, &record, sizeof record, &described.description));
    *ret = described.description;
    return described_add(capture, &described);
}

/* ---- rebuild ---- */

static struct bunshin_error *rebuild_ghost(struct rebuild *rebuild, int32_t index) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    const uint8_t *data = IMAGE_HEAP(rebuild->image, record->data);
    const struct ghost *ghost = (const void *)data;
    const struct image_run *run = (const void *)(data + sizeof *ghost);
    size_t runs = (record->data.size - sizeof *ghost) / sizeof *run;
    const char *path = (const char *)IMAGE_HEAP(rebuild->image, record->path);
    char name[4300], again_name[32];
    bool nameless = record->flags & O_TMPFILE & ~O_DIRECTORY;
    snprintf(name, sizeof name, "%s", path);
    int fd;
    if (nameless) { /* never had a name, and may be given one */
        char *slash = strrchr(name, '/');
        slash[slash == name] = '\0';
        fd = open(name, (record->flags & ~(ONCE | O_NOFOLLOW)) | O_TMPFILE | O_CLOEXEC, 0600);
    } else
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    for (int tries = 0; fd < 0 && !nameless && tries < 100; tries++) { /* its name is taken by another file now */
        snprintf(name, sizeof name, "/tmp/.bunshin-%d-%d", index, tries);
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    if (fd < 0)
        return bunshin_error_os("cannot make the unlinked file %.200s again", path);
    struct bunshin_error *error = NULL;
    if (ftruncate(fd, (off_t)ghost->size) != 0)
        error = bunshin_error_os("cannot size the unlinked file %.200s", path);
    int store = rebuild->store_base + record->object;
    for (size_t i = 0; !error && i < runs; i++) {
        off_t from = (off_t)run[i].store_offset, to = (off_t)run[i].offset;
        for (uint64_t left = run[i].length; left;) {
            char part[1 << 16];
            ssize_t got = pread(store, part, left < sizeof part ? left : sizeof part, from);
            if (got <= 0 || pwrite(fd, part, (size_t)got, to) != got) {
                error = bunshin_error_os("cannot fill the unlinked file %.200s", path);
                break;
            }
            from += got;
            to += got;
            left -= (uint64_t)got;
        }
    }
    if (!error && (fchown(fd, ghost->uid, ghost->gid) != 0 || fchmod(fd, (mode_t)ghost->mode) != 0))
        error = bunshin_error_os("cannot set the mode of the unlinked file %.200s", path);
    int again = -1;
    if (nameless) /* the descriptor itself: another opening of it could not be given a name any more */
        again = fd;
    else {
        snprintf(again_name, sizeof again_name, "/proc/self/fd/%d", fd);
        if (!error && (again = open(again_name, (record->flags & ~(ONCE | O_TMPFILE | O_NOFOLLOW)) | O_CLOEXEC)) < 0)
            error = bunshin_error_os("cannot open the unlinked file %.200s again", path);
        unlink(name);
        close(fd);
    }
    if (error && again >= 0)
        close(again);
    return error ? error : rebuild_place(rebuild, index, again);
}

struct bunshin_error *file_rebuild(struct rebuild *rebuild, int32_t index) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    if (record->kind == KIND_GHOST)
        return rebuild_ghost(rebuild, index);
    const char *path = (const char *)IMAGE_HEAP(rebuild->image, record->path);
    int flags = record->flags & ~ONCE;
    if (flags & O_PATH && is_deleted(path)) {
        /* a directory that is gone: made, entered by whoever was in it, and gone again at once */
        char name[64];
        snprintf(name, sizeof name, "/tmp/.bunshin-gone-%d", index);
        int fd = mkdir(name, 0700) ? -1 : open(name, flags | O_CLOEXEC);
        rmdir(name);
        if (fd < 0)
            return bunshin_error_os("cannot make a deleted directory again");
        return rebuild_place(rebuild, index, fd);
    }
    int fd = open(path, flags | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 && (flags & O_ACCMODE) == O_RDWR && record->holder_fd < 0 && !record->copy_up)
        fd = open(path, (flags & ~O_ACCMODE) | O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return bunshin_error_os("cannot open %.300s", path);
    return rebuild_place(rebuild, index, fd);
}
