/*
 * Names for what is known by inode alone: what an inotify watch lies on, an open file whose name was deleted but which has
 * another. All are looked for at once: among what processes hold open, then in the mounts of their device, nearest first. A name
 * is only taken where the kernel gives the same handle for it.
 */
#ifndef BUNSHIN_FORK_LOCATE_H
#define BUNSHIN_FORK_LOCATE_H

#include "fork/capture.h"

#define LOCATE_HANDLE 128

struct located {
    uint64_t inode;
    uint32_t device; /* of its file system, as the kernel writes it: major << 20 | minor */
    int32_t mount;   /* else the id of a mount of that file system; 0 for none */
    int32_t type;    /* of the handle; -1 for none */
    uint32_t size;
    uint8_t handle[LOCATE_HANDLE];
    bool by_name; /* what is held open does not count */
    uint32_t events;
    int32_t watcher, watch; /* an inotify instance (a copy of ours) that watches it, and its number there; 0 for none */
    bool found;
    int32_t description; /* of somebody who has it open, or IMAGE_NONE: then */
    struct span path;
    int32_t next[2]; /* in the chains of the indices: by handle, by inode */
};

/* Asks for something to be looked for; the number it gets is the same for the same thing. */
struct bunshin_error *locate_want(struct capture *capture, const struct located *wanted, size_t *ret) MUST_CHECK;
/* The same for what a descriptor of ours shows, by name alone. */
struct bunshin_error *locate_want_name(struct capture *capture, int fd, size_t *ret) MUST_CHECK;
/* Once everything is asked for. */
struct bunshin_error *locate_all(struct capture *capture) MUST_CHECK;
const struct located *locate_at(const struct capture *capture, size_t number);
void locate_forget(struct capture *capture);
/* In a fork: a name that will be looked for again by the next seal, which tries it first. */
void locate_hint(const char *path);

#endif
