/*
 * inotify instances: their watches, found by what they lie on. The kernel names a watched inode by number and handle, never by path: it is looked
 * for among what processes hold open, then in the mounts of its device, nearest first. A name is only taken where the kernel gives the
 * same handle for it. Watches are set when the rebuild has opened everything else, so that nobody is told of the rebuild.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/described.h"
#include "fork/rebuild.h"

#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID AT_REMOVEDIR
#endif
#define HANDLE_MOST 128
#define SEARCH_NS 6000000000ll /* beyond this a watch counts as not found */
#define GAP_MOST 1000000       /* numbers of watches that are gone; each has to be counted up to */

struct watch_state {
    int32_t number;
    uint32_t mask;
    int32_t description; /* what it lies on, where somebody has that open; else its path counts */
    int32_t pad;
    struct span path;
};

/* ---- capture: one instance ---- */

struct bunshin_error *inotify_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    int unread = 0;
    if (ioctl(holder->copy, FIONREAD, &unread) != 0)
        return bunshin_error_os("cannot look at an inotify instance");
    if (unread)
        return capture_refuse(holder, "an inotify instance with events not read yet (%d bytes)", unread);
    ret->kind = KIND_INOTIFY;
    capture->have_inotify = true;
    return capture_text(capture, holder->info, &ret->data); /* resolved when all descriptors are known */
}

/* ---- capture: what the watches lie on ---- */

struct object { /* something watched */
    uint64_t inode;
    uint32_t device; /* as the kernel writes it: major << 20 | minor */
    int32_t type;    /* of the handle; -1 for none */
    uint32_t size;
    uint8_t handle[HANDLE_MOST];
    int32_t description;
    struct span path;
    bool found;
};

struct search {
    struct capture *capture;
    struct buffer objects; /* struct object[] */
    size_t missing;
    int64_t deadline;
};

static struct object *object_at(struct search *search, size_t i) { return (struct object *)(void *)search->objects.data + i; }
static size_t object_count(const struct search *search) { return search->objects.size / sizeof(struct object); }

static struct bunshin_error *add_object(struct search *search, const struct object *object, size_t *ret) {
    for (size_t i = 0; i < object_count(search); i++) {
        const struct object *known = object_at(search, i);
        if (known->inode == object->inode && known->device == object->device && known->type == object->type &&
            known->size == object->size && !memcmp(known->handle, object->handle, object->size)) {
            *ret = i;
            return NULL;
        }
    }
    *ret = object_count(search);
    search->missing++;
    return buffer_append(&search->objects, object, sizeof *object);
}

/* A line of fdinfo: the watch, and what it lies on. */
static bool parse_watch(const char *line, struct watch_state *ret_watch, struct object *ret_object) {
    unsigned number, mask, device, size = 0, type = 0;
    unsigned long inode;
    int at = 0;
    *ret_object = (struct object){.type = -1, .description = IMAGE_NONE};
    if (sscanf(line, "inotify wd:%x ino:%lx sdev:%x mask:%x", &number, &inode, &device, &mask) != 4)
        return false;
    *ret_watch = (struct watch_state){.number = (int32_t)number, .mask = mask, .description = IMAGE_NONE};
    ret_object->inode = inode;
    ret_object->device = device;
    const char *handle = strstr(line, "fhandle-bytes:"), *end = strchr(line, '\n');
    if (!handle || (end && handle > end))
        return true;
    if (sscanf(handle, "fhandle-bytes:%x fhandle-type:%x f_handle:%n", &size, &type, &at) != 2 || !at || size > HANDLE_MOST)
        return false;
    ret_object->type = (int32_t)type;
    ret_object->size = size;
    for (unsigned i = 0; i < size; i++)
        if (sscanf(handle + at + 2 * i, "%2hhx", &ret_object->handle[i]) != 1)
            return false;
    return true;
}

/* What lies at a name: the object that is looked for, or NULL. */
static struct object *identify(struct search *search, int directory, const char *name, int flags) {
    struct {
        struct file_handle head;
        uint8_t bytes[HANDLE_MOST];
    } handle = {.head.handle_bytes = HANDLE_MOST};
    int mount_id;
    struct stat info = {0};
    bool have_handle = name_to_handle_at(directory, name, &handle.head, &mount_id, flags | AT_HANDLE_FID) == 0, looked = false;
    for (size_t i = 0; i < object_count(search); i++) {
        struct object *object = object_at(search, i);
        if (object->found)
            continue;
        if (have_handle && object->type >= 0) {
            if (handle.head.handle_type != object->type || handle.head.handle_bytes != object->size ||
                memcmp(handle.head.f_handle, object->handle, object->size))
                continue;
        }
        /* Handles tell apart what lies in one file system, not which one that is. */
        int following = flags & AT_EMPTY_PATH ? AT_EMPTY_PATH : flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;
        if (!looked && fstatat(directory, name, &info, following) != 0)
            return NULL;
        looked = true;
        uint32_t device = major(info.st_dev) << 20 | minor(info.st_dev);
        /* On an overlay of several file systems a file's st_dev is its layer's; a directory's is the overlay's. */
        if (device != object->device && (S_ISDIR(info.st_mode) || !have_handle || object->type < 0))
            continue;
        if (have_handle && object->type >= 0 ? true : info.st_ino == object->inode)
            return object;
    }
    return NULL;
}

static struct bunshin_error *found_at(struct search *search, struct object *object, const char *path) {
    object->found = true;
    search->missing--;
    return path ? capture_text(search->capture, path, &object->path) : NULL;
}

/* What processes hold open, or are in, and the directories above it: most watches lie there, and what has no name only there. */
static struct bunshin_error *search_descriptions(struct search *search) {
    struct capture *capture = search->capture;
    for (size_t i = 0; search->missing && i < capture->described_count; i++) {
        const struct described *described = &capture->described[i];
        struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, described->description);
        char path[4300] = "";
        if (record->path.size)
            snprintf(path, sizeof path, "%s", (const char *)capture->table[TABLE_HEAP].data + record->path.offset);
        struct object *object = NULL;
        if (described->copy >= 0)
            object = identify(search, described->copy, "", AT_EMPTY_PATH);
        else if (record->kind == KIND_FILE && record->flags & O_DIRECTORY && record->holder > 0) {
            char name[48];
            snprintf(name, sizeof name, "%d/cwd", record->holder);
            object = identify(search, capture->init->proc, name, AT_SYMLINK_FOLLOW);
        }
        if (object) {
            object->description = described->description;
            TRY(found_at(search, object, NULL));
        }
        for (char *slash = strrchr(path, '/'); search->missing && slash; slash = strrchr(path, '/')) {
            *slash = '\0';
            if ((object = identify(search, AT_FDCWD, *path ? path : "/", 0)))
                TRY(found_at(search, object, *path ? path : "/"));
        }
    }
    return NULL;
}

/* Directories that are still to be listed, the near ones (where the workspace has written) first. */
struct walk {
    struct buffer near, far; /* paths, each with its NUL */
    size_t near_at, far_at;
};

static struct bunshin_error *push(struct search *search, struct walk *walk, bool overlay, const char *path) {
    bool near = overlay && settings_wrote(&search->capture->init->settings, path);
    return buffer_append(near ? &walk->near : &walk->far, path, strlen(path) + 1);
}

static bool pop(struct walk *walk, char *ret, size_t size) {
    struct buffer *from = walk->near_at < walk->near.size ? &walk->near : &walk->far;
    size_t *at = from == &walk->near ? &walk->near_at : &walk->far_at;
    if (*at >= from->size)
        return false;
    const char *path = (const char *)from->data + *at;
    *at += strlen(path) + 1;
    snprintf(ret, size, "%s", path);
    return true;
}

/* Where the numbers of a listing are those of the inodes, most entries need not be looked at. */
static bool is_wanted(struct search *search, bool listed_numbers, uint64_t inode) {
    if (!listed_numbers)
        return true;
    for (size_t i = 0; i < object_count(search); i++)
        if (!object_at(search, i)->found && object_at(search, i)->inode == inode)
            return true;
    return false;
}

static struct bunshin_error *search_directory(struct search *search, struct walk *walk, const char *path, dev_t device, const char *type) {
    bool overlay = !strcmp(type, "overlay");
    bool listed_numbers = !strcmp(type, "ext4") || !strcmp(type, "ext3") || !strcmp(type, "xfs") || !strcmp(type, "tmpfs");
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd >= 0 && (fstat(fd, &info) != 0 || info.st_dev != device)) { /* another mount */
        close(fd);
        fd = -1;
    }
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    struct bunshin_error *error = NULL;
    for (struct dirent *entry; !error && search->missing && (entry = readdir(listing));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        char name[4700];
        snprintf(name, sizeof name, "%s/%s", strcmp(path, "/") ? path : "", entry->d_name);
        struct object *object;
        if (is_wanted(search, listed_numbers, entry->d_ino) && (object = identify(search, fd, entry->d_name, 0)))
            error = found_at(search, object, name);
        if (!error && entry->d_type == DT_DIR && strlen(name) < 4096)
            error = push(search, walk, overlay, name);
    }
    closedir(listing);
    return error;
}

static bool is_missing_on(struct search *search, uint32_t device) {
    for (size_t i = 0; i < object_count(search); i++)
        if (!object_at(search, i)->found && object_at(search, i)->device == device)
            return true;
    return false;
}

static struct bunshin_error *search_mount(struct search *search, const char *point, uint32_t device, const char *type) {
    struct stat info;
    char path[4300];
    if (stat(point, &info) != 0 || (major(info.st_dev) << 20 | minor(info.st_dev)) != device)
        return NULL; /* hidden below another mount */
    struct object *object = identify(search, AT_FDCWD, point, 0);
    if (object)
        TRY(found_at(search, object, point));
    struct walk walk = {0};
    struct bunshin_error *error = S_ISDIR(info.st_mode) ? push(search, &walk, false, point) : NULL;
    for (unsigned count = 0; !error && is_missing_on(search, device) && pop(&walk, path, sizeof path); count++) {
        if (count % 64 == 63 && init_now() > search->deadline)
            break;
        error = search_directory(search, &walk, path, info.st_dev, type);
    }
    buffer_deinit(&walk.near);
    buffer_deinit(&walk.far);
    return error;
}

/* "\040" and the like, as /proc writes what would end a field. */
static void unescape(char *text) {
    char *to = text;
    for (char *from = text; *from; from++) {
        int code;
        if (*from == '\\' && sscanf(from + 1, "%3o", (unsigned *)&code) == 1) {
            *to++ = (char)code;
            from += 3;
        } else
            *to++ = *from;
    }
    *to = '\0';
}

static struct bunshin_error *search_mounts(struct search *search) {
    struct buffer text = {0};
    struct bunshin_error *error = NULL;
    if (!procfs_read(search->capture->init->proc, "self/mountinfo", &text))
        return bunshin_error_os("cannot read the list of mounts");
    char *state;
    for (char *line = strtok_r((char *)text.data, "\n", &state); !error && search->missing && line; line = strtok_r(NULL, "\n", &state)) {
        unsigned high, low;
        char point[4300], type[64];
        const char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*d %*d %u:%u %*s %4299s", &high, &low, point) != 3 || sscanf(rest + 3, "%63s", type) != 1)
            continue;
        unescape(point);
        uint32_t device = high << 20 | low;
        if (is_missing_on(search, device))
            error = search_mount(search, point, device, type);
    }
    buffer_deinit(&text);
    return error;
}

/* ---- capture: all instances ---- */

static struct bunshin_error *refuse(struct capture *capture, const struct image_description *record, const char *reason) {
    const struct frozen_process *process = freeze_find(capture->frozen, record->holder);
    return bunshin_error_unsupported(record->holder, process ? process->stat.comm : "?", record->holder_fd, "%s", reason);
}

/* The watches of one instance. `ret_object` gets, for each, the number of what it lies on. */
static struct bunshin_error *read_watches(struct search *search, int32_t description, struct buffer *ret_watches, struct buffer *ret_object) {
    struct capture *capture = search->capture;
    const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, description);
    const char *text = (const char *)capture->table[TABLE_HEAP].data + record->data.offset;
    for (const char *line = strstr(text, "inotify wd:"); line; line = strstr(line + 1, "inotify wd:")) {
        struct watch_state watch;
        struct object object;
        size_t number;
        if (!parse_watch(line, &watch, &object))
            return refuse(capture, record, "an inotify watch that cannot be read");
        TRY(add_object(search, &object, &number));
        TRY(buffer_append(ret_watches, &watch, sizeof watch));
        TRY(buffer_append(ret_object, &number, sizeof number));
    }
    return NULL;
}

static int by_number(const void *one, const void *other) {
    return ((const struct watch_state *)one)->number - ((const struct watch_state *)other)->number;
}

static struct bunshin_error *store_watches(struct search *search, int32_t description, struct buffer *watches, const struct buffer *objects) {
    struct capture *capture = search->capture;
    struct watch_state *list = (void *)watches->data;
    const size_t *object = (const void *)objects->data;
    size_t count = watches->size / sizeof *list;
    for (size_t i = 0; i < count; i++) {
        const struct object *on = object_at(search, object[i]);
        struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, description);
        if (!on->found) {
            char reason[160];
            snprintf(reason, sizeof reason, "an inotify watch on something that has no name and nobody holds open (watch %d, inode %llu)",
                     list[i].number, (unsigned long long)on->inode);
            return refuse(capture, record, reason);
        }
        list[i].description = on->description;
        list[i].path = on->path;
    }
    qsort(list, count, sizeof *list, by_number); /* the kernel shows the newest first, and numbers count up */
    int32_t used = 0;
    for (size_t i = 0; i < count; used = list[i++].number)
        if (list[i].number - used > GAP_MOST)
            return refuse(capture, CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, description),
                          "an inotify instance that has had millions of watches");
    struct span data;
    TRY(capture_heap(capture, list, count * sizeof *list, &data));
    CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, description)->data = data;
    return NULL;
}

struct bunshin_error *inotify_connect(struct capture *capture) {
    if (!capture->have_inotify)
        return NULL;
    int32_t count = CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description);
    struct search search = {.capture = capture, .deadline = init_now() + SEARCH_NS};
    struct instance {
        struct buffer watches, objects;
    } *instances = calloc((size_t)count, sizeof *instances);
    if (!instances)
        return bunshin_error_no_memory();
    struct bunshin_error *error = NULL;
    for (int32_t i = 0; !error && i < count; i++)
        if (CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i)->kind == KIND_INOTIFY)
            error = read_watches(&search, i, &instances[i].watches, &instances[i].objects);
    if (!error)
        error = search_descriptions(&search);
    if (!error && search.missing)
        error = search_mounts(&search);
    for (int32_t i = 0; !error && i < count; i++)
        if (CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i)->kind == KIND_INOTIFY)
            error = store_watches(&search, i, &instances[i].watches, &instances[i].objects);
    for (int32_t i = 0; i < count; i++) {
        buffer_deinit(&instances[i].watches);
        buffer_deinit(&instances[i].objects);
    }
    free(instances);
    buffer_deinit(&search.objects);
    return error;
}

/* ---- rebuild ---- */

struct bunshin_error *inotify_rebuild(struct rebuild *rebuild, int32_t index) {
    int fd = inotify_init1(IN_CLOEXEC);
    if (fd < 0)
        return bunshin_error_os("cannot make an inotify instance again");
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
