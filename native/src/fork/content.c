#define _GNU_SOURCE
#include "fork/content.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PART (256u << 10)

struct known {
    enum content_kind kind;
    uint64_t id;
    struct image_run *runs; /* in order */
    size_t count;
};

static struct known *known_list; /* pid 1 is single-threaded */
static size_t known_count;

const struct known *content_known(enum content_kind kind, uint64_t id) {
    for (size_t i = known_count; i-- > 0;)
        if (known_list[i].kind == kind && known_list[i].id == id)
            return &known_list[i];
    return NULL;
}

/* ---- capture ---- */

static bool is_zero(const uint8_t *page, uint64_t size) {
    for (uint64_t i = 0; i < size; i++)
        if (page[i])
            return false;
        else if (i == 15)
            return memcmp(page, page + 16, size - 16) == 0;
    return true;
}

static const uint8_t *view_of(struct store *store) {
    if (!store->view) {
        struct stat info;
        if (fstat(store->fd, &info) != 0 || !info.st_size)
            return NULL;
        void *view = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED | MAP_NORESERVE, store->fd, 0);
        if (view == MAP_FAILED)
            return NULL;
        store->view = view;
        store->view_size = (uint64_t)info.st_size;
    }
    return store->view;
}

/* Where an older store has exactly these bytes of the object. */
static bool find_stored(struct capture *capture, const struct known *known, size_t *cursor, uint64_t offset, const uint8_t *data, uint64_t size,
                        struct image_run *ret) {
    while (*cursor < known->count && known->runs[*cursor].offset + known->runs[*cursor].length <= offset)
        (*cursor)++;
    if (*cursor == known->count || known->runs[*cursor].offset > offset)
        return false;
    const struct image_run *run = &known->runs[*cursor];
    if (run->offset + run->length < offset + size || run->store >= capture->store_count - 1 || capture->stores[run->store].retired)
        return false;
    struct store *store = &capture->stores[run->store];
    const uint8_t *view = view_of(store);
    uint64_t at = run->store_offset + (offset - run->offset);
    if (!view || at + size > store->view_size || memcmp(view + at, data, size) != 0)
        return false;
    store->used = true;
    *ret = (struct image_run){.offset = offset, .length = size, .store_offset = at, .store = run->store};
    return true;
}

static struct bunshin_error *add_run(struct buffer *runs, const struct image_run *run) {
    size_t count = runs->size / sizeof *run;
    struct image_run *last = count ? (struct image_run *)(void *)runs->data + count - 1 : NULL;
    if (last && last->store == run->store && last->offset + last->length == run->offset &&
        last->store_offset + last->length == run->store_offset) {
        last->length += run->length;
        return NULL;
    }
    return buffer_append(runs, run, sizeof *run);
}

static struct bunshin_error *store_anew(struct capture *capture, uint64_t offset, const uint8_t *data, uint64_t size, struct buffer *runs) {
    if (!size)
        return NULL;
    struct image_run run = {.offset = offset, .length = size, .store_offset = store_reserve(capture, size), .store = capture->store_count - 1};
    TRY(store_write(capture, data, size, run.store_offset));
    return add_run(runs, &run);
}

struct bunshin_error *content_take(struct capture *capture, const struct known *known, uint64_t offset, const uint8_t *data, uint64_t size,
                                   struct buffer *runs) {
    uint64_t fresh = 0; /* from here to the page at hand is new */
    size_t cursor = 0;
    if (known)
        for (size_t step = known->count; step; step /= 2) /* the first run that may reach this far */
            while (cursor + step <= known->count && known->runs[cursor + step - 1].offset + known->runs[cursor + step - 1].length <= offset)
                cursor += step;
    for (uint64_t at = 0; at < size; at += ARCH_PAGE) {
        uint64_t length = size - at < ARCH_PAGE ? size - at : ARCH_PAGE;
        struct image_run old;
        bool stored = known && find_stored(capture, known, &cursor, offset + at, data + at, length, &old);
        if (!stored && !is_zero(data + at, length))
            continue;
        TRY(store_anew(capture, offset + fresh, data + fresh, at - fresh, runs));
        fresh = at + length;
        if (stored) {
            capture->bytes_shared += length;
            TRY(add_run(runs, &old));
        }
    }
    return fresh < size ? store_anew(capture, offset + fresh, data + fresh, size - fresh, runs) : NULL;
}

struct bunshin_error *content_take_file(struct capture *capture, const struct known *known, int fd, uint64_t size, struct buffer *runs) {
    uint8_t *part = malloc(PART);
    struct bunshin_error *error = part ? NULL : bunshin_error_no_memory();
    for (off_t at = 0; !error && (uint64_t)at < size;) {
        off_t begin = lseek(fd, at, SEEK_DATA);
        if (begin < 0)
            break;
        off_t end = lseek(fd, begin, SEEK_HOLE);
        for (off_t done = begin; !error && done < end;) {
            size_t want = (size_t)(end - done) < PART ? (size_t)(end - done) : PART;
            ssize_t got = pread(fd, part, want, done);
            if (got <= 0)
                error = bunshin_error_os("cannot read shared memory");
            else
                error = content_take(capture, known, (uint64_t)done, part, (uint64_t)got, runs);
            done += got;
        }
        at = end;
    }
    free(part);
    return error;
}

struct bunshin_error *content_add(struct capture *capture, const struct buffer *runs, int32_t *ret_first, int32_t *ret_count) {
    *ret_first = CAPTURE_COUNT(capture, TABLE_RUN, struct image_run);
    *ret_count = (int32_t)(runs->size / sizeof(struct image_run));
    return buffer_append(&capture->table[TABLE_RUN], runs->data, runs->size);
}

/* ---- rebuild ---- */

static int by_offset(const void *one, const void *other) {
    const struct image_run *a = one, *b = other;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static struct bunshin_error *remember(struct rebuild *rebuild, int32_t first, int32_t count, enum content_kind kind, uint64_t id) {
    if (!count)
        return NULL;
    struct known *grown = realloc(known_list, (known_count + 1) * sizeof *grown);
    if (!grown)
        return bunshin_error_no_memory();
    known_list = grown;
    struct known entry = {kind, id, malloc((size_t)count * sizeof(struct image_run)), (size_t)count};
    if (!entry.runs)
        return bunshin_error_no_memory();
    memcpy(entry.runs, IMAGE_RUN(rebuild->image, first), (size_t)count * sizeof *entry.runs);
    qsort(entry.runs, entry.count, sizeof *entry.runs, by_offset);
    known_list[known_count++] = entry;
    return NULL;
}

struct bunshin_error *content_fill_file(struct rebuild *rebuild, int32_t first, int32_t count, int fd, enum content_kind kind, uint64_t id) {
    static uint8_t part[128 << 10];
    for (int32_t i = 0; i < count; i++) {
        const struct image_run *run = IMAGE_RUN(rebuild->image, first + i);
        int store = rebuild->store_base + run->store;
        /* From a mapping, the kernel copies once; for small pieces mapping costs more than it saves. */
        uint64_t aligned = run->store_offset & ~(ARCH_PAGE - 1), lead = run->store_offset - aligned;
        uint8_t *view = run->length > sizeof part
                            ? mmap(NULL, run->length + lead, PROT_READ, MAP_SHARED | MAP_POPULATE, store, (off_t)aligned)
                            : MAP_FAILED;
        bool ok = true;
        for (uint64_t done = 0; ok && done < run->length;) {
            ssize_t put;
            if (view != MAP_FAILED)
                put = pwrite(fd, view + lead + done, run->length - done, (off_t)(run->offset + done));
            else {
                uint64_t want = run->length - done < sizeof part ? run->length - done : sizeof part;
                ssize_t got = pread(store, part, want, (off_t)(run->store_offset + done));
                put = got > 0 ? pwrite(fd, part, (size_t)got, (off_t)(run->offset + done)) : -1;
            }
            ok = put > 0;
            done += (uint64_t)(ok ? put : 0);
        }
        struct bunshin_error *error = ok ? NULL : bunshin_error_os("cannot fill shared memory");
        if (view != MAP_FAILED)
            munmap(view, run->length + lead);
        TRY(error);
    }
    return remember(rebuild, first, count, kind, id);
}

struct bunshin_error *content_fill_memory(struct rebuild *rebuild, int32_t first, int32_t count, uint8_t *memory, enum content_kind kind,
                                          uint64_t id) {
    for (int32_t i = 0; i < count; i++) {
        const struct image_run *run = IMAGE_RUN(rebuild->image, first + i);
        int store = rebuild->store_base + run->store;
        for (uint64_t done = 0; done < run->length;) {
            uint64_t want = run->length - done < PART ? run->length - done : PART;
            uint8_t *target = memory + run->offset + done;
            if (want > ARCH_PAGE) /* fewer faults; what a kernel before 5.14 does not know is no loss */
                (void)madvise((void *)((uintptr_t)target & ~(ARCH_PAGE - 1)), want, MADV_POPULATE_WRITE);
            ssize_t got = pread(store, target, want, (off_t)(run->store_offset + done));
            if (got <= 0)
                return bunshin_error_os("cannot fill shared memory");
            done += (uint64_t)got;
        }
    }
    return remember(rebuild, first, count, kind, id);
}
