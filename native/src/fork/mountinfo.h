/* The mounts of a mount namespace, as /proc/PID/mountinfo lists them: in the order in which they have to be made. */
#ifndef BUNSHIN_FORK_MOUNTINFO_H
#define BUNSHIN_FORK_MOUNTINFO_H

#include <stddef.h>
#include <stdint.h>

#include "common/buffer.h"
#include "common/error.h"

struct mount_entry {
    int id, parent;
    uint32_t device;     /* as the kernel writes it: major << 20 | minor */
    const char *root;    /* which part of the file system is seen */
    const char *point;   /* where */
    const char *flags;   /* of the mount: "rw,nosuid" */
    const char *fields;  /* "shared:1", "" for a private mount */
    const char *type, *source, *options; /* of the file system */
};

struct mountinfo {
    struct buffer text;
    struct mount_entry *list;
    size_t count;
};

/* `directory` is the process's in /proc: "self", "14". */
struct bunshin_error *mountinfo_read(int proc, const char *directory, struct mountinfo *ret) MUST_CHECK;
void mountinfo_deinit(struct mountinfo *mounts);
const struct mount_entry *mountinfo_find(const struct mountinfo *mounts, int id);

#endif
