#define _GNU_SOURCE
#include "fork/kin.h"

#include <string.h>
#include <unistd.h>

#define CHUNK (256u << 10)
/* A mapping costs every fork a few microseconds: so many pages must be worth it. */
#define WORTH_PAGES 8
#define RANGES_MOST 64 /* in one mapping */

void kin_choose(struct capture *capture, const struct frozen_process *frozen) {
    capture->kin = capture->kin_end = 0;
    bool parent = false;
    for (int32_t i = CAPTURE_COUNT(capture, TABLE_PROCESS, struct image_process) - 1; i >= 0 && !parent; i--) {
        const struct image_process *other = CAPTURE_AT(capture, TABLE_PROCESS, struct image_process, i);
        parent = other->pid == frozen->stat.ppid;
        /* Relatives have their stacks at the same place; what has called exec since has not. */
        if (!other->op_count || other->layout.start_stack != frozen->stat.start_stack || (!parent && other->parent != frozen->stat.ppid))
            continue;
        if (parent || !capture->kin_end) {
            capture->kin = other->first_op;
            capture->kin_end = other->first_op + other->op_count;
        }
    }
}

/* The relative's first operation from the newest store that ends behind an address; NULL for none. */
static const struct image_op *find_op(struct capture *capture, uint64_t address) {
    for (; capture->kin < capture->kin_end; capture->kin++) {
        const struct image_op *op = CAPTURE_AT(capture, TABLE_OP, struct image_op, capture->kin);
        if ((op->kind == OP_MAP || op->kind == OP_COPY) && op->source == capture->store_count - 1 && op->address + op->length > address)
            return op;
    }
    return NULL;
}

static struct bunshin_error *read_both(struct capture *capture, pid_t pid, uint64_t address, uint64_t offset, uint64_t length) {
    if (!capture->compared.size)
        TRY(buffer_extend(&capture->compared, (size_t)CHUNK * 2, NULL));
    TRY(memory_read(capture, pid, address, capture->compared.data, length));
    ssize_t got = pread(capture->stores[capture->store_count - 1].fd, capture->compared.data + CHUNK, length, (off_t)offset);
    if (got < 0)
        return bunshin_error_os("cannot read the page store");
    memset(capture->compared.data + CHUNK + got, 0, length - (uint64_t)got); /* a hole at its end */
    return NULL;
}

static struct bunshin_error *keep(struct kin_range *range, struct buffer *ret) {
    struct kin_range found = *range;
    *range = (struct kin_range){0};
    if (found.end - found.start < WORTH_PAGES * ARCH_PAGE || KIN_RANGE_COUNT(ret) >= RANGES_MOST)
        return NULL;
    return buffer_append(ret, &found, sizeof found);
}

/* [start, end) lies in the operation. */
static struct bunshin_error *compare(struct capture *capture, pid_t pid, const struct image_op op, uint64_t start, uint64_t end,
                                     struct buffer *ret) {
    struct kin_range range = {0};
    for (uint64_t at = start; at < end; at += CHUNK) {
        uint64_t length = end - at < CHUNK ? end - at : CHUNK;
        uint64_t offset = op.offset + (at - op.address);
        TRY(read_both(capture, pid, at, offset, length));
        for (uint64_t page = 0; page < length; page += ARCH_PAGE) {
            bool equal = !memcmp(capture->compared.data + page, capture->compared.data + CHUNK + page, ARCH_PAGE);
            if (equal && range.end == at + page)
                range.end += ARCH_PAGE;
            else if (equal)
                range = (struct kin_range){at + page, at + page + ARCH_PAGE, offset + page};
            else
                TRY(keep(&range, ret));
        }
    }
    return keep(&range, ret);
}

struct bunshin_error *kin_find(struct capture *capture, pid_t pid, const struct runs *runs, size_t cursor, uint64_t start, uint64_t end,
                               struct buffer *ret) {
    ret->size = 0;
    for (size_t i = cursor; i < RUN_COUNT(runs) && RUN(runs, i).start < end && capture->kin_end; i++) {
        uint64_t from = RUN(runs, i).start > start ? RUN(runs, i).start : start;
        uint64_t to = RUN(runs, i).end < end ? RUN(runs, i).end : end;
        while (from < to) {
            const struct image_op *op = find_op(capture, from);
            if (!op)
                return NULL;
            uint64_t first = op->address > from ? op->address : from, last = op->address + op->length < to ? op->address + op->length : to;
            if (first >= last)
                break;
            if (last - first >= WORTH_PAGES * ARCH_PAGE)
                TRY(compare(capture, pid, *op, first, last, ret));
            from = last;
        }
    }
    return NULL;
}

struct bunshin_error *kin_has(struct capture *capture, pid_t pid, uint64_t start, uint64_t end, uint64_t *ret_offset, bool *ret) {
    *ret = false;
    const struct image_op *op = capture->kin_end && end - start <= CHUNK ? find_op(capture, start) : NULL;
    if (!op || op->address > start || op->address + op->length < end)
        return NULL;
    *ret_offset = op->offset + (start - op->address);
    TRY(read_both(capture, pid, start, *ret_offset, end - start));
    *ret = !memcmp(capture->compared.data, capture->compared.data + CHUNK, end - start);
    return NULL;
}
