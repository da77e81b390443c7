#include "common/records.h"

#include <string.h>

void records_init(struct records *records, const void *data, size_t size) {
    records->data = data;
    records->size = size;
    records->position = 0;
    records->count = 0;
}

bool records_next(struct records *records) {
    uint32_t count;
    if (records->size - records->position < sizeof count)
        return false;
    memcpy(&count, records->data + records->position, sizeof count);
    records->position += sizeof count;
    if (count > BUNSHIN_RECORD_MAX)
        goto damaged;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *start = records->data + records->position;
        const uint8_t *end = memchr(start, 0, records->size - records->position);
        if (!end)
            goto damaged;
        records->string[i] = (const char *)start;
        records->position += (size_t)(end - start) + 1;
    }
    records->count = count;
    return true;
damaged:
    records->size = records->position = 0;
    return false;
}
