#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "init/init.h"

void output_deinit(struct output *output) {
    free(output->head);
    free(output->tail);
    output->head = output->tail = NULL;
    output->head_size = output->tail_size = output->tail_start = 0;
}

struct bunshin_error *output_write(struct output *output, const void *data, size_t size) {
    const uint8_t *bytes = data;
    size_t half = output->limit / 2;
    output->total += size;
    if (output->head_size < half && size) {
        size_t part = half - output->head_size < size ? half - output->head_size : size;
        uint8_t *head = realloc(output->head, output->head_size + part);
        if (!head)
            return bunshin_error_no_memory();
        output->head = head;
        memcpy(head + output->head_size, bytes, part);
        output->head_size += part;
        bytes += part;
        size -= part;
    }
    if (!size || !half)
        return NULL;
    if (!output->tail && !(output->tail = malloc(half)))
        return bunshin_error_no_memory();
    if (size > half) {
        bytes += size - half;
        size = half;
    }
    for (size_t done = 0; done < size;) {
        size_t at = (output->tail_start + output->tail_size) % half;
        size_t part = half - at < size - done ? half - at : size - done;
        memcpy(output->tail + at, bytes + done, part);
        done += part;
        output->tail_size += part;
        if (output->tail_size > half) {
            output->tail_start = (output->tail_start + output->tail_size - half) % half;
            output->tail_size = half;
        }
    }
    return NULL;
}

/* A cut leaves no part of a UTF-8 character on either side of it. */
static void trim_cut(struct output *output, size_t half) {
    for (size_t back = 1; back <= 3 && back <= output->head_size; back++) {
        uint8_t byte = output->head[output->head_size - back];
        if ((byte & 0xc0) == 0x80)
            continue;
        size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        if (length > back)
            output->head_size -= back;
        break;
    }
    for (int i = 0; i < 3 && output->tail_size && (output->tail[output->tail_start] & 0xc0) == 0x80; i++) {
        output->tail_start = (output->tail_start + 1) % half;
        output->tail_size--;
    }
}

struct bunshin_error *output_take(struct output *output, struct buffer *ret) {
    size_t half = output->limit / 2;
    if (output->total > output->head_size + output->tail_size)
        trim_cut(output, half);
    struct bunshin_error *error = buffer_append(ret, output->head, output->head_size);
    uint64_t kept = output->head_size + output->tail_size;
    if (!error && output->total > kept)
        error = buffer_printf(ret, "\n[... %llu bytes left out ...]\n", (unsigned long long)(output->total - kept));
    if (!error && output->tail_size) {
        size_t first = half - output->tail_start < output->tail_size ? half - output->tail_start : output->tail_size;
        error = buffer_append(ret, output->tail + output->tail_start, first);
        if (!error)
            error = buffer_append(ret, output->tail, output->tail_size - first);
    }
    output_deinit(output);
    output->total = 0;
    return error;
}
