/*
 * Clocks of a fork. Wall-clock time goes on. A fork that follows its seal closely shares the clocks of everybody; one that
 * comes later gets a time namespace in which CLOCK_MONOTONIC and CLOCK_BOOTTIME go on from the seal: so whatever waits for a
 * point in time still waits as long as it had to, and nothing that is periodic fires for the time that a snapshot rested.
 * pid 1 itself stays outside: its own deadlines, and those of its owner, are in everybody's time.
 */
#ifndef BUNSHIN_FORK_CLOCK_H
#define BUNSHIN_FORK_CLOCK_H

#include "fork/rebuild.h"

/* CLOCK_BOOTTIME, ns. */
int64_t clock_boottime(void);
/* Before anything of the tree is there. */
struct bunshin_error *clock_rebuild(struct rebuild *rebuild, struct buffer *report) MUST_CHECK;

#endif
