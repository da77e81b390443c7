/*
 * What has no name any more but is held open, run, or is somebody's working directory: files, directories, links. A fork makes each once, where it was,
 * opens it as often as it was open, and takes the names away again; the directories around them keep their times.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/described.h"
#include "fork/rebuild.h"

#define ONCE (O_CREAT | O_EXCL | O_TRUNC | O_NOCTTY) /* flags of opening, not of the open file */
#define PART (1 << 18)

struct ghost { /* runs of a file, or the target of a link, follow */
    uint64_t size;
    uint32_t mode, uid, gid, pad;
    struct timespec accessed, modified;
};

static bool is_nameless(int flags) { return flags & O_TMPFILE & ~O_DIRECTORY; }

/* ---- capture ---- */

static struct bunshin_error *capture_content(struct capture *capture, int copy, const char *path, uint64_t size, struct buffer *ret) {
    uint8_t *part = malloc(PART);
    char name[32]; /* the copy may be write-only: a second opening of it is not */
    snprintf(name, sizeof name, "/proc/self/fd/%d", copy);
    int source = open(name, O_RDONLY | O_CLOEXEC | O_NOATIME); /* a seal that is given up has left nothing behind */
    if (source < 0 && errno == EPERM)
        source = open(name, O_RDONLY | O_CLOEXEC);
    struct bunshin_error *error = NULL;
    if (!part || source < 0)
        error = part ? bunshin_error_os("cannot read the unlinked file %.200s", path) : bunshin_error_no_memory();
    off_t at = 0;
    while (!error && (uint64_t)at < size) {
        off_t begin = lseek(source, at, SEEK_DATA);
        if (begin < 0)
            break;
        off_t end = lseek(source, begin, SEEK_HOLE);
        if (end < 0)
            end = (off_t)size;
        struct image_run run = {
            .offset = (uint64_t)begin, .length = (uint64_t)(end - begin), .store_offset = store_reserve(capture, (uint64_t)(end - begin))};
        for (off_t done = begin; !error && done < end;) {
            ssize_t got = pread(source, part, end - done < PART ? (size_t)(end - done) : PART, done);
            if (got <= 0) {
                error = bunshin_error_os("cannot read the unlinked file %.200s", path);
                break;
            }
            error = store_write(capture, part, (size_t)got, run.store_offset + (uint64_t)(done - begin));
            done += got;
        }
        if (!error)
            error = buffer_append(ret, &run, sizeof run);
        at = end;
    }
    if (source >= 0)
        close(source);
    free(part);
    return error;
}

static int32_t find_same(struct capture *capture, const struct stat *info) {
    for (size_t i = 0; i < capture->described_count; i++) {
        const struct described *described = &capture->described[i];
        const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, described->description);
        if (record->kind == KIND_GHOST && described->inode == info->st_ino && described->device == info->st_dev)
            return record->same_as == IMAGE_NONE ? described->description : record->same_as;
    }
    return IMAGE_NONE;
}

struct bunshin_error *ghost_capture(struct capture *capture, int copy, const char *path, const struct stat *info, struct image_description *ret) {
    struct ghost ghost = {.size = (uint64_t)info->st_size,
                          .mode = info->st_mode,
                          .uid = info->st_uid,
                          .gid = info->st_gid,
                          .accessed = info->st_atim,
                          .modified = info->st_mtim};
    struct buffer data = {0};
    ret->kind = KIND_GHOST;
    ret->object = capture->store_count - 1;
    TRY(capture_text(capture, path, &ret->path));
    ret->same_as = find_same(capture, info);
    if (ret->same_as != IMAGE_NONE)
        return NULL;
    struct bunshin_error *error = buffer_append(&data, &ghost, sizeof ghost);
    if (!error && S_ISREG(info->st_mode))
        error = capture_content(capture, copy, path, ghost.size, &data);
    if (!error && S_ISLNK(info->st_mode)) {
        char target[4097] = "";
        if (readlinkat(copy, "", target, sizeof target - 1) < 0)
            error = bunshin_error_os("cannot read the unlinked link %.200s", path);
        else
            error = buffer_append(&data, target, strlen(target) + 1);
    }
    if (!error)
        error = capture_heap(capture, data.data, data.size, &ret->data);
    buffer_deinit(&data);
    return error;
}

/* ---- rebuild: names that are there for a moment ---- */

struct name {
    char *path;
    bool directory;
    bool times; /* not of ours: a directory whose times are to stay */
    struct timespec time[2];
};

struct names {
    struct name *list;
    size_t count;
};

static struct bunshin_error *add_name(struct names *names, const char *path, bool directory) {
    struct name *grown = realloc(names->list, sizeof *grown * (names->count + 1));
    if (grown)
        names->list = grown;
    char *copy = grown ? strdup(path) : NULL;
    if (!copy)
        return bunshin_error_no_memory();
    names->list[names->count++] = (struct name){.path = copy, .directory = directory};
    return NULL;
}

/* Makes the directories above a path that are missing, and remembers the times of the one that is not. */
static struct bunshin_error *make_parents(struct names *names, const char *path) {
    char parent[4300];
    struct stat info;
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (!slash || slash == parent)
        return NULL;
    *slash = '\0';
    if (stat(parent, &info) == 0) {
        for (size_t i = 0; i < names->count; i++)
            if (!strcmp(names->list[i].path, parent))
                return NULL;
        TRY(add_name(names, parent, true));
        struct name *name = &names->list[names->count - 1];
        name->times = true;
        name->time[0] = info.st_atim;
        name->time[1] = info.st_mtim;
        return NULL;
    }
    if (errno != ENOENT)
        return NULL; /* it cannot be made here, and will be made elsewhere */
    TRY(make_parents(names, parent));
    return mkdir(parent, 0700) == 0 ? add_name(names, parent, true) : NULL;
}

static struct bunshin_error *remove_names(struct names *names) {
    struct bunshin_error *error = NULL;
    for (size_t i = names->count; i-- > 0;) {
        const struct name *name = &names->list[i];
        if (!name->times && (name->directory ? rmdir(name->path) : unlink(name->path)) != 0 && !error)
            error = bunshin_error_os("cannot remove %.200s again", name->path);
    }
    for (size_t i = names->count; i-- > 0;) {
        if (names->list[i].times)
            (void)utimensat(AT_FDCWD, names->list[i].path, names->list[i].time, 0);
        free(names->list[i].path);
    }
    free(names->list);
    return error;
}

/* ---- rebuild: one of them ---- */

static int make_at(const struct ghost *ghost, const char *path) {
    switch (ghost->mode & S_IFMT) {
    case S_IFREG: {
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        return fd;
    }
    case S_IFDIR:
        if (mkdir(path, 0700) != 0)
            return -1;
        return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case S_IFLNK:
        if (symlink((const char *)(ghost + 1), path) != 0)
            return -1;
        return open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    default:
        if (mknod(path, ghost->mode & (S_IFMT | 07777), 0) != 0)
            return -1;
        return open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    }
}

/* Where it was; beside that, where its name is taken now; in /tmp, where its directory is closed to us. */
static struct bunshin_error *make(struct rebuild *rebuild, int32_t index, struct names *names, int *ret) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    const struct ghost *ghost = (const void *)IMAGE_HEAP(rebuild->image, record->data);
    const char *path = (const char *)IMAGE_HEAP(rebuild->image, record->path);
    char name[4400];
    TRY(make_parents(names, path));
    snprintf(name, sizeof name, "%s", path);
    if (is_nameless(record->flags)) { /* never had a name, and may be given one */
        char *slash = strrchr(name, '/');
        slash[slash == name] = '\0';
        *ret = open(name, (record->flags & ~(ONCE | O_NOFOLLOW)) | O_TMPFILE | O_CLOEXEC, 0600);
        return *ret < 0 ? bunshin_error_os("cannot make the nameless file %.200s again", path) : NULL;
    }
    *ret = make_at(ghost, name);
    for (int tries = 0; *ret < 0 && errno == EEXIST && tries < 100; tries++) {
        snprintf(name, sizeof name, "%.*s/.bunshin-%d-%d", (int)(strrchr(path, '/') - path), path, index, tries);
        *ret = make_at(ghost, name);
    }
    for (int tries = 0; *ret < 0 && tries < 100; tries++) {
        snprintf(name, sizeof name, "/tmp/.bunshin-%d-%d", index, tries);
        *ret = make_at(ghost, name);
    }
    if (*ret < 0)
        return bunshin_error_os("cannot make %.200s again, which has no name", path);
    return add_name(names, name, S_ISDIR(ghost->mode));
}

static struct bunshin_error *fill(struct rebuild *rebuild, int32_t index, int fd) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    const struct ghost *ghost = (const void *)IMAGE_HEAP(rebuild->image, record->data);
    const char *path = (const char *)IMAGE_HEAP(rebuild->image, record->path);
    if (S_ISREG(ghost->mode)) {
        const struct image_run *run = (const void *)(ghost + 1);
        size_t runs = (record->data.size - sizeof *ghost) / sizeof *run;
        int store = rebuild->store_base + record->object;
        if (ftruncate(fd, (off_t)ghost->size) != 0)
            return bunshin_error_os("cannot size the unlinked file %.200s", path);
        for (size_t i = 0; i < runs; i++) {
            off_t from = (off_t)run[i].store_offset, to = (off_t)run[i].offset;
            for (uint64_t left = run[i].length; left;) {
                char part[1 << 16];
                ssize_t got = pread(store, part, left < sizeof part ? left : sizeof part, from);
                if (got <= 0 || pwrite(fd, part, (size_t)got, to) != got)
                    return bunshin_error_os("cannot fill the unlinked file %.200s", path);
                from += got;
                to += got;
                left -= (uint64_t)got;
            }
        }
    }
    struct timespec times[2] = {ghost->accessed, ghost->modified};
    bool by_path = !S_ISREG(ghost->mode) && !S_ISDIR(ghost->mode);
    int own = by_path ? fchownat(fd, "", ghost->uid, ghost->gid, AT_EMPTY_PATH) : fchown(fd, ghost->uid, ghost->gid);
    if (own != 0 || (!by_path && fchmod(fd, ghost->mode & 07777) != 0))
        return bunshin_error_os("cannot set the owner and mode of %.200s", path);
    if (!by_path)
        (void)futimens(fd, times);
    return NULL;
}

/* ---- rebuild: all of them ---- */

static struct bunshin_error *open_one(struct rebuild *rebuild, int32_t index, const size_t *name_of, struct names *names, int made) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    int32_t root = record->same_as == IMAGE_NONE ? index : record->same_as;
    char opened[48];
    const char *path = opened;
    int flags = record->flags & ~(ONCE | (O_TMPFILE & ~O_DIRECTORY)), fd;
    if (is_nameless(record->flags)) /* another opening of it could not be given a name any more */
        flags &= ~O_DIRECTORY;
    if (is_nameless(record->flags) && root == index)
        fd = fcntl(made, F_DUPFD_CLOEXEC, 3);
    else {
        if (is_nameless(IMAGE_DESCRIPTION(rebuild->image, root)->flags)) {
            snprintf(opened, sizeof opened, "/proc/self/fd/%d", rebuild_fd(rebuild, root));
            flags &= ~O_NOFOLLOW;
        } else
            path = names->list[name_of[root]].path;
        fd = open(path, flags | O_CLOEXEC);
    }
    if (fd < 0)
        return bunshin_error_os("cannot open %.200s, which has no name", path);
    return rebuild_place(rebuild, index, fd);
}

struct bunshin_error *ghost_rebuild_all(struct rebuild *rebuild) {
    int32_t count = (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count;
    size_t *name_of = NULL;
    struct names names = {0};
    struct bunshin_error *error = NULL;
    /* Directories first: what else is made may have been in them. */
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; !error && i < count; i++) {
            const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, i);
            if (record->kind != KIND_GHOST)
                continue;
            if (!name_of && !(name_of = calloc((size_t)count, sizeof *name_of)))
                return bunshin_error_no_memory();
            const struct image_description *root = record->same_as == IMAGE_NONE ? record : IMAGE_DESCRIPTION(rebuild->image, record->same_as);
            const struct ghost *ghost = (const void *)IMAGE_HEAP(rebuild->image, root->data);
            if (S_ISDIR(ghost->mode) == (pass == 1))
                continue;
            int made = -1;
            if (root == record) {
                error = make(rebuild, i, &names, &made);
                name_of[i] = names.count ? names.count - 1 : 0;
                if (!error)
                    error = fill(rebuild, i, made);
            }
            if (!error)
                error = open_one(rebuild, i, name_of, &names, made);
            if (made >= 0)
                close(made);
        }
    struct bunshin_error *left = remove_names(&names);
    free(name_of);
    return error ? (bunshin_error_destroy(left), error) : left;
}
