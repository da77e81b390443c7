/* The conductor of a fork, as pid 1 sees it: seal a tree, let it go, rebuild one. */
#ifndef BUNSHIN_FORK_FORK_H
#define BUNSHIN_FORK_FORK_H

#include "init/init.h"

/* The page stores that this workspace was rebuilt from; empty in a fresh one. Set once, by fork_rebuild(). */
extern struct fork_stores {
    int *fd;
    int count;
} fork_stores;

/* Freezes and captures the tree, answers with the image and the page store, and holds the tree frozen. */
void fork_seal(struct init *init, struct wire *request);
/* Lets a sealed tree run on as it was. */
/* What is mounted before any tool runs (mounts.c). */
struct bunshin_error *mounts_remember(struct init *init) MUST_CHECK;
void fork_release(struct init *init);
/* In a new workspace: builds the tree that `image` describes, sharing the pages of `stores`. */
struct bunshin_error *fork_rebuild(struct init *init, int image, const int *stores, int store_count,
                                   struct buffer *ret_report) MUST_CHECK;

/* Whether the processes of an image must descend from a pid 1 that began inside; see init.c. */
bool fork_begins_inside(int image_fd);

#endif
