/* Stopping a whole workspace at one instant, and letting it go. Everything but pid 1 itself. */
#ifndef BUNSHIN_FORK_FREEZE_H
#define BUNSHIN_FORK_FREEZE_H

#include "common/procfs.h"
#include "fork/tracee.h"

struct frozen_process {
    pid_t pid;
    pid_t alive; /* a thread of it that runs: what /proc shows below a main thread that has ended is empty */
    struct process_stat stat;
    bool zombie;
    int pidfd;
    size_t first_thread, thread_count; /* in threads, leader first; 0 for a zombie */
};

struct frozen {
    struct frozen_process *processes; /* parents need not come before children */
    size_t process_count;
    struct tracee *threads;
    size_t thread_count;
};

/*
 * Seizes and stops every thread of every process, again until none appears that was not known. On an error everything
 * is let go. deadline: CLOCK_MONOTONIC ns.
 */
struct bunshin_error *freeze(int proc, int64_t deadline, struct frozen **ret) MUST_CHECK;
void freeze_release(struct frozen *frozen);
struct frozen_process *freeze_find(struct frozen *frozen, pid_t pid);

#endif
