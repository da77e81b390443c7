/* What a capture remembers of the open file descriptions it has seen. */
#ifndef BUNSHIN_FORK_DESCRIBED_H
#define BUNSHIN_FORK_DESCRIBED_H

#include "fork/capture.h"

struct described {
    uint64_t key;
    pid_t pid; /* a holder, for kcmp */
    int fd;    /* its descriptor; -1 for a path that nobody holds open (a mapped file) */
    int copy;  /* ours, -1 for none */
    int32_t description;
    bool in_flight; /* it is on its way in some socket, at least */
    uint64_t inode, device;
};

struct bunshin_error *described_add(struct capture *capture, const struct described *described) MUST_CHECK;
struct described *described_find(struct capture *capture, int32_t description);
void described_close(struct capture *capture);

#endif
