/*
 * Memory that processes share: memfds, shared anonymous mappings, files below /dev/shm. A fork must not share it with its
 * source, and the kernel has no copy-on-write for shared mappings: each fork gets a copy of what is in it. Holes stay
 * holes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fork/content.h"
#include "fork/described.h"

#define PARASITE_PART (256u << 10)
#define DELETED " (deleted)"

struct shared_seen {
    uint64_t inode;
    unsigned device; /* of the object, as the memory map shows it */
    int32_t object;
    int32_t mapping[2]; /* descriptions for mappings of it that may be written or not, or IMAGE_NONE */
    struct buffer runs;
    bool by_pages;        /* nobody has it open: read through mappings, from the end to this offset */
    uint64_t taken_from;
};

/* ---- capture ---- */

static unsigned device_of(const struct stat *info) { return major(info->st_dev) << 20 | minor(info->st_dev); }

bool shared_is(const struct capture *capture, const struct stat *info) {
    return S_ISREG(info->st_mode) && (device_of(info) == capture->memory_device || tmpfs_has(capture, device_of(info)));
}

static struct shared_seen *find_seen(struct capture *capture, uint64_t inode, unsigned device) {
    for (size_t i = 0; i < capture->shared_count; i++)
        if (capture->shared[i].inode == inode && capture->shared[i].device == device)
            return &capture->shared[i];
    return NULL;
}

static struct bunshin_error *add_seen(struct capture *capture, const struct image_shared *object, uint64_t inode, unsigned device,
                                      struct shared_seen **ret) {
    struct shared_seen *grown = realloc(capture->shared, (capture->shared_count + 1) * sizeof *grown);
    if (!grown)
        return bunshin_error_no_memory();
    capture->shared = grown;
    *ret = &grown[capture->shared_count++];
    **ret = (struct shared_seen){.inode = inode, .device = device, .mapping = {IMAGE_NONE, IMAGE_NONE}};
    return capture_add(capture, TABLE_SHARED, object, sizeof *object, &(*ret)->object);
}

static enum content_kind content_of(int kind) { return kind <= SHARED_ANONYMOUS ? CONTENT_INTERNAL : CONTENT_NAMED; }

static struct bunshin_error *store_content(struct capture *capture, int copy, const struct image_shared *object, struct shared_seen *seen) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", copy);
    int source = open(path, O_RDONLY | O_CLOEXEC);
    if (source < 0)
        return bunshin_error_os("cannot read shared memory");
    struct bunshin_error *error = content_take_file(capture, content_known(content_of(object->kind), seen->inode), source, object->size, &seen->runs);
    close(source);
    return error;
}

static bool is_deleted(const char *link) {
    size_t length = strlen(link), cut = strlen(DELETED);
    return length > cut && !strcmp(link + length - cut, DELETED);
}

/* An object that can be opened: by a descriptor of somebody's, or by its name. */
static struct bunshin_error *capture_object(struct capture *capture, int copy, const char *link, const struct stat *info,
                                            struct shared_seen **ret) {
    *ret = find_seen(capture, info->st_ino, device_of(info));
    if (*ret)
        return NULL;
    bool memfd = !strncmp(link, "/memfd:", 7), internal = device_of(info) == capture->memory_device;
    struct image_shared object = {.size = (uint64_t)info->st_size,
                                  .kind = !internal ? SHARED_FILE : memfd ? SHARED_MEMFD : SHARED_ANONYMOUS,
                                  .mode = info->st_mode & 07777,
                                  .uid = info->st_uid,
                                  .gid = info->st_gid,
                                  .entry = IMAGE_NONE};
    char name[4300];
    size_t length = strlen(link), cut = is_deleted(link) ? strlen(DELETED) : 0;
    snprintf(name, sizeof name, "%.*s", (int)(length - cut), link);
    TRY(capture_text(capture, memfd ? name + 7 : name, &object.name));
    if (internal) {
        object.seals = fcntl(copy, F_GET_SEALS);
        if (object.seals < 0)
            object.seals = 0;
    }
    TRY(add_seen(capture, &object, info->st_ino, device_of(info), ret));
    return store_content(capture, copy, &object, *ret);
}

struct bunshin_error *shared_capture(struct capture *capture, const struct holder *holder, const struct stat *info,
                                     struct image_description *ret) {
    struct shared_seen *seen;
    struct stat named;
    TRY(capture_object(capture, holder->copy, holder->link, info, &seen));
    ret->kind = KIND_SHARED;
    ret->object = seen->object;
    if (*holder->link == '/' && lstat(holder->link, &named) == 0 && named.st_ino == info->st_ino && named.st_dev == info->st_dev)
        return capture_text(capture, holder->link, &ret->path);
    return NULL;
}

struct bunshin_error *shared_capture_named(struct capture *capture, int copy, const char *path, int32_t entry, int32_t *ret_object) {
    struct shared_seen *seen;
    struct stat info;
    if (fstat(copy, &info) != 0)
        return bunshin_error_os("cannot look at %.200s", path);
    TRY(capture_object(capture, copy, path, &info, &seen));
    struct image_shared *object = CAPTURE_AT(capture, TABLE_SHARED, struct image_shared, seen->object);
    if (object->entry == IMAGE_NONE)
        object->entry = entry;
    *ret_object = seen->object;
    return NULL;
}

/* A process that has the object open: any descriptor of any process that shows the same inode. */
static int open_by_descriptor(struct capture *capture, const struct mapping *mapping, char *ret_link, size_t size) {
    bool named = named_text(mapping); /* which hides what its object is called */
    for (size_t p = 0; p < capture->frozen->process_count; p++) {
        struct frozen_process *process = &capture->frozen->processes[p];
        char path[64];
        int *fds = NULL;
        size_t count = 0;
        snprintf(path, sizeof path, "%d/fd", process->alive);
        if (process->zombie || !procfs_numbers(capture->init->proc, path, &fds, &count))
            continue;
        for (size_t i = 0; i < count; i++) {
            struct stat info;
            char link[4300];
            snprintf(path, sizeof path, "%d/fd/%d", process->alive, fds[i]);
            if (fstatat(capture->init->proc, path, &info, 0) != 0 || info.st_ino != mapping->inode)
                continue;
            ssize_t length = readlinkat(capture->init->proc, path, link, sizeof link - 1);
            link[length < 0 ? 0 : length] = '\0';
            if (named ? device_of(&info) != mapping->device : strncmp(link, mapping->path, strlen(mapping->path)) != 0)
                continue;
            if (named)
                snprintf(ret_link, size, "%s", link);
            int fd = (int)openat(capture->init->proc, path, O_RDONLY | O_CLOEXEC);
            free(fds);
            return fd;
        }
        free(fds);
    }
    return -1;
}

/* How much of an object lies behind a mapping that reaches beyond its end, in bytes. Beyond it nothing can be read. */
static uint64_t find_end(struct tracee *tracee, uint64_t address, uint64_t most) {
    uint64_t low = 0, high = most / ARCH_PAGE; /* pages that are there, that may be there */
    uint8_t byte;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct bunshin_error *error = tracee_read(tracee->tid, address + middle * ARCH_PAGE, &byte, 1);
        if (error)
            high = middle;
        else
            low = middle + 1;
        bunshin_error_destroy(error);
    }
    return low * ARCH_PAGE;
}

#define BEHIND_MOST (1ull << 42)

/*
 * What nobody has open is read through a process that maps it: mapped once more, to the end of the object. Only pages that
 * exist are read; where memory is swapped out that cannot be told, and all are.
 */
static struct bunshin_error *take_behind(struct capture *capture, const struct mapping *mapping, struct parasite *parasite,
                                         struct shared_seen *seen) {
    struct image_shared *object = CAPTURE_AT(capture, TABLE_SHARED, struct image_shared, seen->object);
    struct tracee *tracee = parasite->leader;
    bool first = !object->size, resident_only = !mapping->swapped && (seen->device == capture->memory_device || tmpfs_has(capture, seen->device));
    uint64_t length = first ? BEHIND_MOST : seen->taken_from - mapping->offset;
    uint64_t again[6] = {mapping->start, 0, length, MREMAP_MAYMOVE}, away[6] = {0, length};
    int64_t at, result;
    TRY(tracee_syscall(tracee, parasite->vdso, SYS_mremap, again, &at));
    bool mapped = at >= 0 || at <= -4096;
    if (!mapped) { /* a limit of its own: what it has mapped */
        at = (int64_t)mapping->start;
        length = mapping->end - mapping->start < length ? mapping->end - mapping->start : length;
    }
    if (first) {
        length = find_end(tracee, (uint64_t)at, length);
        object->size = mapping->offset + length;
    }
    const struct known *known = content_known(content_of(object->kind), seen->inode);
    struct parasite_args *args = parasite->args;
    uint8_t *part = malloc(PARASITE_PART);
    struct bunshin_error *error = part ? NULL : bunshin_error_no_memory();
    for (uint64_t done = 0, size; !error && done < length; done += size) {
        size = length - done < PARASITE_PAGES * ARCH_PAGE ? length - done : PARASITE_PAGES * ARCH_PAGE;
        int32_t task = args->task;
        args->task = PARASITE_RESIDENT;
        args->range[0] = (uint64_t)at + done;
        args->range[1] = size;
        error = parasite_run(parasite, tracee);
        args->task = task;
        for (uint64_t page = 0, end; !error && page < size / ARCH_PAGE; page = end > page ? end : page + 1) {
            for (end = page; end < size / ARCH_PAGE && end - page < PARASITE_PART / ARCH_PAGE && (!resident_only || args->resident[end] & 1);)
                end++;
            uint64_t from = done + page * ARCH_PAGE, bytes = (end - page) * ARCH_PAGE;
            if (bytes)
                error = tracee_read(tracee->tid, (uint64_t)at + from, part, bytes);
            if (bytes && !error)
                error = content_take(capture, known, mapping->offset + from, part, bytes, &seen->runs);
        }
    }
    free(part);
    away[0] = (uint64_t)at;
    struct bunshin_error *other = mapped ? tracee_syscall(tracee, parasite->vdso, SYS_munmap, away, &result) : NULL;
    seen->taken_from = mapping->offset;
    if (error)
        bunshin_error_destroy(other);
    return error ? error : other;
}

static struct bunshin_error *add_mapping(struct capture *capture, const struct frozen_process *frozen, struct shared_seen *seen, bool writable) {
    struct image_description record = {.kind = KIND_SHARED,
                                       .flags = writable ? O_RDWR : O_RDONLY,
                                       .object = seen->object,
                                       .same_as = IMAGE_NONE,
                                       .holder = frozen->pid,
                                       .holder_fd = -1};
    struct described described = {.fd = -1, .copy = -1};
    TRY(capture_add(capture, TABLE_DESCRIPTION, &record, sizeof record, &seen->mapping[writable]));
    described.description = seen->mapping[writable];
    return described_add(capture, &described);
}

struct bunshin_error *shared_capture_mapping(struct capture *capture, struct frozen_process *frozen, const struct mapping *mapping,
                                             struct parasite *parasite, int32_t *ret) {
    char link[4300];
    struct stat info;
    *ret = IMAGE_NONE;
    snprintf(link, sizeof link, "%s%s", mapping->path, mapping->deleted ? DELETED : "");
    struct shared_seen *seen = find_seen(capture, mapping->inode, mapping->device);
    if (!seen) {
        int copy = mapping->deleted || *mapping->path != '/' ? -1 : open(mapping->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (copy >= 0 && (fstat(copy, &info) != 0 || info.st_ino != mapping->inode || device_of(&info) != mapping->device)) {
            close(copy);
            copy = -1;
        }
        if (copy < 0 && (copy = open_by_descriptor(capture, mapping, link, sizeof link)) >= 0 && fstat(copy, &info) != 0)
            return bunshin_error_os("cannot look at shared memory");
        if (copy >= 0) {
            struct bunshin_error *error = capture_object(capture, copy, link, &info, &seen);
            close(copy);
            TRY(error);
        } else if (!mapping->shared)
            return NULL; /* nobody's but this process's, as it is */
        else {
            bool internal = !tmpfs_has(capture, mapping->device); /* a file that nobody has open is memory too */
            struct image_shared object = {
                .kind = internal ? SHARED_ANONYMOUS : SHARED_FILE, .mode = internal ? 0777 : 0600, .entry = IMAGE_NONE};
            TRY(capture_text(capture, internal ? "shared" : named_text(mapping) ? "" : mapping->path, &object.name));
            TRY(add_seen(capture, &object, mapping->inode, mapping->device, &seen));
            seen->by_pages = true;
        }
    }
    bool writable = mapping->shared && mapping->flags & MAPPING_MAY_WRITE;
    if (seen->by_pages && mapping->shared && (!CAPTURE_AT(capture, TABLE_SHARED, struct image_shared, seen->object)->size || mapping->offset < seen->taken_from))
        TRY(take_behind(capture, mapping, parasite, seen));
    if (seen->mapping[writable] == IMAGE_NONE)
        TRY(add_mapping(capture, frozen, seen, writable));
    *ret = seen->mapping[writable];
    return NULL;
}

struct bunshin_error *shared_finish(struct capture *capture) {
    TRY(tmpfs_capture(capture));
    for (size_t i = 0; i < capture->shared_count; i++) {
        struct shared_seen *seen = &capture->shared[i];
        struct image_shared *object = CAPTURE_AT(capture, TABLE_SHARED, struct image_shared, seen->object);
        TRY(content_add(capture, &seen->runs, &object->first_run, &object->run_count));
    }
    return NULL;
}

void shared_forget(struct capture *capture) {
    for (size_t i = 0; i < capture->shared_count; i++)
        buffer_deinit(&capture->shared[i].runs);
    free(capture->shared);
    capture->shared = NULL;
    capture->shared_count = 0;
}

/* ---- rebuild ---- */

static const char *text_of(const struct rebuild *rebuild, struct span span) { return (const char *)IMAGE_HEAP(rebuild->image, span); }

/* A file on a tmpfs: under its first name, or under the one it had. *ret_path is taken away again where it is not its own. */
static int make_file(const struct rebuild *rebuild, const struct image_shared *object, int32_t index, char *ret_path, size_t size) {
    bool named = object->entry != IMAGE_NONE;
    snprintf(ret_path, size, "%s", text_of(rebuild, named ? IMAGE_ENTRY(rebuild->image, object->entry)->path : object->name));
    int fd = open(ret_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    for (int tries = 0; fd < 0 && !named && tries < 100; tries++) { /* its name is another file's now, or its directory is gone */
        snprintf(ret_path, size, "/dev/shm/.bunshin-%d-%d", index, tries);
        fd = open(ret_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    return fd;
}

/* The opening that made a file without a name, which may be given one: it shows in its flags. */
static const struct image_description *find_nameless(const struct rebuild *rebuild, int32_t object) {
    for (size_t i = 0; i < rebuild->image->table[TABLE_DESCRIPTION].count; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, i);
        if (record->kind == KIND_SHARED && record->object == object && record->flags & O_TMPFILE & ~O_DIRECTORY)
            return record;
    }
    return NULL;
}

static struct bunshin_error *make_object(struct rebuild *rebuild, int32_t index, char *ret_path, size_t size, int *ret) {
    const struct image_shared *object = IMAGE_SHARED(rebuild->image, index);
    const struct image_description *nameless = object->entry == IMAGE_NONE ? find_nameless(rebuild, index) : NULL;
    const char *name = text_of(rebuild, object->name);
    struct stat info;
    *ret_path = '\0';
    if (object->kind <= SHARED_ANONYMOUS)
        *ret = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    else if (nameless)
        *ret = open("/dev/shm", (nameless->flags & ~(O_EXCL | O_TRUNC | O_NOFOLLOW)) | O_CLOEXEC, 0600);
    else
        *ret = make_file(rebuild, object, index, ret_path, size);
    if (*ret < 0 || fstat(*ret, &info) != 0)
        return bunshin_error_os("cannot make shared memory %.100s again", name);
    if ((info.st_uid != object->uid || info.st_gid != object->gid) && fchown(*ret, object->uid, object->gid) != 0)
        return bunshin_error_os("cannot set the owner of %.100s", name);
    if ((info.st_mode & 07777) != object->mode && fchmod(*ret, object->mode) != 0)
        return bunshin_error_os("cannot set the mode of %.100s", name);
    if (ftruncate(*ret, (off_t)object->size) != 0)
        return bunshin_error_os("cannot size shared memory %.100s", name);
    return content_fill_file(rebuild, object->first_run, object->run_count, *ret, content_of(object->kind), info.st_ino);
}

/* Every opening of an object of its own: by the path where it still has that, else through /proc. */
static struct bunshin_error *open_all(struct rebuild *rebuild, int32_t object, int fd, bool *ret_mapped_writable) {
    for (int32_t i = 0; i < (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, i);
        if (record->kind != KIND_SHARED || record->object != object)
            continue;
        int flags = (record->flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW | (O_TMPFILE & ~O_DIRECTORY))) | O_CLOEXEC, again = -1;
        if (record->flags & O_TMPFILE & ~O_DIRECTORY)
            flags &= ~O_DIRECTORY;
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (record == find_nameless(rebuild, object))
            again = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        else if (record->path.size)
            again = open(text_of(rebuild, record->path), flags);
        if (again < 0)
            again = open(path, flags);
        if (again < 0)
            return bunshin_error_os("cannot open shared memory again");
        TRY(rebuild_place(rebuild, i, again));
        *ret_mapped_writable |= record->holder_fd < 0 && (record->flags & O_ACCMODE) == O_RDWR;
    }
    return NULL;
}

static struct bunshin_error *link_all(struct rebuild *rebuild, int32_t object, const char *first) {
    for (size_t i = 0; i < rebuild->image->table[TABLE_ENTRY].count; i++) {
        const struct image_entry *entry = IMAGE_ENTRY(rebuild->image, i);
        const char *path = text_of(rebuild, entry->path);
        if (S_ISREG(entry->mode) && entry->object == object && strcmp(path, first) && link(first, path) != 0)
            return bunshin_error_os("cannot make %.200s again", path);
    }
    return NULL;
}

/* An object at a time, those with names first: the names of others are used in passing. */
struct bunshin_error *shared_rebuild_all(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    for (int nameless = 0; nameless < 2; nameless++)
        for (int32_t i = 0; i < (int32_t)image->table[TABLE_SHARED].count; i++) {
            const struct image_shared *object = IMAGE_SHARED(image, i);
            char path[4300];
            int fd = -1;
            bool mapped_writable = false;
            if ((object->entry == IMAGE_NONE) != nameless)
                continue;
            struct bunshin_error *error = make_object(rebuild, i, path, sizeof path, &fd);
            if (!error && !nameless)
                error = link_all(rebuild, i, path);
            if (!error)
                error = open_all(rebuild, i, fd, &mapped_writable);
            if (!error && object->seals && !mapped_writable && fcntl(fd, F_ADD_SEALS, object->seals) != 0)
                error = bunshin_error_os("cannot seal shared memory");
            if (*path && nameless && unlink(path) != 0 && !error)
                error = bunshin_error_os("cannot remove %.200s again", path);
            if (fd >= 0)
                close(fd);
            TRY(error);
        }
    return NULL;
}

struct bunshin_error *shared_seal(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    for (int32_t i = 0; i < (int32_t)image->table[TABLE_DESCRIPTION].count; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(image, i);
        if (record->kind != KIND_SHARED || record->holder_fd >= 0 || (record->flags & O_ACCMODE) != O_RDWR)
            continue;
        int seals = IMAGE_SHARED(image, record->object)->seals;
        if (seals && fcntl(rebuild_fd(rebuild, i), F_ADD_SEALS, seals) != 0)
            return bunshin_error_os("cannot seal shared memory");
    }
    return NULL;
}
