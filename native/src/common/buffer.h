/* Bytes that grow. Offsets into a buffer stay valid when it grows; pointers do not. */
#ifndef BUNSHIN_COMMON_BUFFER_H
#define BUNSHIN_COMMON_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct buffer {
    uint8_t *data;
    size_t size;
    size_t capacity;
};

void buffer_deinit(struct buffer *buffer);
/* Room for `size` more bytes at the end, zeroed; *ret_offset says where. */
struct bunshin_error *buffer_extend(struct buffer *buffer, size_t size, size_t *ret_offset) MUST_CHECK;
struct bunshin_error *buffer_append(struct buffer *buffer, const void *data, size_t size) MUST_CHECK;
struct bunshin_error *buffer_printf(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3))) MUST_CHECK;
/* Reads a descriptor to its end; a NUL follows the last byte (not counted). */
struct bunshin_error *buffer_read_all(struct buffer *buffer, int fd, const char *name) MUST_CHECK;

#endif
