/*
 * Pages that a process has in common with a relative: after fork() both have the same ones until one writes. The kernel does
 * not tell which, so they are compared. What is equal is stored once, and is shared in every fork as it was in the source:
 * the workers of a pool, what a zygote forked, subshells.
 */
#ifndef BUNSHIN_FORK_KIN_H
#define BUNSHIN_FORK_KIN_H

#include "fork/capture.h"
#include "fork/scan.h"

struct kin_range { /* of this process: equal to what lies in the newest store at `offset` */
    uint64_t start, end, offset;
};
#define KIN_RANGE(b, i) ((struct kin_range *)(void *)(b)->data)[i]
#define KIN_RANGE_COUNT(b) ((b)->size / sizeof(struct kin_range))

/* Picks the captured process that this one is compared with: its parent, or a sibling. */
void kin_choose(struct capture *capture, const struct frozen_process *frozen);
/* The parts of `runs` in [start, end) that are worth a mapping each. Addresses must come in order, as in a process's map. */
struct bunshin_error *kin_find(struct capture *capture, pid_t pid, const struct runs *runs, size_t cursor, uint64_t start, uint64_t end,
                               struct buffer *ret) MUST_CHECK;
/* Whether a whole range is equal, and where it lies. */
struct bunshin_error *kin_has(struct capture *capture, pid_t pid, uint64_t start, uint64_t end, uint64_t *ret_offset, bool *ret) MUST_CHECK;

#endif
