/*
 * One entry of a file system: what of it a later call can see. `body` is what lies in it (content, target of a link, device,
 * attributes), normalised where a file holds times of other files (normal.c).
 */
#ifndef BUNSHIN_DIGEST_ENTRY_H
#define BUNSHIN_DIGEST_ENTRY_H

#include <sys/stat.h>

#include "common/error.h"
#include "digest/hash.h"

#define ENTRY_PATH 4300
#define ENTRY_LARGE (64u << 20) /* beyond it a file counts by what the kernel says of it, not by its content */

struct body {
    struct hash hash;
    bool compiled; /* Python's bytecode, which names the time and size of its source: */
    uint32_t source_time, source_size;
    bool large; /* content was not looked at */
};

/* `path` is relative to `directory` (a descriptor, maybe O_PATH) and holds no links but for its last part. */
struct bunshin_error *entry_body(int directory, const char *path, const struct stat *info, struct body *ret) MUST_CHECK;
/* Whether a directory hides what lies below it in other layers. */
bool entry_is_opaque(int directory, const char *path);
static inline bool entry_is_whiteout(const struct stat *info) { return S_ISCHR(info->st_mode) && info->st_rdev == 0; }

/* normal.c */
/* Bytecode in __pycache__ without the time and size of its source. False: it is not such a file, or names no time. */
bool normal_compiled(const char *path, const uint8_t *data, size_t size, struct body *ret);
/* git's index without what it remembers of each file's inode: adds the rest to `state`. False: it is none that we know. */
bool normal_index(const char *path, const uint8_t *data, size_t size, struct hash_state *state);
bool normal_is_candidate(const char *path);

#endif
