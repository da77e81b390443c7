/* Records of strings: how plans and tool calls travel. A record is a uint32 count and that many NUL-terminated strings. */
#ifndef BUNSHIN_COMMON_RECORDS_H
#define BUNSHIN_COMMON_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUNSHIN_RECORD_MAX 4096

struct records {
    const uint8_t *data;
    size_t size;
    size_t position;
    uint32_t count;                          /* strings of the current record */
    const char *string[BUNSHIN_RECORD_MAX]; /* point into data */
};

void records_init(struct records *records, const void *data, size_t size);
/* Steps to the next record. False at the end and for a damaged blob (then records->size is 0). */
bool records_next(struct records *records);

#endif
