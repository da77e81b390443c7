/*
 * The hash of state digests: BLAKE2b (RFC 7693) of 32 bytes, the same on every machine, since digests are saved. What has
 * no order (files by path, processes) is a sum of hashes, lane by lane: a change then costs what changed.
 */
#ifndef BUNSHIN_DIGEST_HASH_H
#define BUNSHIN_DIGEST_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HASH_SIZE 32

struct hash {
    uint8_t bytes[HASH_SIZE];
};

struct hash_state {
    uint64_t h[8], count;
    uint8_t block[128];
    size_t used;
};

void hash_init(struct hash_state *state);
void hash_update(struct hash_state *state, const void *data, size_t size);
struct hash hash_end(struct hash_state *state);
/* With the length before it: what follows cannot be taken for a part of it. */
void hash_text(struct hash_state *state, const void *data, size_t size);
void hash_number(struct hash_state *state, uint64_t number);
bool hash_equal(const struct hash *a, const struct hash *b);
/* "ab01…", NUL-terminated; and back, false where it is none. */
void hash_format(const void *hash, char ret[2 * HASH_SIZE + 1]);
bool hash_parse(const char *text, void *ret);

struct sum { /* of hashes, as four numbers modulo 2^64 */
    uint64_t lane[4];
};

void sum_add(struct sum *sum, const struct hash *hash);
void sum_subtract(struct sum *sum, const struct hash *hash);
void sum_join(struct sum *sum, const struct sum *other);

#endif
