/* Small readers of /proc. A process may be gone at any moment: functions say so by their return value, never by luck. */
#ifndef BUNSHIN_COMMON_PROCFS_H
#define BUNSHIN_COMMON_PROCFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/buffer.h"

/* The fields of /proc/PID/stat that we use, by their numbers in proc(5). */
struct process_stat {
    pid_t pid;
    char comm[17];
    char state;
    pid_t ppid, pgrp, session;
    int tty, tty_pgrp;
    uint64_t flags;
    int64_t nice;
    int64_t threads;
    uint64_t ticks; /* of the processor, for itself and in the kernel */
    uint64_t start_time;
    uint64_t start_code, end_code, start_stack;
    uint64_t start_data, end_data, start_brk, arg_start, arg_end, env_start, env_end;
    int exit_signal;
    int exit_code;
    uint32_t rt_priority, policy;
};

/* Reads /proc/`directory`/stat ("14" or "14/task/15"). False when it is gone. */
bool procfs_stat(int proc, const char *directory, struct process_stat *ret);
/* Reads a whole file below /proc; false when it is gone or cannot be read. The buffer is reset first. */
bool procfs_read(int proc, const char *path, struct buffer *ret);
/* Numbers of the entries of a directory below /proc (processes, threads, descriptors); false when it is gone. */
bool procfs_numbers(int proc, const char *path, int **ret, size_t *ret_count);
/* The value after "Name:" in a status-like text, as an unsigned number in `base`; false when there is none. */
bool procfs_field(const char *text, const char *name, int base, uint64_t *ret);

#endif
