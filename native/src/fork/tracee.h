/*
 * One stopped thread. All ptrace goes through here. A thread may die at any moment: functions whose name ends in
 * _if_alive say so by returning false; others report it as an error.
 */
#ifndef BUNSHIN_FORK_TRACEE_H
#define BUNSHIN_FORK_TRACEE_H

#include "arch/x86_64.h"
#include "common/error.h"
#include "fork/image.h"

enum tracee_state { TRACEE_SEIZED, TRACEE_STOPPED, TRACEE_RUNNING /* code of ours */, TRACEE_GONE };

struct tracee {
    pid_t tid, process;
    enum tracee_state state;
    arch_registers registers; /* as found; release puts them back */
    uint64_t mask;
    bool changed; /* registers or mask differ from what was found */
    int group_stopped; /* the signal that had stopped its process before, or 0 */
    enum sleep_kind sleep; /* sleep.c: how an interrupted sleep goes on in a fork, with how much left */
    int64_t sleep_left;
    uint64_t dispatch[4]; /* system calls that come back to it as signals: switched off while we hold it */
    int64_t asleep_since; /* CLOCK_MONOTONIC ns when it went to sleep, 0 when unknown */
};

bool tracee_seize_if_alive(pid_t tid, pid_t process, struct tracee *ret);
/* Asks it to stop; tracee_wait_stop() waits until it has. */
bool tracee_interrupt_if_alive(struct tracee *tracee);
/* NULL and TRACEE_STOPPED or TRACEE_GONE; an error when the deadline (CLOCK_MONOTONIC ns) passes first. */
struct bunshin_error *tracee_wait_stop(struct tracee *tracee, int64_t deadline) MUST_CHECK;
struct bunshin_error *tracee_read_registers(struct tracee *tracee) MUST_CHECK;
struct bunshin_error *tracee_write_registers(struct tracee *tracee, const arch_registers *registers) MUST_CHECK;
struct bunshin_error *tracee_set_mask(struct tracee *tracee, uint64_t mask) MUST_CHECK;
/* Runs one system call in the thread, at a syscall instruction of its vdso. */
struct bunshin_error *tracee_syscall(struct tracee *tracee, uint64_t vdso, long number, const uint64_t argument[6],
                                     int64_t *ret) MUST_CHECK;
/* The same in two halves, for many threads at once. */
struct bunshin_error *tracee_syscall_begin(struct tracee *tracee, uint64_t vdso, long number, const uint64_t argument[6]) MUST_CHECK;
struct bunshin_error *tracee_syscall_end(struct tracee *tracee, int64_t *ret) MUST_CHECK;
/* Runs code of ours that ends in a trap. */
struct bunshin_error *tracee_run(struct tracee *tracee, uint64_t entry, uint64_t stack, uint64_t argument) MUST_CHECK;
/* Lets a stopped thread run until it has called exec, or has ended; stops it again. *ret: whether it came so far in time. */
struct bunshin_error *tracee_run_to_exec(struct tracee *tracee, int64_t deadline, bool *ret) MUST_CHECK;
/* Lets it run as it was found. Never fails: a thread that died needs nothing. */
void tracee_release(struct tracee *tracee);
/* A thread that nobody waits for has stopped. It goes on, as it was found if tracee_release() did not wait for it. */
void tracee_stopped_late(pid_t tid, int status);
/* Where the vdso has its first syscall instruction, from its start; 0 when there is none. */
uint64_t tracee_vdso_syscall(void);

struct bunshin_error *tracee_read(pid_t pid, uint64_t address, void *ret, size_t size) MUST_CHECK;
/* Also where the process itself may not write. */
struct bunshin_error *tracee_force(pid_t pid, uint64_t address, const void *data, size_t size) MUST_CHECK;
/* Sets dispatch again as it was found. */
void tracee_set_dispatch(pid_t tid, const uint64_t dispatch[4]);
struct bunshin_error *tracee_write(pid_t pid, uint64_t address, const void *data, size_t size) MUST_CHECK;

#endif
