/*
 * Names of memory (PR_SET_VMA_ANON_NAME): "[anon:NAME]" in a memory map, "[anon_shmem:NAME]" where the memory is an object's.
 * Our page stores are such objects, so that memory which a fork has from there can bear its name, in the second form and
 * since Linux 6.2. What is small is copied instead, and stays anonymous to the letter.
 */
#include <string.h>

#include "fork/capture.h"
#include "fork/scan.h"

/* Copying this much costs a fork less than a tenth of a millisecond. */
#define COPIED_MOST (256u << 10)

const char *named_text(const struct mapping *mapping) {
    static const char *const forms[] = {"[anon:", NAMED_OBJECT};
    for (int i = 0; i < 2; i++)
        if (!strncmp(mapping->path, forms[i], strlen(forms[i])))
            return mapping->path + strlen(forms[i]);
    return NULL;
}

/* Mappings side by side under one name were one before a fork that had parts of it from a store. */
bool named_is_small(struct capture *capture, const struct mappings *mappings, const struct mapping *mapping,
                    const struct runs *runs, size_t cursor) {
    const char *name = named_text(mapping);
    if (mapping->start < capture->named_end)
        return capture->named_small;
    uint64_t written = 0, end = mapping->start;
    for (; mapping < mappings->list + mappings->count && mapping->start == end; mapping++) {
        const char *other = named_text(mapping);
        if (!other || strcmp(other, name) || mapping->shared)
            break;
        end = mapping->end;
        if (mapping->kind == 'p')
            written += mapping->end - mapping->start;
        else
            for (; cursor < RUN_COUNT(runs) && RUN(runs, cursor).start < mapping->end; cursor++) {
                uint64_t from = RUN(runs, cursor).start > mapping->start ? RUN(runs, cursor).start : mapping->start;
                uint64_t to = RUN(runs, cursor).end < mapping->end ? RUN(runs, cursor).end : mapping->end;
                written += to > from ? to - from : 0;
                if (RUN(runs, cursor).end > mapping->end)
                    break;
            }
    }
    capture->named_end = end;
    capture->named_small = written <= COPIED_MOST;
    return capture->named_small;
}

struct bunshin_error *named_capture(struct capture *capture, const struct mapping *mapping, int32_t first_op) {
    const char *name = named_text(mapping);
    size_t length = strlen(name) - 1; /* a bracket ends it */
    struct buffer *heap = &capture->table[TABLE_HEAP];
    const char *last = (const char *)heap->data + capture->named.offset;
    if (!capture->named.size || capture->named.size != length + 1 || memcmp(last, name, length) != 0) {
        TRY(capture_heap(capture, name, length + 1, &capture->named));
        heap->data[capture->named.offset + length] = '\0';
    }
    /* A piece at a time: before Linux 6.2 those from a store cannot bear it. */
    for (int32_t i = first_op, end = CAPTURE_COUNT(capture, TABLE_OP, struct image_op); i < end; i++) {
        const struct image_op *op = CAPTURE_AT(capture, TABLE_OP, struct image_op, i);
        struct image_op naming = {.address = op->address, .length = op->length, .offset = capture->named.offset, .kind = OP_NAME};
        if (op->kind == OP_MAP)
            TRY(capture_add(capture, TABLE_OP, &naming, sizeof naming, NULL));
    }
    return NULL;
}
