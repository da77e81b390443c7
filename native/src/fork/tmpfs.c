/*
 * What lies on file systems in memory that every workspace has of its own: below /dev/shm, what was added to /dev, and those
 * that were mounted inside (mounts.c). No layer holds it, so a fork makes it again: directories, links, FIFOs, sockets, files under all of their names, with owners,
 * modes, attributes and times. The content of files is shared.c's.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/rebuild.h"

#define ATTRIBUTES_MOST 65536
#define PATH_MOST 4300

static const char *const roots[] = {"/dev/shm", "/dev"};

static unsigned device_of(const struct stat *info) { return major(info->st_dev) << 20 | minor(info->st_dev); }

/* ---- capture ---- */

struct bunshin_error *tmpfs_add(struct capture *capture, const char *root, unsigned device) {
    struct tmpfs *grown = realloc(capture->tmpfs, sizeof *grown * (size_t)(capture->tmpfs_count + 1));
    if (!grown)
        return bunshin_error_no_memory();
    capture->tmpfs = grown;
    if (!(grown[capture->tmpfs_count].root = strdup(root)))
        return bunshin_error_no_memory();
    grown[capture->tmpfs_count++].device = device;
    return NULL;
}

struct bunshin_error *tmpfs_open(struct capture *capture) {
    struct stat info;
    for (int i = 0; i < 2; i++)
        TRY(tmpfs_add(capture, roots[i], stat(roots[i], &info) == 0 ? device_of(&info) : 0));
    return NULL;
}

void tmpfs_forget(struct capture *capture) {
    for (int i = 0; i < capture->tmpfs_count; i++)
        free(capture->tmpfs[i].root);
    free(capture->tmpfs);
}

bool tmpfs_has(const struct capture *capture, unsigned device) {
    for (int i = 0; device && i < capture->tmpfs_count; i++)
        if (capture->tmpfs[i].device == device)
            return true;
    return false;
}

static struct bunshin_error *capture_attributes(struct capture *capture, const char *path, struct span *ret) {
    static char names[ATTRIBUTES_MOST], value[ATTRIBUTES_MOST];
    struct buffer all = {0};
    struct bunshin_error *error = NULL;
    ssize_t length = llistxattr(path, names, sizeof names);
    for (char *name = names; !error && length > 0 && name < names + length; name += strlen(name) + 1) {
        ssize_t size = lgetxattr(path, name, value, sizeof value);
        uint32_t stored = (uint32_t)size;
        if (size < 0)
            continue;
        error = buffer_append(&all, &stored, sizeof stored);
        if (!error)
            error = buffer_append(&all, name, strlen(name) + 1);
        if (!error)
            error = buffer_append(&all, value, (size_t)size);
    }
    if (!error && all.size)
        error = capture_heap(capture, all.data, all.size, ret);
    buffer_deinit(&all);
    return error;
}

static struct bunshin_error *capture_entry(struct capture *capture, const char *path, const struct stat *info) {
    struct image_entry entry = {.mode = info->st_mode,
                                .uid = info->st_uid,
                                .gid = info->st_gid,
                                .object = IMAGE_NONE,
                                .accessed = info->st_atim,
                                .modified = info->st_mtim};
    TRY(capture_text(capture, path, &entry.path));
    if (S_ISLNK(info->st_mode)) {
        char target[PATH_MOST] = "";
        if (readlink(path, target, sizeof target - 1) < 0)
            return bunshin_error_os("cannot read the link %.200s", path);
        TRY(capture_text(capture, target, &entry.target));
    } else
        TRY(capture_attributes(capture, path, &entry.attributes));
    int32_t self = CAPTURE_COUNT(capture, TABLE_ENTRY, struct image_entry);
    if (S_ISREG(info->st_mode)) {
        int copy = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (copy < 0)
            return bunshin_error_os("cannot read %.200s", path);
        struct bunshin_error *error = shared_capture_named(capture, copy, path, self, &entry.object);
        close(copy);
        TRY(error);
    } else if (S_ISCHR(info->st_mode) || S_ISBLK(info->st_mode))
        return bunshin_error_new(BUNSHIN_ERROR_UNSUPPORTED, 0, "cannot fork: %.200s is a device file, and lies on a file system in memory", path);
    return capture_add(capture, TABLE_ENTRY, &entry, sizeof entry, NULL);
}

static struct bunshin_error *capture_directory(struct capture *capture, const char *directory, unsigned device, bool top) {
    DIR *stream = opendir(directory);
    struct bunshin_error *error = NULL;
    if (!stream)
        return bunshin_error_os("cannot list %.200s", directory);
    for (struct dirent *entry; !error && (entry = readdir(stream));) {
        char path[PATH_MOST];
        struct stat info;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) >= (int)sizeof path)
            error = bunshin_error_new(BUNSHIN_ERROR_UNSUPPORTED, 0, "cannot fork: a path below %.200s is too long", directory);
        if (error || lstat(path, &info) != 0 || device_of(&info) != device)
            continue;
        /* What pid 1 makes by itself in /dev. */
        if (top && device == capture->tmpfs[1].device && (S_ISLNK(info.st_mode) || !strcmp(entry->d_name, "pts") || !strcmp(entry->d_name, "shm")))
            if (settings_makes(path))
                continue;
        error = capture_entry(capture, path, &info);
        if (!error && S_ISDIR(info.st_mode))
            error = capture_directory(capture, path, device, false);
    }
    closedir(stream);
    return error;
}

struct bunshin_error *tmpfs_capture(struct capture *capture) {
    for (int i = 0; i < capture->tmpfs_count; i++) {
        struct stat info;
        bool untouched = i == 1 && stat(roots[i], &info) == 0 && info.st_mtim.tv_sec == capture->init->settings.dev_made.tv_sec &&
                         info.st_mtim.tv_nsec == capture->init->settings.dev_made.tv_nsec;
        if (capture->tmpfs[i].device && !untouched)
            TRY(capture_directory(capture, capture->tmpfs[i].root, capture->tmpfs[i].device, true));
    }
    return NULL;
}

/* ---- rebuild ---- */

static const char *text_of(struct rebuild *rebuild, struct span span) { return (const char *)IMAGE_HEAP(rebuild->image, span); }

/* Everything but files, which are made with their content, and sockets that will be bound again. */
struct bunshin_error *tmpfs_rebuild(struct rebuild *rebuild) {
    for (size_t i = 0; i < rebuild->image->table[TABLE_ENTRY].count; i++) {
        const struct image_entry *entry = IMAGE_ENTRY(rebuild->image, i);
        const char *path = text_of(rebuild, entry->path);
        int failed = 0;
        if (S_ISDIR(entry->mode))
            failed = mkdir(path, 0700) && errno != EEXIST; /* something may be mounted below it already */
        else if (S_ISLNK(entry->mode))
            failed = symlink(text_of(rebuild, entry->target), path);
        else if (!S_ISREG(entry->mode))
            failed = mknod(path, (entry->mode & S_IFMT) | 0600, 0);
        if (failed)
            return bunshin_error_os("cannot make %.200s again", path);
    }
    return NULL;
}

static void set_attributes(struct rebuild *rebuild, const struct image_entry *entry, const char *path) {
    const char *at = text_of(rebuild, entry->attributes), *end = at + entry->attributes.size;
    while (at < end) {
        uint32_t size;
        memcpy(&size, at, sizeof size);
        const char *name = at + sizeof size, *value = name + strlen(name) + 1;
        (void)lsetxattr(path, name, value, size, 0); /* those that need a privilege are the system's own */
        at = value + size;
    }
}

/* Last of all: what lies in a directory is there, and its times stay. */
struct bunshin_error *tmpfs_finish(struct rebuild *rebuild) {
    for (size_t i = rebuild->image->table[TABLE_ENTRY].count; i-- > 0;) {
        const struct image_entry *entry = IMAGE_ENTRY(rebuild->image, i);
        const char *path = text_of(rebuild, entry->path);
        if (lchown(path, entry->uid, entry->gid) != 0 || (!S_ISLNK(entry->mode) && chmod(path, entry->mode & 07777) != 0))
            return bunshin_error_os("cannot set the owner and mode of %.200s", path);
        if (!S_ISLNK(entry->mode))
            set_attributes(rebuild, entry, path);
        struct timespec times[2] = {entry->accessed, entry->modified};
        (void)utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
    }
    return NULL;
}
