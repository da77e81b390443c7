/*
 * Mounts that were made inside the workspace, where tools may do that (CAP_SYS_ADMIN in its user namespace). What the
 * workspace began with is remembered; what was added is made again before any file is opened: tmpfs, with its content
 * (tmpfs.c), bind mounts, proc and sysfs. Other kinds, and changes to the mounts it began with, are refused by name.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/fork.h"
#include "fork/mountinfo.h"
#include "fork/rebuild.h"

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#define PATH_MOST 4300

static bool can_mount(const struct init *init) { return init->settings.capabilities >> CAP_SYS_ADMIN & 1; }

static const char *const refusal = "cannot fork: the mount on %.200s: %s";

static struct bunshin_error *refuse(const struct mount_entry *mount, const char *reason) {
    return bunshin_error_new(BUNSHIN_ERROR_UNSUPPORTED, 0, refusal, mount->point, reason);
}

struct bunshin_error *mounts_remember(struct init *init) {
    return can_mount(init) ? mountinfo_read(init->proc, "self", &init->mounts) : NULL;
}

/* ---- capture ---- */

static bool same(const struct mount_entry *one, const struct mount_entry *other) {
    return one->id == other->id && one->device == other->device && !strcmp(one->point, other->point) && !strcmp(one->root, other->root);
}

/* Nothing that the workspace began with may be gone or changed: a fork begins with all of it. */
static struct bunshin_error *check_own(const struct mountinfo *own, const struct mountinfo *now) {
    for (size_t i = 0; i < own->count; i++) {
        const struct mount_entry *found = mountinfo_find(now, own->list[i].id);
        if (!found || !same(found, &own->list[i]))
            return refuse(&own->list[i], "one of the workspace's own that was taken away or moved");
        if (strcmp(found->flags, own->list[i].flags) != 0 || strcmp(found->fields, own->list[i].fields) != 0)
            return refuse(found, "one of the workspace's own that was changed");
    }
    return NULL;
}

/* Whether `path` lies below `root`; what is left of it then. */
static const char *below(const char *path, const char *root) {
    size_t length = strcmp(root, "/") ? strlen(root) : 0;
    return !strncmp(path, root, length) && (path[length] == '/' || !path[length]) ? path + length : NULL;
}

/* Where the same thing can be seen that a bind mount shows: through a mount made earlier. */
static struct bunshin_error *find_source(const struct mountinfo *mounts, size_t self, char *ret, size_t size) {
    const struct mount_entry *mount = &mounts->list[self];
    struct stat shown, seen;
    if (strstr(mount->root, "//deleted"))
        return refuse(mount, "it shows something that was deleted");
    for (size_t i = 0; i < self; i++) {
        const struct mount_entry *earlier = &mounts->list[i];
        const char *rest = earlier->device == mount->device ? below(mount->root, earlier->root) : NULL;
        if (!rest)
            continue;
        snprintf(ret, size, "%s%s", strcmp(earlier->point, "/") ? earlier->point : *rest ? "" : "/", rest);
        if (stat(mount->point, &shown) == 0 && stat(ret, &seen) == 0 && shown.st_dev == seen.st_dev && shown.st_ino == seen.st_ino)
            return NULL;
    }
    return refuse(mount, "it shows what cannot be seen at any other place");
}

/* A directory without entries, or a file without content. Closes `fd`. */
static bool is_empty(int fd) {
    struct stat info;
    if (fd < 0)
        return false;
    DIR *stream = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) ? fdopendir(fd) : NULL;
    int names = 0;
    while (stream && readdir(stream))
        names++;
    bool empty = stream ? names <= 2 : S_ISREG(info.st_mode) && info.st_size == 0;
    if (stream)
        closedir(stream);
    else
        close(fd);
    return empty;
}

/* What a mount hides in a file system in memory would have to be copied without being seen. */
static struct bunshin_error *check_hidden(const struct capture *capture, const struct mountinfo *mounts, const struct mount_entry *mount) {
    const struct mount_entry *parent = mountinfo_find(mounts, mount->parent);
    if (!parent || !tmpfs_has(capture, parent->device))
        return NULL;
    const char *rest = below(mount->point, parent->point);
    char path[PATH_MOST];
    bool empty = false;
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, parent->point, OPEN_TREE_CLONE | O_CLOEXEC);
    if (tree >= 0 && rest && *rest) {
        snprintf(path, sizeof path, ".%s", rest);
        empty = is_empty(openat(tree, path, O_RDONLY | O_CLOEXEC));
    }
    if (tree >= 0)
        close(tree);
    return empty ? NULL : refuse(mount, "it hides something in a file system in memory");
}

static bool has_option(const char *options, const char *name) {
    size_t length = strlen(name);
    for (const char *at = options; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && (!at[length] || at[length] == ','))
            return true;
    return false;
}

static unsigned long flags_of(const char *options) {
    static const struct {
        const char *name;
        unsigned long flag;
    } known[] = {{"ro", MS_RDONLY},           {"nosuid", MS_NOSUID},         {"nodev", MS_NODEV},       {"noexec", MS_NOEXEC},
                 {"noatime", MS_NOATIME},     {"nodiratime", MS_NODIRATIME}, {"relatime", MS_RELATIME}};
    unsigned long flags = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        flags |= has_option(options, known[i].name) ? known[i].flag : 0;
    return flags & (MS_NOATIME | MS_RELATIME) ? flags : flags | MS_STRICTATIME;
}

/* The options that are the file system's own: without the superblock's "rw" or "ro", and without owners, which are shown as
 * the ids they have outside. */
static void own_options(const char *options, char *ret, size_t size) {
    size_t used = 0;
    *ret = '\0';
    for (const char *at = strchr(options, ','); at; at = strchr(at + 1, ',')) {
        size_t length = strcspn(at + 1, ",");
        if (!strncmp(at + 1, "uid=", 4) || !strncmp(at + 1, "gid=", 4) || used + length + 2 > size)
            continue;
        used += (size_t)snprintf(ret + used, size - used, "%s%.*s", used ? "," : "", (int)length, at + 1);
    }
}

static struct bunshin_error *capture_mount(struct capture *capture, const struct mountinfo *mounts, size_t self) {
    const struct mount_entry *mount = &mounts->list[self];
    struct image_mount record = {.flags = flags_of(mount->flags), .file_system_flags = has_option(mount->options, "ro") ? MS_RDONLY : 0};
    struct stat info;
    char source[PATH_MOST] = "", options[1024];
    bool bind = strcmp(mount->root, "/") != 0;
    for (size_t i = 0; i < self; i++)
        bind |= mounts->list[i].device == mount->device;
    for (size_t i = self + 1; i < mounts->count; i++)
        if (!strcmp(mounts->list[i].point, mount->point))
            return refuse(mount, "another was made on top of it");
    if (*mount->fields && strcmp(mount->fields, "-"))
        return refuse(mount, "it is shared with others");
    if (stat(mount->point, &info) != 0)
        return refuse(mount, "it cannot be reached");
    record.directory = S_ISDIR(info.st_mode);
    record.mode = info.st_mode & 07777;
    record.uid = info.st_uid;
    record.gid = info.st_gid;
    own_options(mount->options, options, sizeof options);
    TRY(check_hidden(capture, mounts, mount));
    if (bind) {
        TRY(find_source(mounts, self, source, sizeof source));
        record.later = tmpfs_has(capture, mount->device);
    } else if (!strcmp(mount->type, "tmpfs"))
        TRY(tmpfs_add(capture, mount->point, mount->device));
    else if (strcmp(mount->type, "proc") != 0 && strcmp(mount->type, "sysfs") != 0)
        return bunshin_error_new(BUNSHIN_ERROR_UNSUPPORTED, 0, refusal, mount->point, mount->type);
    TRY(capture_text(capture, mount->point, &record.point));
    TRY(capture_text(capture, bind ? source : mount->source, &record.source));
    TRY(capture_text(capture, bind ? "" : mount->type, &record.type));
    TRY(capture_text(capture, options, &record.options));
    return capture_add(capture, TABLE_MOUNT, &record, sizeof record, NULL);
}

struct bunshin_error *mounts_capture(struct capture *capture) {
    if (!can_mount(capture->init))
        return NULL;
    const struct mountinfo *own = &capture->init->mounts;
    struct mountinfo now;
    TRY(mountinfo_read(capture->init->proc, "self", &now));
    struct bunshin_error *error = check_own(own, &now);
    for (size_t i = 0; !error && i < now.count; i++) {
        const struct mount_entry *known = mountinfo_find(own, now.list[i].id);
        if (!known || !same(known, &now.list[i]))
            error = capture_mount(capture, &now, i);
    }
    mountinfo_deinit(&now);
    return error;
}

/* ---- rebuild ---- */

static struct bunshin_error *make(struct rebuild *rebuild, const struct image_mount *record) {
    const char *point = (const char *)IMAGE_HEAP(rebuild->image, record->point), *type = (const char *)IMAGE_HEAP(rebuild->image, record->type);
    const char *source = (const char *)IMAGE_HEAP(rebuild->image, record->source);
    struct stat info;
    if (stat(point, &info) != 0) { /* what it lies on is made after it, where that is a file system in memory */
        char path[PATH_MOST];
        snprintf(path, sizeof path, "%s", point);
        for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
            *slash = '\0';
            (void)mkdir(path, 0755);
            *slash = '/';
        }
        int file = record->directory ? mkdir(path, 0755) : open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (file < 0)
            return bunshin_error_os("cannot make %.200s to mount on", point);
        if (!record->directory)
            close(file);
    }
    int done = *type ? mount(source, point, type, record->flags & ~(unsigned long)MS_RDONLY, (const char *)IMAGE_HEAP(rebuild->image, record->options))
                     : mount(source, point, NULL, MS_BIND, NULL);
    if (!done && !*type)
        done = mount(NULL, point, NULL, MS_BIND | MS_REMOUNT | record->flags, NULL);
    return done ? bunshin_error_os("cannot mount %.200s on %.200s again", source, point) : NULL;
}

struct bunshin_error *mounts_rebuild(struct rebuild *rebuild, bool later) {
    for (size_t i = 0; i < rebuild->image->table[TABLE_MOUNT].count; i++) {
        const struct image_mount *record = IMAGE_MOUNT(rebuild->image, i);
        if (record->later == later)
            TRY(make(rebuild, record));
    }
    return NULL;
}

/* Once the content is there: whose its root is, and what was mounted for reading alone. */
struct bunshin_error *mounts_finish(struct rebuild *rebuild) {
    for (size_t i = 0; i < rebuild->image->table[TABLE_MOUNT].count; i++) {
        const struct image_mount *record = IMAGE_MOUNT(rebuild->image, i);
        const char *point = (const char *)IMAGE_HEAP(rebuild->image, record->point);
        if (!strcmp((const char *)IMAGE_HEAP(rebuild->image, record->type), "tmpfs") && (chown(point, record->uid, record->gid) || chmod(point, record->mode)))
            return bunshin_error_os("cannot set the owner and mode of %.200s", point);
        if (record->type.size > 1 && record->file_system_flags & MS_RDONLY && mount(NULL, point, NULL, MS_REMOUNT | record->flags | MS_RDONLY, NULL))
            return bunshin_error_os("cannot make %.200s read-only again", point);
        if (record->type.size > 1 && record->flags & MS_RDONLY && mount(NULL, point, NULL, MS_BIND | MS_REMOUNT | record->flags, NULL))
            return bunshin_error_os("cannot make %.200s read-only again", point);
    }
    return NULL;
}
