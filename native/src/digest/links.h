/* Files with several names in one layer: which names belong together. A copy of a file is not a second name of it. */
#ifndef BUNSHIN_DIGEST_LINKS_H
#define BUNSHIN_DIGEST_LINKS_H

#include "digest/digest.h"

/* A sum over all names that an inode of a layer has there. */
struct bunshin_error *links_group(const struct tree *tree, int layer, uint64_t inode, struct sum *ret) MUST_CHECK;
/* The layer may have changed. */
void links_forget(const struct tree *tree, int layer);

#endif
