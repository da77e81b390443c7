/*
 * Memory: what a process has mapped becomes a list of operations that map it again. Pages that differ from what lies
 * below them go into the new page store, once; forks map them privately from there. Pages that came from a store and were
 * not written since are still the store's: they are named, not copied, so that a seal costs what was written.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fork/blobs.h"
#include "fork/capture.h"
#include "fork/kin.h"
#include "fork/scan.h"

#define BOUNCE (512u << 10)
#define MEMORY_SPARED (8ull << 20) /* for the tables, and for those who were about to ask for more */
/* Written pages inside a file mapping: from this many in a row on, a mapping is cheaper for every fork than a copy. */
#define FILE_RUN_MAPPED 4
/* A gap of clean pages inside a written region is shared too: below this, one mapping spans it. */
#define ANON_GAP_PAGES 32
#define STORE_GAP_PAGES 4
#define PIECES_MOST 256
/* A process may have 65,530 mappings. Every piece may cost two. */
#define MAPPINGS_MOST 60000
/* Where there is no room for pieces, a mapping up to this size becomes one, all of it. */
#define WHOLE_MOST (16ull << 20)
/* A process that stands on more pieces than this is stored anew, in one. */
#define STORE_MAPPINGS_MOST 2000

/* ---- the page store ---- */

uint64_t store_reserve(struct capture *capture, uint64_t length) {
    uint64_t at = capture->store_end;
    capture->store_end += (length + ARCH_PAGE - 1) & ~(ARCH_PAGE - 1);
    return at;
}

struct bunshin_error *store_write(struct capture *capture, const void *data, size_t size, uint64_t at) {
    int fd = capture->stores[capture->store_count - 1].fd;
    /* The store is charged to the workspace: at its limit the kernel would kill one of those who are to be kept. */
    if (capture->bytes_copied + size + MEMORY_SPARED > capture->memory_left)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, ENOMEM,
                                 "cannot seal: its page store would pass the workspace's memory limit (%llu MB are left below it)",
                                 (unsigned long long)(capture->memory_left >> 20));
    for (size_t done = 0; done < size;) {
        ssize_t put = pwrite(fd, (const uint8_t *)data + done, size - done, (off_t)(at + done));
        if (put <= 0)
            return bunshin_error_os("cannot write %zu bytes to the page store", size);
        done += (size_t)put;
    }
    capture->bytes_copied += size;
    return NULL;
}

static bool is_guarded(const struct runs *guards, uint64_t address) {
    for (size_t i = 0; guards && i < RUN_COUNT(guards) && RUN(guards, i).start <= address; i++)
        if (address < RUN(guards, i).end)
            return true;
    return false;
}

struct bunshin_error *memory_read(struct capture *capture, pid_t pid, uint64_t address, uint8_t *ret, uint64_t length) {
    struct bunshin_error *error = tracee_read(pid, address, ret, length);
    if (!error || !capture->guards || !RUN_COUNT(capture->guards))
        return error;
    bunshin_error_destroy(error); /* what lies between guards, a page at a time */
    for (uint64_t at = 0; at < length; at += ARCH_PAGE) {
        uint64_t part = length - at < ARCH_PAGE ? length - at : ARCH_PAGE;
        if (is_guarded(capture->guards, address + at))
            memset(ret + at, 0, part);
        else
            TRY(tracee_read(pid, address + at, ret + at, part));
    }
    return NULL;
}

struct bunshin_error *store_copy(struct capture *capture, pid_t pid, uint64_t address, uint64_t length, uint64_t at) {
    if (!capture->bounce.size)
        TRY(buffer_extend(&capture->bounce, BOUNCE, NULL));
    for (uint64_t done = 0; done < length;) {
        uint64_t part = length - done < BOUNCE ? length - done : BOUNCE;
        TRY(memory_read(capture, pid, address + done, capture->bounce.data, part));
        TRY(store_write(capture, capture->bounce.data, part, at + done));
        done += part;
    }
    return NULL;
}

/* ---- operations ---- */

static struct bunshin_error *add_op(struct capture *capture, enum op_kind kind, uint64_t address, uint64_t length, int source,
                                    uint64_t offset, int protection, int flags) {
    struct image_op op = {address, length, offset, kind, source, protection, flags};
    if (source >= 0 && source < SOURCE_FILE && (kind == OP_MAP || kind == OP_COPY))
        capture->stores[source].used = true;
    return capture_add(capture, TABLE_OP, &op, sizeof op, NULL);
}

#define PRIVATE (MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE)

#define GAPS_STAY UINT64_MAX

/*
 * Runs inside [start, end), with gaps up to `gap` closed; more than `most` pieces close wider gaps, and where that is 0 there
 * is one, of all. GAPS_STAY: the runs as they are, however many.
 */
static struct bunshin_error *pieces(const struct runs *runs, size_t *cursor, uint64_t start, uint64_t end, uint64_t gap, size_t most,
                                    struct runs *ret) {
    while (*cursor < RUN_COUNT(runs) && RUN(runs, *cursor).end <= start)
        (*cursor)++;
    for (;; gap *= 4) {
        ret->buffer.size = 0;
        for (size_t i = *cursor; i < RUN_COUNT(runs) && RUN(runs, i).start < end; i++) {
            uint64_t from = RUN(runs, i).start > start ? RUN(runs, i).start : start;
            uint64_t to = RUN(runs, i).end < end ? RUN(runs, i).end : end;
            size_t count = RUN_COUNT(ret);
            if (count && gap != GAPS_STAY && from - RUN(ret, count - 1).end <= gap)
                RUN(ret, count - 1).end = to;
            else
                TRY(runs_add(ret, from, to));
        }
        if (gap == GAPS_STAY || RUN_COUNT(ret) <= (most ? most : 1)) {
            if (!most && gap != GAPS_STAY && RUN_COUNT(ret) && end - start <= WHOLE_MOST)
                RUN(ret, 0) = (struct run){start, end};
            return NULL;
        }
    }
}

/* Copies the written pages of a piece to where they stand in the store; a hole there reads as the zeros it stands for. */
static struct bunshin_error *copy_runs(struct capture *capture, pid_t pid, const struct runs *runs, size_t cursor, uint64_t start,
                                       uint64_t end, uint64_t at) {
    for (size_t i = cursor; i < RUN_COUNT(runs) && RUN(runs, i).start < end; i++) {
        uint64_t from = RUN(runs, i).start > start ? RUN(runs, i).start : start;
        uint64_t to = RUN(runs, i).end < end ? RUN(runs, i).end : end;
        if (from < to)
            TRY(store_copy(capture, pid, from, to - from, at + (from - start)));
    }
    return NULL;
}

/* A piece of written pages: what is equal to a relative's is named, the rest is stored. */
static struct bunshin_error *map_piece(struct capture *capture, pid_t pid, int protection, const struct runs *runs, size_t cursor,
                                       struct run piece) {
    int store = capture->store_count - 1;
    TRY(kin_find(capture, pid, runs, cursor, piece.start, piece.end, &capture->common));
    uint64_t at = piece.start;
    for (size_t i = 0; i <= KIN_RANGE_COUNT(&capture->common); i++) {
        bool last = i == KIN_RANGE_COUNT(&capture->common);
        uint64_t until = last ? piece.end : KIN_RANGE(&capture->common, i).start;
        if (until > at) {
            uint64_t offset = store_reserve(capture, until - at);
            TRY(copy_runs(capture, pid, runs, cursor, at, until, offset));
            TRY(add_op(capture, OP_MAP, at, until - at, store, offset, protection, PRIVATE));
        }
        if (last)
            break;
        struct kin_range range = KIN_RANGE(&capture->common, i);
        TRY(add_op(capture, OP_MAP, range.start, range.end - range.start, store, range.offset, protection, PRIVATE));
        capture->bytes_shared += range.end - range.start;
        at = range.end;
    }
    return NULL;
}

static struct bunshin_error *map_anonymous(struct capture *capture, pid_t pid, const struct mapping *mapping, const struct runs *runs,
                                           size_t *cursor, struct runs *scratch) {
    TRY(pieces(runs, cursor, mapping->start, mapping->end, ANON_GAP_PAGES * ARCH_PAGE, capture->pieces_most, scratch));
    uint64_t at = mapping->start;
    for (size_t i = 0; i < RUN_COUNT(scratch); i++) {
        struct run piece = RUN(scratch, i);
        if (piece.start > at)
            TRY(add_op(capture, OP_MAP, at, piece.start - at, SOURCE_ANONYMOUS, 0, mapping->protection, PRIVATE | MAP_ANONYMOUS));
        TRY(map_piece(capture, pid, mapping->protection, runs, *cursor, piece));
        at = piece.end;
    }
    if (at < mapping->end)
        TRY(add_op(capture, OP_MAP, at, mapping->end - at, SOURCE_ANONYMOUS, 0, mapping->protection, PRIVATE | MAP_ANONYMOUS));
    return NULL;
}

static struct bunshin_error *map_store(struct capture *capture, pid_t pid, const struct mapping *mapping, const struct runs *runs,
                                       size_t *cursor, struct runs *scratch) {
    int store = capture->store_count - 1;
    if (capture->flatten || capture->stores[mapping->store].retired) {
        uint64_t length = mapping->end - mapping->start, offset = store_reserve(capture, length);
        TRY(store_copy(capture, pid, mapping->start, length, offset));
        return add_op(capture, OP_MAP, mapping->start, length, store, offset, mapping->protection, PRIVATE);
    }
    TRY(pieces(runs, cursor, mapping->start, mapping->end, STORE_GAP_PAGES * ARCH_PAGE, capture->pieces_most, scratch));
    uint64_t at = mapping->start;
    for (size_t i = 0; i <= RUN_COUNT(scratch); i++) {
        uint64_t until = i < RUN_COUNT(scratch) ? RUN(scratch, i).start : mapping->end;
        if (until > at) {
            TRY(add_op(capture, OP_MAP, at, until - at, mapping->store, mapping->offset + (at - mapping->start), mapping->protection, PRIVATE));
            capture->bytes_shared += until - at;
        }
        if (i == RUN_COUNT(scratch))
            break;
        struct run piece = RUN(scratch, i);
        uint64_t offset;
        bool common;
        TRY(kin_has(capture, pid, piece.start, piece.end, &offset, &common));
        if (!common) {
            offset = store_reserve(capture, piece.end - piece.start);
            TRY(store_copy(capture, pid, piece.start, piece.end - piece.start, offset)); /* gaps hold the older store's pages */
        }
        TRY(add_op(capture, OP_MAP, piece.start, piece.end - piece.start, store, offset, mapping->protection, PRIVATE));
        at = piece.end;
    }
    return NULL;
}

/* Mappings that must be anonymous: their pages are copied. */
static struct bunshin_error *map_copied(struct capture *capture, pid_t pid, const struct mapping *mapping, const struct runs *runs,
                                       size_t *cursor, struct runs *scratch) {
    int store = capture->store_count - 1, grows = mapping->kind == 's' ? MAP_GROWSDOWN : 0;
    bool writable = mapping->protection & PROT_WRITE;
    TRY(add_op(capture, OP_MAP, mapping->start, mapping->end - mapping->start, SOURCE_ANONYMOUS, 0, mapping->protection | PROT_WRITE,
               PRIVATE | MAP_ANONYMOUS | grows));
    TRY(pieces(runs, cursor, mapping->start, mapping->end, GAPS_STAY, 0, scratch));
    for (size_t i = 0; i < RUN_COUNT(scratch); i++) {
        struct run piece = RUN(scratch, i);
        uint64_t offset = store_reserve(capture, piece.end - piece.start);
        TRY(store_copy(capture, pid, piece.start, piece.end - piece.start, offset));
        TRY(add_op(capture, OP_COPY, piece.start, piece.end - piece.start, store, offset, 0, 0));
    }
    return writable ? NULL : add_op(capture, OP_PROTECT, mapping->start, mapping->end - mapping->start, 0, 0, mapping->protection, 0);
}

/* What came from a store, and is to be anonymous from now on. */
static struct bunshin_error *map_whole(struct capture *capture, pid_t pid, const struct mapping *mapping) {
    uint64_t length = mapping->end - mapping->start, offset = store_reserve(capture, length);
    TRY(store_copy(capture, pid, mapping->start, length, offset));
    TRY(add_op(capture, OP_MAP, mapping->start, length, SOURCE_ANONYMOUS, 0, mapping->protection | PROT_WRITE, PRIVATE | MAP_ANONYMOUS));
    TRY(add_op(capture, OP_COPY, mapping->start, length, capture->store_count - 1, offset, 0, 0));
    return add_op(capture, OP_PROTECT, mapping->start, length, 0, 0, mapping->protection, 0);
}

static struct bunshin_error *map_file(struct capture *capture, pid_t pid, const struct mapping *mapping, int source,
                                      const struct runs *runs, size_t *cursor, struct runs *scratch) {
    int store = capture->store_count - 1;
    int flags = (mapping->shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED | MAP_NORESERVE;
    scratch->buffer.size = 0;
    if (!mapping->shared)
        TRY(pieces(runs, cursor, mapping->start, mapping->end, GAPS_STAY, 0, scratch));
    /* A mapping costs the fork a place in its map: where there are very many runs, all are copied. */
    bool maps = RUN_COUNT(scratch) <= capture->pieces_most, copies = false;
    for (size_t i = 0; i < RUN_COUNT(scratch); i++)
        copies |= !maps || (RUN(scratch, i).end - RUN(scratch, i).start) / ARCH_PAGE < FILE_RUN_MAPPED;
    int protection = mapping->protection | (copies ? PROT_WRITE : 0);
    TRY(add_op(capture, OP_MAP, mapping->start, mapping->end - mapping->start, source, mapping->offset, protection, flags));
    for (size_t i = 0; i < RUN_COUNT(scratch); i++) {
        struct run piece = RUN(scratch, i);
        uint64_t length = piece.end - piece.start, offset;
        bool common;
        TRY(kin_has(capture, pid, piece.start, piece.end, &offset, &common));
        if (!common) {
            offset = store_reserve(capture, length);
            TRY(store_copy(capture, pid, piece.start, length, offset));
        }
        bool mapped = maps && length / ARCH_PAGE >= FILE_RUN_MAPPED;
        TRY(add_op(capture, mapped ? OP_MAP : OP_COPY, piece.start, length, store, offset, mapping->protection, PRIVATE));
    }
    if (protection != mapping->protection)
        TRY(add_op(capture, OP_PROTECT, mapping->start, mapping->end - mapping->start, 0, 0, mapping->protection, 0));
    return NULL;
}

/* A private mapping of a file that has no name any more: what can be read of it, page by page. */
static struct bunshin_error *map_deleted(struct capture *capture, pid_t pid, const struct mapping *mapping) {
    uint64_t length = mapping->end - mapping->start, offset = store_reserve(capture, length);
    uint8_t page[ARCH_PAGE];
    for (uint64_t at = 0; at < length; at += ARCH_PAGE) {
        struct bunshin_error *error = tracee_read(pid, mapping->start + at, page, sizeof page);
        if (error) {
            bunshin_error_destroy(error); /* beyond the end of the file: it had no content there either */
            break;
        }
        TRY(store_write(capture, page, sizeof page, offset + at));
    }
    return add_op(capture, OP_MAP, mapping->start, length, capture->store_count - 1, offset, mapping->protection, PRIVATE);
}

static bool is_memory_object(const struct capture *capture, const struct mapping *mapping) {
    return mapping->device == capture->memory_device || tmpfs_has(capture, mapping->device);
}

/* What the program had said of a mapping. */
static struct bunshin_error *advise(struct capture *capture, const struct mapping *mapping) {
    static const struct {
        unsigned flag;
        int advice;
    } advices[] = {{MAPPING_NOT_FOR_CHILDREN, MADV_DONTFORK}, {MAPPING_WIPED_IN_CHILDREN, MADV_WIPEONFORK},
                   {MAPPING_NOT_DUMPED, MADV_DONTDUMP},       {MAPPING_HUGE, MADV_HUGEPAGE},
                   {MAPPING_NOT_HUGE, MADV_NOHUGEPAGE},       {MAPPING_MERGEABLE, MADV_MERGEABLE}};
    uint64_t length = mapping->end - mapping->start;
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
        if (mapping->flags & advices[i].flag)
            TRY(add_op(capture, OP_ADVISE, mapping->start, length, 0, 0, 0, advices[i].advice));
    if (mapping->flags & MAPPING_SEALED)
        TRY(add_op(capture, OP_SEAL, mapping->start, length, 0, 0, 0, 0));
    if (mapping->flags & MAPPING_LOCKED)
        TRY(add_op(capture, OP_LOCK, mapping->start, length, 0, 0, 0, mapping->flags & MAPPING_LOCKED_ON_FAULT ? MLOCK_ONFAULT : 0));
    return NULL;
}

/* Pages that are to fault. They were among what was mapped; what lies around them is there by now. */
static struct bunshin_error *guard(struct capture *capture, const struct mapping *mapping) {
    for (size_t i = 0; i < RUN_COUNT(capture->guards); i++) {
        uint64_t start = RUN(capture->guards, i).start, end = RUN(capture->guards, i).end;
        start = start > mapping->start ? start : mapping->start;
        end = end < mapping->end ? end : mapping->end;
        if (start < end)
            TRY(add_op(capture, OP_GUARD, start, end - start, 0, 0, 0, 0));
    }
    return NULL;
}

/* An address range that is free in the process, for the restorer. */
static struct bunshin_error *find_hole(const struct mappings *mappings, uint64_t size, struct image_process *process) {
    /* Away from where an executable at a fixed address, its heap, and libraries and stacks usually are. */
    uint64_t at = 0x200000000ull;
    for (size_t i = 0; i < mappings->count; i++) {
        if (mappings->list[i].end <= at)
            continue;
        if (mappings->list[i].start >= at + size + (1 << 20))
            break;
        at = ((mappings->list[i].end + 0xfffff) & ~0xfffffull) + (1 << 20);
    }
    if (at + size >= 0x7e0000000000ull)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, ENOMEM, "cannot find %llu free bytes of address space", (unsigned long long)size);
    process->hole = at;
    process->hole_size = size;
    return NULL;
}

/* ---- the order ---- */

static struct bunshin_error *map_one(struct capture *capture, struct frozen_process *frozen, const struct mappings *mappings,
                                     const struct mapping *mapping, struct parasite *parasite, const struct runs *runs, size_t *cursor, struct runs *scratch) {
    if (mapping->flags & MAPPING_HUGE_PAGES)
        return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "memory in huge pages (MAP_HUGETLB)");
    if (!strncmp(mapping->path, "/secretmem", 10))
        return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "secret memory (memfd_secret)");
    if (mapping->key && mapping->protection != PROT_EXEC) /* the kernel gives one to what may only be run */
        return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "memory under a protection key");
    switch (mapping->kind) {
    case 'a':
        if (named_text(mapping) && named_is_small(capture, mappings, mapping, runs, *cursor))
            return map_copied(capture, frozen->alive, mapping, runs, cursor, scratch);
        /* Arguments and environment that have moved: /proc shows them only where no file lies below. */
        if ((mapping->start < frozen->stat.arg_end && frozen->stat.arg_start < mapping->end) ||
            (mapping->start < frozen->stat.env_end && frozen->stat.env_start < mapping->end))
            return map_copied(capture, frozen->alive, mapping, runs, cursor, scratch);
        return map_anonymous(capture, frozen->alive, mapping, runs, cursor, scratch);
    case 's':
    case 'w':
        return map_copied(capture, frozen->alive, mapping, runs, cursor, scratch);
    case 'p':
        if (named_text(mapping) && named_is_small(capture, mappings, mapping, runs, *cursor))
            return map_whole(capture, frozen->alive, mapping);
        return map_store(capture, frozen->alive, mapping, runs, cursor, scratch);
    case 'f':
        break;
    case 'v':
        return NULL;
    default:
        if (!strncmp(mapping->path, "[vvar", 5) || !strcmp(mapping->path, "[vsyscall]"))
            return NULL;
        return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "a mapping of %.100s", mapping->path);
    }
    int32_t description;
    if (sysv_is_segment(capture, mapping))
        return sysv_capture_mapping(capture, frozen, mappings, mapping);
    if (is_memory_object(capture, mapping)) {
        TRY(shared_capture_mapping(capture, frozen, mapping, parasite, &description));
        if (description == IMAGE_NONE)
            return map_deleted(capture, frozen->alive, mapping);
    } else if (*mapping->path != '/')
        return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "a mapping of %.100s", mapping->path);
    else if (mapping->deleted) {
        if (!mapping->shared)
            return map_deleted(capture, frozen->alive, mapping);
        TRY(ghost_capture_mapping(capture, frozen, mapping, &description));
        if (description == IMAGE_NONE)
            TRY(shared_capture_mapping(capture, frozen, mapping, parasite, &description));
    } else if (!strncmp(mapping->path, "/dev/", 5) && strcmp(mapping->path, "/dev/zero"))
        return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "a mapping of the device %.100s", mapping->path);
    else
        TRY(capture_path(capture, frozen, mapping->path,
                         mapping->shared ? MAPPED_SHARED | (mapping->flags & MAPPING_MAY_WRITE ? O_RDWR : O_RDONLY) : O_RDONLY, &description));
    return map_file(capture, frozen->alive, mapping, SOURCE_FILE + description, runs, cursor, scratch);
}

struct bunshin_error *capture_memory(struct capture *capture, struct frozen_process *frozen, const struct mappings *mappings,
                                     struct parasite *parasite, struct image_process *process) {
    struct runs runs = {0}, scratch = {0}, guards = {0};
    process->first_op = CAPTURE_COUNT(capture, TABLE_OP, struct image_op);
    struct bunshin_error *error = scan_pages(capture, frozen->alive, mappings, &runs, &guards);
    capture->guards = &guards;
    capture->named_end = 0;
    kin_choose(capture, frozen);
    size_t cursor = 0, stored = 0;
    for (size_t i = 0; i < mappings->count; i++)
        stored += mappings->list[i].kind == 'p';
    capture->flatten = stored > STORE_MAPPINGS_MOST;
    for (size_t i = 0; !error && i < mappings->count; i++) {
        const struct mapping *mapping = &mappings->list[i];
        if (mapping->start >= parasite->area && mapping->end <= parasite->area + parasite->size)
            continue; /* ours, for the moment */
        size_t taken = (size_t)(CAPTURE_COUNT(capture, TABLE_OP, struct image_op) - process->first_op) + (mappings->count - i);
        capture->pieces_most = taken >= MAPPINGS_MOST ? 0 : (MAPPINGS_MOST - taken) / 2 < PIECES_MOST ? (MAPPINGS_MOST - taken) / 2 : PIECES_MOST;
        int32_t first_op = CAPTURE_COUNT(capture, TABLE_OP, struct image_op);
        error = map_one(capture, frozen, mappings, mapping, parasite, &runs, &cursor, &scratch);
        if (!error && guards.buffer.size)
            error = guard(capture, mapping);
        if (!error && named_text(mapping))
            error = named_capture(capture, mapping, first_op);
        if (!error && mapping->flags && mapping->kind != 'v' && mapping->kind != 'x')
            error = advise(capture, mapping);
    }
    buffer_deinit(&runs.buffer);
    buffer_deinit(&scratch.buffer);
    buffer_deinit(&guards.buffer);
    capture->guards = NULL;
    if (error)
        return error;
    process->op_count = CAPTURE_COUNT(capture, TABLE_OP, struct image_op) - process->first_op;
    /* Room for the code, the control page, every thread's record and stack; the image itself is mapped there too, and
     * its size is known only at the end: seal.c adds it. */
    uint64_t room = ((blob_restorer_size() + ARCH_PAGE - 1) & ~(ARCH_PAGE - 1)) + 16 * ARCH_PAGE +
                    (uint64_t)frozen->thread_count * (RESTORER_STACK + sizeof(struct restorer_thread)) + (256ull << 20);
    return find_hole(mappings, (room + ARCH_PAGE - 1) & ~(ARCH_PAGE - 1), process);
}
