/* The code that runs inside other processes, as bytes (blobs.S). */
#ifndef BUNSHIN_FORK_BLOBS_H
#define BUNSHIN_FORK_BLOBS_H

#include <stddef.h>
#include <stdint.h>

extern const uint8_t bunshin_parasite_start[], bunshin_parasite_end[];
extern const uint8_t bunshin_restorer_start[], bunshin_restorer_end[];

static inline const uint8_t *blob_parasite(void) { return bunshin_parasite_start; }
static inline size_t blob_parasite_size(void) { return (size_t)(bunshin_parasite_end - bunshin_parasite_start); }
static inline const uint8_t *blob_restorer(void) { return bunshin_restorer_start; }
static inline size_t blob_restorer_size(void) { return (size_t)(bunshin_restorer_end - bunshin_restorer_start); }

#endif
