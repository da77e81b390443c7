/*
 * System calls that a freeze interrupts. Most are made again by the kernel as if nothing had happened. Two kinds need
 * help: those that return EINTR for any stop, and those that sleep for a relative time, which must go on with the rest of
 * it and not with the whole. The kernel tells the rest only where the caller asked for it; else it is the time asked for
 * less the time since the thread was last seen running (/proc/PID/sched).
 */
#ifndef BUNSHIN_FORK_SLEEP_H
#define BUNSHIN_FORK_SLEEP_H

#include "fork/tracee.h"

/* When a thread that sleeps for a relative time went to sleep (CLOCK_MONOTONIC ns); 0 for others. Before it is stopped. */
int64_t sleep_began(int proc, pid_t pid, pid_t tid);
/* Makes a call that answered EINTR to our stop start again. */
void sleep_mend_interrupted(struct tracee *tracee);
/* How a stopped thread's call goes on in a fork. *ret_left: ns. */
enum sleep_kind sleep_left(struct tracee *tracee, int64_t *ret_left);

/* In a fork: remembers when a sleep that was carried over ends, for the seal after this one. */
void sleep_remember(pid_t tid, int64_t deadline);

#endif
