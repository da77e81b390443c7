/* Which pages of a process differ from what is mapped below them, as runs of addresses in order. */
#ifndef BUNSHIN_FORK_SCAN_H
#define BUNSHIN_FORK_SCAN_H

#include "fork/capture.h"

struct run {
    uint64_t start, end;
};

struct runs {
    struct buffer buffer;
};

#define RUN(r, i) ((struct run *)(void *)(r)->buffer.data)[i]
#define RUN_COUNT(r) ((r)->buffer.size / sizeof(struct run))

/* Appends; joins what is adjacent to the last one. */
struct bunshin_error *runs_add(struct runs *runs, uint64_t start, uint64_t end) MUST_CHECK;
/* ret_guards: pages that a touch is to fault on (MADV_GUARD_INSTALL); they have no content. */
struct bunshin_error *scan_pages(struct capture *capture, pid_t pid, const struct mappings *mappings, struct runs *ret,
                                 struct runs *ret_guards) MUST_CHECK;

#endif
