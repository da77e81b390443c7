/*
 * What is known of entries of layers, so that a digest reads only what changed since the last one. An entry is known by its
 * inode, size and times; but not if it changed so shortly before it was read that it could have changed once more within
 * one tick of the kernel's clock, and not on a tmpfs, where a write through a mapping changes no time.
 */
#ifndef BUNSHIN_DIGEST_KNOWN_H
#define BUNSHIN_DIGEST_KNOWN_H

#include "digest/digest.h"
#include "digest/entry.h"

/* Forgets what was read of files of layers that can change. */
void known_forget(void);
/* As entry_body(), of a layer's entry. */
struct bunshin_error *known_body(const struct tree *tree, int layer, const char *path, const struct stat *info,
                                 struct body *ret) MUST_CHECK;
/* What an entry of a layer adds to its sum; false where it has to be found out. */
bool known_share(const struct tree *tree, int layer, const char *path, const struct stat *info, struct pair *ret);
/* began: before it was looked at (known_now()). */
struct bunshin_error *known_keep_share(const struct tree *tree, int layer, const char *path, const struct stat *info, int64_t began,
                                       const struct pair *share) MUST_CHECK;
int64_t known_now(void); /* CLOCK_REALTIME ns */

#endif
