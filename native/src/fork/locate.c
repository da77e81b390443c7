#define _GNU_SOURCE
#include "fork/locate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fork/described.h"
#include "fork/mountinfo.h"

#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID AT_REMOVEDIR
#endif
#define SEARCH_NS 6000000000ll /* beyond this, what was not found has no name */

/* ---- what is wanted ---- */

static struct located *wanted_at(struct capture *capture, size_t number) {
    return (struct located *)(void *)capture->located.data + number;
}

static size_t wanted_count(const struct capture *capture) { return capture->located.size / sizeof(struct located); }

const struct located *locate_at(const struct capture *capture, size_t number) {
    return (const struct located *)(const void *)capture->located.data + number;
}

enum index { BY_HANDLE, BY_INODE };

static uint64_t hash_handle(int32_t type, const uint8_t *bytes, uint32_t size) {
    uint64_t hash = 0xcbf29ce484222325ull ^ (uint64_t)(uint32_t)type;
    for (uint32_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    return hash ^ hash >> 29;
}

static uint64_t hash_inode(uint64_t inode) {
    inode *= 0x9e3779b97f4a7c15ull;
    return inode ^ inode >> 32;
}

static int32_t first_of(const struct capture *capture, enum index index, uint64_t hash) {
    return capture->located_chains ? capture->located_index[index][hash & (capture->located_chains - 1)] : IMAGE_NONE;
}

static void chain(struct capture *capture, int32_t number) {
    struct located *wanted = wanted_at(capture, (size_t)number);
    const uint64_t hash[2] = {hash_handle(wanted->type, wanted->handle, wanted->size), hash_inode(wanted->inode)};
    for (int index = BY_HANDLE; index <= BY_INODE; index++) {
        int32_t *head = &capture->located_index[index][hash[index] & (capture->located_chains - 1)];
        wanted->next[index] = *head;
        *head = number;
    }
}

static struct bunshin_error *grow_index(struct capture *capture) {
    size_t chains = capture->located_chains ? capture->located_chains * 4 : 64;
    for (int index = BY_HANDLE; index <= BY_INODE; index++) {
        int32_t *grown = realloc(capture->located_index[index], chains * sizeof *grown);
        if (!grown)
            return bunshin_error_no_memory();
        capture->located_index[index] = grown;
        memset(grown, 0xff, chains * sizeof *grown);
    }
    capture->located_chains = chains;
    for (size_t i = 0; i < wanted_count(capture); i++)
        chain(capture, (int32_t)i);
    return NULL;
}

struct bunshin_error *locate_want(struct capture *capture, const struct located *wanted, size_t *ret) {
    uint64_t hash = hash_handle(wanted->type, wanted->handle, wanted->size);
    for (int32_t i = first_of(capture, BY_HANDLE, hash); i != IMAGE_NONE; i = locate_at(capture, (size_t)i)->next[BY_HANDLE]) {
        const struct located *known = locate_at(capture, (size_t)i);
        if (known->inode == wanted->inode && known->device == wanted->device && known->mount == wanted->mount && known->type == wanted->type &&
            known->size == wanted->size && !memcmp(known->handle, wanted->handle, wanted->size) && known->by_name == wanted->by_name) {
            *ret = (size_t)i;
            return NULL;
        }
    }
    *ret = wanted_count(capture);
    if (*ret >= capture->located_chains)
        TRY(grow_index(capture));
    capture->not_located++;
    capture->without_handle += wanted->type < 0;
    TRY(buffer_append(&capture->located, wanted, sizeof *wanted));
    chain(capture, (int32_t)*ret);
    return NULL;
}

void locate_forget(struct capture *capture) {
    buffer_deinit(&capture->located);
    free(capture->located_index[BY_HANDLE]);
    free(capture->located_index[BY_INODE]);
}

struct handle {
    struct file_handle head;
    uint8_t bytes[LOCATE_HANDLE];
};

struct bunshin_error *locate_want_name(struct capture *capture, int fd, size_t *ret) {
    struct handle handle = {.head.handle_bytes = LOCATE_HANDLE};
    struct located wanted = {.type = -1, .by_name = true, .description = IMAGE_NONE};
    struct stat info;
    if (fstat(fd, &info) != 0)
        return bunshin_error_os("cannot look at an open file");
    wanted.inode = info.st_ino;
    wanted.device = major(info.st_dev) << 20 | minor(info.st_dev);
    if (name_to_handle_at(fd, "", &handle.head, &wanted.mount, AT_EMPTY_PATH | AT_HANDLE_FID) == 0) {
        wanted.type = handle.head.handle_type;
        wanted.size = handle.head.handle_bytes;
        memcpy(wanted.handle, handle.head.f_handle, wanted.size);
    }
    return locate_want(capture, &wanted, ret);
}

/*
 * On an overlay whose layers lie on several file systems, all that is shown of two things can be equal: number, device, handle.
 * The kernel itself knows: a watch on the same thing is the same watch. Where it is not, the new one is taken away again, and
 * what that tells is read; nothing else waits there.
 */
static bool is_watched(const struct located *wanted, int directory, const char *name, int flags) {
    char path[4352];
    if (!wanted->watch)
        return true;
    if (directory == AT_FDCWD)
        snprintf(path, sizeof path, "%s", name);
    else
        snprintf(path, sizeof path, "/proc/self/fd/%d%s%s", directory, *name ? "/" : "", name);
    bool follow = !*name || flags & AT_SYMLINK_FOLLOW;
    int number = inotify_add_watch(wanted->watcher, path, IN_MASK_ADD | wanted->events | (follow ? 0 : IN_DONT_FOLLOW));
    if (number < 0)
        return true; /* not to be asked: what is shown has to do */
    if (number == wanted->watch)
        return true;
    char told[64];
    if (inotify_rm_watch(wanted->watcher, number) == 0 && read(wanted->watcher, told, sizeof told) < 0)
        return false;
    return false;
}

/* What lies at a name: what is looked for, or NULL. */
static struct located *identify(struct capture *capture, int directory, const char *name, int flags) {
    struct handle handle = {.head.handle_bytes = LOCATE_HANDLE};
    int mount_id;
    struct stat info = {0};
    bool have_handle = name_to_handle_at(directory, name, &handle.head, &mount_id, flags | AT_HANDLE_FID) == 0, looked = false;
    for (int index = BY_HANDLE; index <= BY_INODE; index++) {
        bool by_handle = index == BY_HANDLE;
        if (by_handle ? !have_handle : have_handle && !capture->without_handle)
            continue;
        int following = flags & AT_EMPTY_PATH ? AT_EMPTY_PATH : flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;
        if (!by_handle && !looked && fstatat(directory, name, &info, following) != 0)
            return NULL;
        looked |= !by_handle;
        uint64_t hash = by_handle ? hash_handle(handle.head.handle_type, handle.head.f_handle, handle.head.handle_bytes) : hash_inode(info.st_ino);
        for (int32_t i = first_of(capture, (enum index)index, hash); i != IMAGE_NONE; i = locate_at(capture, (size_t)i)->next[index]) {
            struct located *wanted = wanted_at(capture, (size_t)i);
            if (wanted->found || (wanted->by_name && flags))
                continue;
            if (by_handle ? handle.head.handle_type != wanted->type || handle.head.handle_bytes != wanted->size ||
                                memcmp(handle.head.f_handle, wanted->handle, wanted->size)
                          : info.st_ino != wanted->inode || (have_handle && wanted->type >= 0))
                continue;
            /* Handles tell apart what lies in one file system, not which one that is. */
            if (!looked && fstatat(directory, name, &info, following) != 0)
                return NULL;
            looked = true;
            uint32_t device = major(info.st_dev) << 20 | minor(info.st_dev);
            /* On an overlay of several file systems a file's st_dev is its layer's; a directory's is the overlay's. */
            if ((device == wanted->device || (by_handle && !S_ISDIR(info.st_mode))) && is_watched(wanted, directory, name, flags))
                return wanted;
        }
    }
    return NULL;
}

static struct bunshin_error *found_at(struct capture *capture, struct located *wanted, const char *path) {
    wanted->found = true;
    capture->not_located--;
    return path ? capture_text(capture, path, &wanted->path) : NULL;
}

/* ---- what processes hold open, or are in, and the directories above it: most things lie there, and what has no name only there ---- */

static struct bunshin_error *search_descriptions(struct capture *capture) {
    for (size_t i = 0; capture->not_located && i < capture->described_count; i++) {
        const struct described *described = &capture->described[i];
        struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, described->description);
        char path[4300] = "";
        if (record->path.size)
            snprintf(path, sizeof path, "%s", (const char *)capture->table[TABLE_HEAP].data + record->path.offset);
        struct located *wanted = NULL;
        if (described->copy >= 0)
            wanted = identify(capture, described->copy, "", AT_EMPTY_PATH);
        else if (record->flags & O_DIRECTORY && record->holder > 0) {
            char name[48];
            const struct frozen_process *process = freeze_find(capture->frozen, record->holder);
            snprintf(name, sizeof name, "%d/cwd", process ? process->alive : record->holder);
            wanted = identify(capture, capture->init->proc, name, AT_SYMLINK_FOLLOW);
        }
        if (wanted) {
            wanted->description = described->description;
            TRY(found_at(capture, wanted, NULL));
        }
        for (char *slash = strrchr(path, '/'); capture->not_located && slash; slash = strrchr(path, '/')) {
            *slash = '\0';
            if ((wanted = identify(capture, AT_FDCWD, *path ? path : "/", 0)))
                TRY(found_at(capture, wanted, *path ? path : "/"));
        }
    }
    return NULL;
}

/* ---- names that this workspace's own rebuild used ---- */

static struct buffer hints; /* each with its NUL */

void locate_hint(const char *path) { bunshin_error_destroy(buffer_append(&hints, path, strlen(path) + 1)); }

static struct bunshin_error *search_hints(struct capture *capture) {
    for (size_t at = 0; capture->not_located && at < hints.size;) {
        const char *path = (const char *)hints.data + at;
        struct located *wanted = identify(capture, AT_FDCWD, path, 0);
        at += strlen(path) + 1;
        if (wanted)
            TRY(found_at(capture, wanted, path));
    }
    return NULL;
}

/* ---- mounts ---- */

struct walk { /* directories that are still to be listed, the near ones (where the workspace has written) first */
    struct buffer near, far; /* paths, each with its NUL */
    size_t near_at, far_at;
    const struct mount_entry *mount;
    dev_t device;
    bool numbers; /* those of its listings are those of inodes: most entries need not be looked at */
};

static struct bunshin_error *push(struct capture *capture, struct walk *walk, const char *path) {
    bool near = !strcmp(walk->mount->type, "overlay") && settings_wrote(&capture->init->settings, path);
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

static bool is_wanted(const struct capture *capture, const struct walk *walk, uint64_t inode) {
    if (!walk->numbers)
        return true;
    for (int32_t i = first_of(capture, BY_INODE, hash_inode(inode)); i != IMAGE_NONE; i = locate_at(capture, (size_t)i)->next[BY_INODE])
        if (!locate_at(capture, (size_t)i)->found && locate_at(capture, (size_t)i)->inode == inode)
            return true;
    return false;
}

static struct bunshin_error *list_directory(struct capture *capture, struct walk *walk, const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    DIR *listing = NULL;
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_dev == walk->device) /* else another mount */
        listing = fdopendir(fd);
    if (!listing) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    struct bunshin_error *error = NULL;
    for (struct dirent *entry; !error && capture->not_located && (entry = readdir(listing));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        char name[4700];
        snprintf(name, sizeof name, "%s/%s", strcmp(path, "/") ? path : "", entry->d_name);
        struct located *wanted;
        if (is_wanted(capture, walk, entry->d_ino) && (wanted = identify(capture, fd, entry->d_name, 0)))
            error = found_at(capture, wanted, name);
        if (!error && entry->d_type == DT_DIR && strlen(name) < 4096)
            error = push(capture, walk, name);
    }
    closedir(listing);
    return error;
}

static bool is_missing_on(const struct capture *capture, uint32_t device, bool not_by_name) {
    for (size_t i = 0; i < wanted_count(capture); i++) {
        const struct located *wanted = locate_at(capture, i);
        if (!wanted->found && wanted->device == device && !(wanted->by_name && not_by_name))
            return true;
    }
    return false;
}

/* Another name of a file is only where the workspace has written: a link to a file of the image is a file of its own. */
static bool is_worth_it(const struct capture *capture, const struct walk *walk) {
    return is_missing_on(capture, walk->mount->device, !strcmp(walk->mount->type, "overlay") && walk->near_at >= walk->near.size && walk->near_at);
}

static struct bunshin_error *search_mount(struct capture *capture, const struct mount_entry *mount, int64_t deadline) {
    struct stat info;
    char path[4300];
    if (stat(mount->point, &info) != 0 || (S_ISDIR(info.st_mode) && (major(info.st_dev) << 20 | minor(info.st_dev)) != mount->device))
        return NULL; /* hidden below another mount */
    struct located *wanted = identify(capture, AT_FDCWD, mount->point, 0);
    if (wanted)
        TRY(found_at(capture, wanted, mount->point));
    if (!S_ISDIR(info.st_mode))
        return NULL;
    struct walk walk = {.mount = mount, .device = info.st_dev};
    static const char *const plain[] = {"ext4", "ext3", "xfs", "tmpfs"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        walk.numbers |= !strcmp(mount->type, plain[i]);
    struct bunshin_error *error = push(capture, &walk, mount->point);
    for (unsigned count = 0; !error && is_worth_it(capture, &walk) && pop(&walk, path, sizeof path); count++) {
        if (count % 64 == 63 && init_now() > deadline)
            break;
        error = list_directory(capture, &walk, path);
    }
    buffer_deinit(&walk.near);
    buffer_deinit(&walk.far);
    return error;
}

struct bunshin_error *locate_all(struct capture *capture) {
    if (!capture->not_located)
        return NULL;
    int64_t deadline = init_now() + SEARCH_NS;
    TRY(search_descriptions(capture));
    TRY(search_hints(capture));
    if (!capture->not_located)
        return NULL;
    struct mountinfo mounts;
    struct bunshin_error *error = mountinfo_read(capture->init->proc, "self", &mounts);
    for (size_t i = 0; !error && i < wanted_count(capture); i++) {
        struct located *wanted = wanted_at(capture, i);
        const struct mount_entry *mount = wanted->mount ? mountinfo_find(&mounts, wanted->mount) : NULL;
        if (mount)
            wanted->device = mount->device;
    }
    for (size_t i = 0; !error && capture->not_located && i < mounts.count; i++)
        if (is_missing_on(capture, mounts.list[i].device, false))
            error = search_mount(capture, &mounts.list[i], deadline);
    mountinfo_deinit(&mounts);
    return error;
}
