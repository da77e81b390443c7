/*
 * inotify instances and their watches. The kernel names a watched inode by number and handle, never by path: locate.c finds it. Watches are
 * set when the rebuild has opened everything else, so that nobody is told of the rebuild.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/locate.h"
#include "fork/rebuild.h"

#define GAP_MOST 1000000 /* numbers of watches that are gone; each has to be counted up to */

struct watch_state {
    int32_t number;
    uint32_t mask;
    int32_t description; /* what it lies on, where somebody has that open; else its path counts */
    int32_t pad;
    union {
        struct span path;
        uint64_t located; /* while it is looked for */
    };
};

/* ---- capture ---- */

/* A line of fdinfo: the watch, and what it lies on. */
static bool parse_watch(const char *text, struct watch_state *ret_watch, struct located *ret_object) {
    char line[512]; /* a copy: sscanf measures all that follows, which may be thousands of lines */
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    unsigned number, mask, device, size = 0, type = 0;
    unsigned long inode;
    int at = 0;
    *ret_object = (struct located){.type = -1, .description = IMAGE_NONE};
    if (sscanf(line, "inotify wd:%x ino:%lx sdev:%x mask:%x", &number, &inode, &device, &mask) != 4)
        return false;
    *ret_watch = (struct watch_state){.number = (int32_t)number, .mask = mask, .description = IMAGE_NONE};
    ret_object->inode = inode;
    ret_object->device = device;
    const char *handle = strstr(line, "fhandle-bytes:");
    if (!handle)
        return true;
    if (sscanf(handle, "fhandle-bytes:%x fhandle-type:%x f_handle:%n", &size, &type, &at) != 2 || !at || size > LOCATE_HANDLE)
        return false;
    ret_object->type = (int32_t)type;
    ret_object->size = size;
    for (unsigned i = 0; i < size; i++)
        if (sscanf(handle + at + 2 * i, "%2hhx", &ret_object->handle[i]) != 1)
            return false;
    return true;
}

static int by_number(const void *one, const void *other) {
    return ((const struct watch_state *)one)->number - ((const struct watch_state *)other)->number;
}

struct bunshin_error *inotify_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    int unread = 0;
    if (ioctl(holder->copy, FIONREAD, &unread) != 0)
        return bunshin_error_os("cannot look at an inotify instance");
    if (unread) {
        capture_unread(capture, holder->copy);
        return capture_refuse(holder, "an inotify instance with events not read yet (%d bytes)", unread);
    }
    struct buffer watches = {0};
    struct bunshin_error *error = NULL;
    for (const char *line = strstr(holder->info, "inotify wd:"); !error && line; line = strstr(line + 1, "inotify wd:")) {
        struct watch_state watch;
        struct located object;
        size_t number;
        if (!parse_watch(line, &watch, &object)) {
            error = capture_refuse(holder, "an inotify watch that cannot be read");
            break;
        }
        object.watcher = holder->copy;
        object.watch = watch.number;
        object.events = watch.mask & (IN_ALL_EVENTS | IN_ONESHOT);
        error = locate_want(capture, &object, &number);
        watch.located = number;
        if (!error)
            error = buffer_append(&watches, &watch, sizeof watch);
    }
    size_t count = watches.size / sizeof(struct watch_state);
    if (count)
        qsort(watches.data, count, sizeof(struct watch_state), by_number); /* the kernel shows the newest first, and numbers count up */
    const struct watch_state *list = (const void *)watches.data;
    int32_t used = 0;
    for (size_t i = 0; !error && i < count; used = list[i++].number)
        if (list[i].number - used > GAP_MOST)
            error = capture_refuse(holder, "an inotify instance that has had millions of watches");
    if (!error)
        error = capture_heap(capture, watches.data, watches.size, &ret->data);
    buffer_deinit(&watches);
    ret->kind = KIND_INOTIFY;
    return error;
}

struct bunshin_error *inotify_connect(struct capture *capture) {
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description); i++) {
        const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i);
        if (record->kind != KIND_INOTIFY)
            continue;
        struct watch_state *watch = (void *)(capture->table[TABLE_HEAP].data + record->data.offset);
        for (size_t w = 0; w < record->data.size / sizeof *watch; w++) {
            const struct located *object = locate_at(capture, watch[w].located);
            const struct frozen_process *process = freeze_find(capture->frozen, record->holder);
            if (!object->found)
                return bunshin_error_unsupported(record->holder, process ? process->stat.comm : "?", record->holder_fd,
                                                 "an inotify watch on something that has no name and nobody holds open (watch %d, inode %llu)",
                                                 watch[w].number, (unsigned long long)object->inode);
            watch[w].description = object->description;
            watch[w].path = object->path;
        }
    }
    return NULL;
}

/* ---- rebuild ---- */

struct bunshin_error *inotify_rebuild(struct rebuild *rebuild, int32_t index) {
    int fd = inotify_init1(IN_CLOEXEC);
    if (fd < 0)
        return bunshin_error_os("cannot make an inotify instance again%s",
                                errno == EMFILE ? " (fs.inotify.max_user_instances bounds those of all forks together)" : "");
    return rebuild_place(rebuild, index, fd);
}

/* Numbers are never given twice: those that are gone are used up by a watch on something of our own, and what it tells is read. */
static int use_up(int fd, const char *own, int32_t count) {
    char told[4096];
    for (int32_t i = 0; i < count; i++) {
        int number = inotify_add_watch(fd, own, IN_MODIFY);
        if (number < 0 || inotify_rm_watch(fd, number) != 0)
            return -1;
        if ((i % 64 == 63 || i == count - 1) && read(fd, told, sizeof told) < 0)
            return -1;
    }
    return 0;
}

static struct bunshin_error *watch_one(struct rebuild *rebuild, int32_t index, const char *own) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    const struct watch_state *watch = (const void *)IMAGE_HEAP(rebuild->image, record->data);
    int fd = rebuild_fd(rebuild, index);
    int32_t used = 0;
    for (size_t i = 0; i < record->data.size / sizeof *watch; used = watch[i++].number) {
        char opened[48];
        const char *path = opened;
        uint32_t flags = 0;
        snprintf(opened, sizeof opened, "/proc/self/fd/%d", rebuild_fd(rebuild, watch[i].description));
        if (watch[i].description == IMAGE_NONE) {
            path = (const char *)IMAGE_HEAP(rebuild->image, watch[i].path);
            flags = IN_DONT_FOLLOW;
            locate_hint(path);
        }
        if (use_up(fd, own, watch[i].number - used - 1) != 0)
            return bunshin_error_os("cannot count the watches of an inotify instance");
        int number = inotify_add_watch(fd, path, watch[i].mask | flags);
        if (number < 0)
            return bunshin_error_os("cannot watch %.200s again", path);
        if (number != watch[i].number)
            return bunshin_error_new(BUNSHIN_ERROR_FORK, EEXIST, "cannot watch %.200s as %d, it is %d", path, watch[i].number, number);
    }
    return NULL;
}

struct bunshin_error *inotify_watch_all(struct rebuild *rebuild) {
    struct bunshin_error *error = NULL;
    int own = -1;
    char path[48];
    for (int32_t i = 0; !error && i < (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count; i++) {
        if (IMAGE_DESCRIPTION(rebuild->image, i)->kind != KIND_INOTIFY)
            continue;
        if (own < 0 && (own = memfd_create("bunshin-watched", MFD_CLOEXEC)) < 0)
            return bunshin_error_os("cannot make something to watch");
        snprintf(path, sizeof path, "/proc/self/fd/%d", own);
        error = watch_one(rebuild, i, path);
    }
    if (own >= 0)
        close(own);
    return error;
}
