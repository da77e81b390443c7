#include "digest/hash.h"

#include <stdio.h>
#include <string.h>

static const uint64_t start[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                  0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

static const uint8_t order[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static inline uint64_t turn(uint64_t x, int by) { return x >> by | x << (64 - by); }

#define MIX(a, b, c, d, x, y)                                                                                          \
    do {                                                                                                               \
        v[a] += v[b] + (x);                                                                                            \
        v[d] = turn(v[d] ^ v[a], 32);                                                                                  \
        v[c] += v[d];                                                                                                  \
        v[b] = turn(v[b] ^ v[c], 24);                                                                                  \
        v[a] += v[b] + (y);                                                                                            \
        v[d] = turn(v[d] ^ v[a], 16);                                                                                  \
        v[c] += v[d];                                                                                                  \
        v[b] = turn(v[b] ^ v[c], 63);                                                                                  \
    } while (0)

static void compress(struct hash_state *state, const uint8_t *block, bool last) {
    uint64_t m[16], v[16];
    memcpy(m, block, sizeof m); /* x86-64 has the order of bytes that the hash is defined with */
    memcpy(v, state->h, sizeof state->h);
    memcpy(v + 8, start, sizeof start);
    v[12] ^= state->count;
    if (last)
        v[14] = ~v[14];
    for (int round = 0; round < 12; round++) {
        const uint8_t *s = order[round];
        MIX(0, 4, 8, 12, m[s[0]], m[s[1]]);
        MIX(1, 5, 9, 13, m[s[2]], m[s[3]]);
        MIX(2, 6, 10, 14, m[s[4]], m[s[5]]);
        MIX(3, 7, 11, 15, m[s[6]], m[s[7]]);
        MIX(0, 5, 10, 15, m[s[8]], m[s[9]]);
        MIX(1, 6, 11, 12, m[s[10]], m[s[11]]);
        MIX(2, 7, 8, 13, m[s[12]], m[s[13]]);
        MIX(3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++)
        state->h[i] ^= v[i] ^ v[i + 8];
}

void hash_init(struct hash_state *state) {
    memcpy(state->h, start, sizeof start);
    state->h[0] ^= 0x01010000 ^ HASH_SIZE; /* no key, no tree */
    state->count = 0;
    state->used = 0;
}

void hash_update(struct hash_state *state, const void *data, size_t size) {
    const uint8_t *from = data;
    while (size) {
        if (state->used == sizeof state->block) { /* the last block is known only at the end */
            state->count += sizeof state->block;
            compress(state, state->block, false);
            state->used = 0;
        }
        while (state->used == 0 && size > sizeof state->block) {
            state->count += sizeof state->block;
            compress(state, from, false);
            from += sizeof state->block;
            size -= sizeof state->block;
        }
        size_t part = sizeof state->block - state->used;
        part = part < size ? part : size;
        memcpy(state->block + state->used, from, part);
        state->used += part;
        from += part;
        size -= part;
    }
}

struct hash hash_end(struct hash_state *state) {
    struct hash result;
    state->count += state->used;
    memset(state->block + state->used, 0, sizeof state->block - state->used);
    compress(state, state->block, true);
    memcpy(result.bytes, state->h, HASH_SIZE);
    return result;
}

void hash_number(struct hash_state *state, uint64_t number) { hash_update(state, &number, sizeof number); }

void hash_text(struct hash_state *state, const void *data, size_t size) {
    hash_number(state, size);
    hash_update(state, data, size);
}

bool hash_equal(const struct hash *a, const struct hash *b) { return memcmp(a, b, sizeof *a) == 0; }

void hash_format(const void *hash, char ret[2 * HASH_SIZE + 1]) {
    for (int i = 0; i < HASH_SIZE; i++)
        snprintf(ret + 2 * i, 3, "%02x", ((const uint8_t *)hash)[i]);
}

bool hash_parse(const char *text, void *ret) {
    if (strlen(text) != 2 * HASH_SIZE)
        return false;
    for (int i = 0; i < HASH_SIZE; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return false;
        ((uint8_t *)ret)[i] = (uint8_t)byte;
    }
    return true;
}

/* ---- sums ---- */

void sum_add(struct sum *sum, const struct hash *hash) {
    uint64_t lane[4];
    memcpy(lane, hash->bytes, sizeof lane);
    for (int i = 0; i < 4; i++)
        sum->lane[i] += lane[i];
}

void sum_subtract(struct sum *sum, const struct hash *hash) {
    uint64_t lane[4];
    memcpy(lane, hash->bytes, sizeof lane);
    for (int i = 0; i < 4; i++)
        sum->lane[i] -= lane[i];
}

void sum_join(struct sum *sum, const struct sum *other) {
    for (int i = 0; i < 4; i++)
        sum->lane[i] += other->lane[i];
}
