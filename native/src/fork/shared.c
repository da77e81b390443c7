/*
 * Memory that processes share: memfds, shared anonymous mappings, files below /dev/shm. A fork must not share it with its
 * source, and the kernel has no copy-on-write for shared mappings: each fork gets a copy of what is in it. Holes stay
 * holes.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fork/content.h"
#include "fork/described.h"

#define SHM "/dev/shm/"

struct shared_seen {
    uint64_t inode, device; /* of the object, as stat or the memory map show it */
    int32_t object;
    int32_t mapping; /* a description for mappings of it, or IMAGE_NONE */
    int32_t mapping_writable;
    struct buffer runs;
    bool by_pages; /* its content is collected mapping by mapping */
};

/* ---- capture ---- */

static struct shared_seen *find_seen(struct capture *capture, uint64_t inode, bool anonymous) {
    /* Inodes of memfds and shared anonymous memory come from one kernel mount; /dev/shm is another. Names tell them apart. */
    for (size_t i = 0; i < capture->shared_count; i++)
        if (capture->shared[i].inode == inode && capture->shared[i].device == anonymous)
            return &capture->shared[i];
    return NULL;
}

static struct bunshin_error *add_seen(struct capture *capture, const struct image_shared *object, uint64_t inode, bool internal,
                                      struct shared_seen **ret) {
    struct shared_seen *grown = realloc(capture->shared, (capture->shared_count + 1) * sizeof *grown);
    if (!grown)
        return bunshin_error_no_memory();
    capture->shared = grown;
    *ret = &grown[capture->shared_count++];
    **ret = (struct shared_seen){.inode = inode, .device = internal, .mapping = IMAGE_NONE};
    return capture_add(capture, TABLE_SHARED, object, sizeof *object, &(*ret)->object);
}

static struct bunshin_error *store_content(struct capture *capture, int copy, uint64_t size, struct shared_seen *seen) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", copy);
    int source = open(path, O_RDONLY | O_CLOEXEC);
    if (source < 0)
        return bunshin_error_os("cannot read shared memory");
    const struct known *known = content_known(seen->device ? CONTENT_INTERNAL : CONTENT_NAMED, seen->inode);
    struct bunshin_error *error = content_take_file(capture, known, source, size, &seen->runs);
    close(source);
    return error;
}

static enum shared_kind kind_of(const char *link) {
    if (!strncmp(link, "/memfd:", 7))
        return SHARED_MEMFD;
    if (strncmp(link, SHM, strlen(SHM)))
        return SHARED_ANONYMOUS;
    size_t length = strlen(link);
    return length > 10 && !strcmp(link + length - 10, " (deleted)") ? SHARED_UNLINKED : SHARED_NAMED;
}

/* An object that can be opened: by a descriptor of somebody's, or by its name. */
static struct bunshin_error *capture_object(struct capture *capture, int copy, const char *link, struct shared_seen **ret) {
    struct stat info;
    if (fstat(copy, &info) != 0)
        return bunshin_error_os("cannot look at shared memory");
    enum shared_kind kind = kind_of(link);
    *ret = find_seen(capture, info.st_ino, kind <= SHARED_ANONYMOUS);
    if (*ret)
        return NULL;
    struct image_shared object = {.size = (uint64_t)info.st_size,
                                  .kind = kind,
                                  .mode = info.st_mode & 07777,
                                  .uid = info.st_uid,
                                  .gid = info.st_gid};
    char name[4200];
    size_t length = strlen(link), cut = length > 10 && !strcmp(link + length - 10, " (deleted)") ? 10 : 0;
    snprintf(name, sizeof name, "%.*s", (int)(length - cut), kind == SHARED_MEMFD ? link + 7 : link);
    if (kind == SHARED_MEMFD)
        name[length - cut - 7] = '\0';
    TRY(capture_text(capture, name, &object.name));
    if (kind <= SHARED_ANONYMOUS) {
        object.seals = fcntl(copy, F_GET_SEALS);
        if (object.seals < 0)
            object.seals = 0;
    }
    TRY(add_seen(capture, &object, info.st_ino, kind <= SHARED_ANONYMOUS, ret));
    return store_content(capture, copy, object.size, *ret);
}

struct bunshin_error *shared_capture(struct capture *capture, int copy, const char *link, struct image_description *ret) {
    struct shared_seen *seen;
    TRY(capture_object(capture, copy, link, &seen));
    ret->kind = KIND_SHARED;
    ret->object = seen->object;
    return NULL;
}

/* A process that has the object open: any descriptor of any process that shows the same inode. */
static int open_by_descriptor(struct capture *capture, const struct mapping *mapping) {
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
            char link[300];
            snprintf(path, sizeof path, "%d/fd/%d", process->alive, fds[i]);
            if (fstatat(capture->init->proc, path, &info, 0) != 0 || info.st_ino != mapping->inode)
                continue;
            ssize_t length = readlinkat(capture->init->proc, path, link, sizeof link - 1);
            link[length < 0 ? 0 : length] = '\0';
            if (strncmp(link, mapping->path, strlen(mapping->path)))
                continue;
            int fd = (int)openat(capture->init->proc, path, O_RDONLY | O_CLOEXEC);
            free(fds);
            return fd;
        }
        free(fds);
    }
    return -1;
}

/* What nobody has open is read through the processes that map it: the pages that exist, wherever one of them shows them. */
static struct bunshin_error *capture_pages(struct capture *capture, struct frozen_process *frozen, const struct mapping *mapping,
                                           struct parasite *parasite, struct shared_seen *seen) {
    struct parasite_args *args = parasite->args;
    for (uint64_t at = mapping->start; at < mapping->end; at += PARASITE_PAGES * ARCH_PAGE) {
        uint64_t length = mapping->end - at < PARASITE_PAGES * ARCH_PAGE ? mapping->end - at : PARASITE_PAGES * ARCH_PAGE;
        int32_t task = args->task;
        args->task = PARASITE_RESIDENT;
        args->range[0] = at;
        args->range[1] = length;
        TRY(parasite_run(parasite, parasite->leader));
        args->task = task;
        for (uint64_t page = 0; page < length / ARCH_PAGE;) {
            uint64_t end = page;
            while (end < length / ARCH_PAGE && args->resident[end] & 1)
                end++;
            if (end == page) {
                page++;
                continue;
            }
            uint64_t from = at + page * ARCH_PAGE, size = (end - page) * ARCH_PAGE;
            uint64_t offset = mapping->offset + (from - mapping->start);
            bool known = false; /* by another mapping of the same part */
            const struct image_run *runs = (const void *)seen->runs.data;
            for (size_t i = 0; i < seen->runs.size / sizeof *runs; i++)
                known |= runs[i].offset <= offset && offset + size <= runs[i].offset + runs[i].length;
            if (!known) {
                struct image_run run = {.offset = offset, .length = size, .store_offset = store_reserve(capture, size), .store = capture->store_count - 1};
                TRY(store_copy(capture, frozen->alive, from, size, run.store_offset));
                TRY(buffer_append(&seen->runs, &run, sizeof run));
            }
            page = end;
        }
    }
    return NULL;
}

struct bunshin_error *shared_capture_mapping(struct capture *capture, struct frozen_process *frozen, const struct mapping *mapping,
                                             struct parasite *parasite, int32_t *ret) {
    char link[4200];
    snprintf(link, sizeof link, "%s%s", mapping->path, mapping->deleted ? " (deleted)" : "");
    bool internal = kind_of(link) <= SHARED_ANONYMOUS;
    struct shared_seen *seen = find_seen(capture, mapping->inode, internal);
    if (!seen) {
        int copy = kind_of(link) == SHARED_NAMED ? open(mapping->path, O_RDONLY | O_CLOEXEC) : open_by_descriptor(capture, mapping);
        if (copy >= 0) {
            struct bunshin_error *error = capture_object(capture, copy, link, &seen);
            close(copy);
            TRY(error);
        } else {
            struct image_shared object = {.kind = internal ? SHARED_ANONYMOUS : SHARED_UNLINKED, .mode = 0600};
            TRY(capture_text(capture, internal ? "shared" : mapping->path, &object.name));
            TRY(add_seen(capture, &object, mapping->inode, internal, &seen));
            seen->by_pages = true;
        }
    }
    struct image_shared *object = CAPTURE_AT(capture, TABLE_SHARED, struct image_shared, seen->object);
    if (seen->by_pages) {
        uint64_t end = mapping->offset + (mapping->end - mapping->start);
        if (object->size < end)
            object->size = end;
        TRY(capture_pages(capture, frozen, mapping, parasite, seen));
    }
    if (seen->mapping == IMAGE_NONE) {
        struct image_description record = {
            .kind = KIND_SHARED, .flags = O_RDWR, .object = seen->object, .holder = frozen->pid, .holder_fd = -1};
        struct described described = {.fd = -1, .copy = -1};
        TRY(capture_add(capture, TABLE_DESCRIPTION, &record, sizeof record, &seen->mapping));
        described.description = seen->mapping;
        TRY(described_add(capture, &described));
    }
    *ret = seen->mapping;
    return NULL;
}

/* Files below /dev/shm that nobody has open are part of the workspace too. */
static struct bunshin_error *capture_names(struct capture *capture, const char *directory) {
    DIR *stream = opendir(directory);
    struct bunshin_error *error = NULL;
    if (!stream)
        return NULL;
    for (struct dirent *entry; !error && (entry = readdir(stream));) {
        char path[4200];
        struct stat info;
        struct shared_seen *seen;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(path, sizeof path, "%s%s", directory, entry->d_name);
        if (lstat(path, &info) != 0)
            continue;
        if (!S_ISREG(info.st_mode)) {
            error = bunshin_error_new(BUNSHIN_ERROR_UNSUPPORTED, 0, "cannot fork: %.200s is not a regular file, and lies on a tmpfs", path);
            continue;
        }
        int copy = open(path, O_RDONLY | O_CLOEXEC);
        if (copy < 0)
            continue;
        error = capture_object(capture, copy, path, &seen);
        close(copy);
    }
    closedir(stream);
    return error;
}

struct bunshin_error *shared_finish(struct capture *capture) {
    TRY(capture_names(capture, SHM));
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

static struct bunshin_error *make_object(struct rebuild *rebuild, const struct image_shared *object, int *ret) {
    const char *name = (const char *)IMAGE_HEAP(rebuild->image, object->name);
    int fd;
    if (object->kind <= SHARED_ANONYMOUS)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    else
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return bunshin_error_os("cannot make shared memory %.100s again", name);
    *ret = fd;
    if (object->kind > SHARED_ANONYMOUS && (fchmod(fd, object->mode) != 0 || fchown(fd, object->uid, object->gid) != 0))
        return bunshin_error_os("cannot set the mode of %.100s", name);
    if (ftruncate(fd, (off_t)object->size) != 0)
        return bunshin_error_os("cannot size shared memory %.100s", name);
    struct stat info;
    if (fstat(fd, &info) != 0)
        return bunshin_error_os("cannot look at shared memory");
    TRY(content_fill_file(rebuild, object->first_run, object->run_count, fd, object->kind <= SHARED_ANONYMOUS ? CONTENT_INTERNAL : CONTENT_NAMED,
                          info.st_ino));
    if (object->kind == SHARED_UNLINKED)
        unlink(name);
    return NULL;
}

struct bunshin_error *shared_rebuild_all(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    for (int32_t s = 0; s < (int32_t)image->table[TABLE_SHARED].count; s++) {
        const struct image_shared *object = IMAGE_SHARED(image, s);
        int fd = -1;
        struct bunshin_error *error = make_object(rebuild, object, &fd);
        for (int32_t i = 0; !error && i < (int32_t)image->table[TABLE_DESCRIPTION].count; i++) {
            const struct image_description *record = IMAGE_DESCRIPTION(image, i);
            if (record->kind != KIND_SHARED || record->object != s)
                continue;
            char path[32];
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            /* Through /proc, whose entries are links: a program's own O_NOFOLLOW was about its own path. */
            int again = open(path, (record->flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW)) | O_CLOEXEC);
            error = again < 0 ? bunshin_error_os("cannot open shared memory again") : rebuild_place(rebuild, i, again);
        }
        if (!error && object->seals && fcntl(fd, F_ADD_SEALS, object->seals) != 0)
            error = bunshin_error_os("cannot seal shared memory");
        if (fd >= 0)
            close(fd);
        TRY(error);
    }
    return NULL;
}
