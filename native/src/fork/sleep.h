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
/* Makes a call that answered EINTR to our stop start again, with what was left of its time. */
void sleep_mend_interrupted(struct tracee *tracee);
/* Sets the time that such a call, to be made again, may take. False where it is none, or cannot be set. */
bool sleep_shorten(pid_t pid, arch_registers *registers, enum sleep_kind kind, int64_t left);
/*
 * Finds out how a stopped thread's sleep goes on, and remembers it: once a sleep was interrupted and goes on, the kernel
 * shows it as restart_syscall, and what it was is known to nobody else. Fills
 * tracee->sleep and ->sleep_left; the tracee's registers stay, since for itself the restart is right.
 */
void sleep_note(struct tracee *tracee);
/* The number of the call a thread is in, also where the kernel shows only a restart of it. */
long sleep_number(const struct tracee *tracee);
/* In a fork: a sleep that was carried over, and when it ends (CLOCK_MONOTONIC ns). */
void sleep_remember(const struct image_thread *thread, int64_t deadline);

#endif
