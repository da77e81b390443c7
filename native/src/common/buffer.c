#define _GNU_SOURCE
#include "common/buffer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void buffer_deinit(struct buffer *buffer) {
    free(buffer->data);
    *buffer = (struct buffer){0};
}

static struct bunshin_error *buffer_reserve(struct buffer *buffer, size_t more) {
    if (buffer->capacity - buffer->size >= more)
        return NULL;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity - buffer->size < more)
        capacity *= 2;
    uint8_t *data = realloc(buffer->data, capacity);
    if (!data)
        return bunshin_error_no_memory();
    buffer->data = data;
    buffer->capacity = capacity;
    return NULL;
}

struct bunshin_error *buffer_extend(struct buffer *buffer, size_t size, size_t *ret_offset) {
    TRY(buffer_reserve(buffer, size));
    memset(buffer->data + buffer->size, 0, size);
    if (ret_offset)
        *ret_offset = buffer->size;
    buffer->size += size;
    return NULL;
}

struct bunshin_error *buffer_append(struct buffer *buffer, const void *data, size_t size) {
    TRY(buffer_reserve(buffer, size));
    if (size)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return NULL;
}

struct bunshin_error *buffer_printf(struct buffer *buffer, const char *format, ...) {
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0)
        return bunshin_error_new(BUNSHIN_ERROR_OS, EINVAL, "cannot format text");
    if ((size_t)length >= sizeof line)
        length = sizeof line - 1;
    return buffer_append(buffer, line, (size_t)length);
}

struct bunshin_error *buffer_read_all(struct buffer *buffer, int fd, const char *name) {
    for (;;) {
        TRY(buffer_reserve(buffer, 4096));
        ssize_t got = read(fd, buffer->data + buffer->size, buffer->capacity - buffer->size - 1);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            return bunshin_error_os("cannot read %s", name);
        }
        if (got == 0)
            break;
        buffer->size += (size_t)got;
    }
    buffer->data[buffer->size] = 0;
    return NULL;
}
