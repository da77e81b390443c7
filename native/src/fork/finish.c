/* The end of a rebuild: every parked thread gets its registers, the restorer's range goes away, and all are let go. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork/blob_args.h"
#include "fork/rebuild.h"
#include "fork/sleep.h"
#include "fork/tracee.h"

#define ERESTARTSYS 512
#define ERESTART_RESTARTBLOCK 516
#define FINISH_PATIENCE_NS 10000000000ll

static struct bunshin_error *stop_all(struct rebuild *rebuild, struct tracee *tracees, size_t count) {
    int64_t deadline = init_now() + FINISH_PATIENCE_NS;
    for (size_t i = 0; i < count; i++) {
        const struct image_thread *thread = IMAGE_THREAD(rebuild->image, i);
        pid_t pid = IMAGE_PROCESS(rebuild->image, thread->process)->pid;
        if (!tracee_seize_if_alive(thread->tid, pid, &tracees[i]) || !tracee_interrupt_if_alive(&tracees[i]))
            return bunshin_error_os("cannot finish thread %d", thread->tid);
    }
    for (size_t i = 0; i < count; i++) {
        TRY(tracee_wait_stop(&tracees[i], deadline));
        if (tracees[i].state != TRACEE_STOPPED)
            return bunshin_error_new(BUNSHIN_ERROR_FORK, ESRCH, "thread %d ended before it was finished", tracees[i].tid);
        TRY(tracee_read_registers(&tracees[i]));
    }
    return NULL;
}

/* A sleeper must be stopped inside its sleep: the kernel then knows what is left of it. */
static struct bunshin_error *catch_sleeper(struct tracee *tracee, const struct image_process *process, bool *ret_asleep) {
    for (int tries = 0; tries < 1000; tries++) {
        int64_t result = (int64_t)ARCH_REG_RESULT(tracee->registers), number = (int64_t)ARCH_REG_NUMBER(tracee->registers);
        if (result == -ERESTART_RESTARTBLOCK && number >= 0) {
            *ret_asleep = true;
            return NULL;
        }
        uint64_t word = ARCH_REG_ARG(tracee->registers, 0), wait = ARCH_REG_ARG(tracee->registers, 1) == FUTEX_WAIT;
        if (number == SYS_futex && wait && word >= process->hole && word < process->hole + process->hole_size) {
            /* It waits for us: it has slept enough meanwhile. */
            *ret_asleep = false;
            return NULL;
        }
        if (ptrace(PTRACE_CONT, tracee->tid, 0, 0) != 0)
            return bunshin_error_os("cannot continue thread %d", tracee->tid);
        usleep(50);
        if (!tracee_interrupt_if_alive(tracee))
            return bunshin_error_os("cannot stop thread %d", tracee->tid);
        TRY(tracee_wait_stop(tracee, init_now() + 1000000000));
        TRY(tracee_read_registers(tracee));
    }
    return bunshin_error_new(BUNSHIN_ERROR_FORK, ETIMEDOUT, "thread %d does not go to sleep", tracee->tid);
}

static struct bunshin_error *set_thread(struct rebuild *rebuild, struct tracee *tracee, const struct image_thread *thread) {
    arch_registers registers = thread->registers;
    int64_t result = (int64_t)ARCH_REG_RESULT(registers);
    if ((int64_t)ARCH_REG_NUMBER(registers) >= 0 && result == -ERESTART_RESTARTBLOCK) {
        bool asleep = false;
        if (thread->sleep != SLEEP_NONE)
            TRY(catch_sleeper(tracee, IMAGE_PROCESS(rebuild->image, thread->process), &asleep));
        if (asleep)
            sleep_remember(thread, init_now() + thread->sleep_left - rebuild->missed);
        else if (thread->sleep == SLEEP_NANOSLEEP) {
            ARCH_REG_RESULT(registers) = 0; /* the sleep is over */
            ARCH_REG_NUMBER(registers) = (unsigned long long)-1;
        } else
            ARCH_REG_RESULT(registers) = (unsigned long long)-ERESTARTSYS; /* made again, as it was */
    }
    if (thread->sleep == SLEEP_MILLISECONDS || thread->sleep == SLEEP_TIMESPEC)
        (void)sleep_shorten(tracee->tid, &registers, (enum sleep_kind)thread->sleep, thread->sleep_left - rebuild->missed);
    struct iovec extended = {IMAGE_HEAP(rebuild->image, thread->extended), thread->extended.size};
    if (ptrace(PTRACE_SETREGSET, tracee->tid, NT_X86_XSTATE, &extended) != 0)
        return bunshin_error_os("cannot set the extended registers of thread %d", thread->tid);
    tracee->registers = registers;
    return NULL;
}

/* A main thread that had ended leaves through the restorer's range, which must stay until it has. */
static struct bunshin_error *await_leader(struct rebuild *rebuild, const struct image_process *process) {
    char name[16];
    struct process_stat stat = {0};
    snprintf(name, sizeof name, "%d", process->pid);
    for (int64_t deadline = init_now() + FINISH_PATIENCE_NS; init_now() < deadline; usleep(50))
        if (procfs_stat(rebuild->init->proc, name, &stat) && stat.state == 'Z')
            return NULL;
    return bunshin_error_new(BUNSHIN_ERROR_FORK, ETIMEDOUT, "the main thread of pid %d does not end again", process->pid);
}

/* Nobody runs in the restorer any more: its range goes, by a system call of the process's own vdso. */
static struct bunshin_error *begin_process(struct rebuild *rebuild, const struct image_process *process, struct tracee *tracees) {
    for (int32_t i = 0; i < process->thread_count; i++)
        TRY(set_thread(rebuild, &tracees[process->first_thread + i], IMAGE_THREAD(rebuild->image, process->first_thread + i)));
    if (process->leader_gone)
        TRY(await_leader(rebuild, process));
    uint64_t arguments[6] = {process->hole, process->hole_size};
    return process->vdso ? tracee_syscall_begin(&tracees[process->first_thread], process->vdso_code, SYS_munmap, arguments) : NULL;
}

static struct bunshin_error *end_process(struct rebuild *rebuild, const struct image_process *process, struct tracee *tracees) {
    int64_t result = 0;
    if (process->vdso)
        TRY(tracee_syscall_end(&tracees[process->first_thread], &result));
    if (result)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, (int)-result, "cannot clear up in pid %d", process->pid);
    if (process->dumpable != 1 && process->vdso) {
        uint64_t arguments[6] = {PR_SET_DUMPABLE, 0};
        TRY(tracee_syscall(&tracees[process->first_thread], process->vdso_code, SYS_prctl, arguments, &result));
    }
    for (int32_t i = 0; i < process->thread_count; i++) {
        struct tracee *tracee = &tracees[process->first_thread + i];
        TRY(tracee_write_registers(tracee, &tracee->registers));
    }
    for (int which = 0; which < IMAGE_RLIMITS; which++) {
        struct rlimit limit = {process->limits[which][0], process->limits[which][1]};
        const struct rlimit *inherited = &rebuild->own_limits[which];
        bool raised = which == RLIMIT_MEMLOCK && inherited->rlim_cur != inherited->rlim_max; /* perhaps, by the restorer */
        if ((raised || inherited->rlim_cur != limit.rlim_cur || inherited->rlim_max != limit.rlim_max) &&
            prlimit(process->pid, (__rlimit_resource_t)which, &limit, NULL) != 0)
            return bunshin_error_os("cannot set limit %d of pid %d", which, process->pid);
    }
    return NULL;
}

static bool is_pending(const struct rebuild *rebuild, const struct image_process *process, int number) {
    const struct image_signal *signals = (const struct image_signal *)image_at(rebuild->image, TABLE_SIGNAL) + process->first_signal;
    for (int32_t i = 0; i < process->signal_count; i++)
        if (*(const int32_t *)(const void *)signals[i].info == number)
            return true;
    return false;
}

/* Takes a pending signal away again. The arguments lie below the stack, where a signal handler might write any time. */
static struct bunshin_error *drop_signal(struct tracee *leader, const struct image_process *process, int number) {
    struct {
        uint64_t set;
        int64_t patience[2];
    } words = {1ull << (number - 1), {0, 0}};
    uint64_t at = (ARCH_REG_SP(leader->registers) - ARCH_RED_ZONE - 256) & ~15ull;
    TRY(tracee_write(leader->tid, at, &words, sizeof words));
    uint64_t arguments[6] = {at, 0, at + sizeof words.set, 8};
    int64_t result;
    return tracee_syscall(leader, process->vdso_code, SYS_rt_sigtimedwait, arguments, &result);
}

/* What would disturb system calls of ours. */
static struct bunshin_error *last_touches(struct tracee *tracee, const struct image_thread *thread) {
    if (thread->dispatch[0])
        tracee_set_dispatch(tracee->tid, thread->dispatch);
    return tracee_set_mask(tracee, thread->mask);
}

/*
 * A stopped process is let go first, and stops. Where its parent had heard of the stop before, it is made to hear again
 * while it is still held, so that its next wait does not.
 */
static struct bunshin_error *stop_again(struct rebuild *rebuild, const struct image_process *process, struct tracee *tracees) {
    const struct image_action *actions = (const struct image_action *)image_at(rebuild->image, TABLE_ACTION) + process->first_action;
    int number = process->stop_signal ? process->stop_signal : SIGSTOP;
    for (int32_t i = 0; i < process->action_count; i++)
        if (actions[i].signal == number)
            number = SIGSTOP; /* it has a handler for the other one, or ignores it */
    kill(process->pid, number);
    for (int32_t i = 0; i < process->thread_count; i++) {
        struct tracee *tracee = &tracees[process->first_thread + i];
        TRY(last_touches(tracee, IMAGE_THREAD(rebuild->image, process->first_thread + i)));
        if (ptrace(PTRACE_DETACH, tracee->tid, 0, 0) != 0)
            return bunshin_error_os("cannot let thread %d go", tracee->tid);
        tracee->state = TRACEE_GONE;
    }
    char name[16];
    struct process_stat stat = {0};
    snprintf(name, sizeof name, "%d", IMAGE_THREAD(rebuild->image, process->first_thread)->tid);
    for (int tries = 0; tries < 2000 && procfs_stat(rebuild->init->proc, name, &stat) && stat.state != 'T'; tries++)
        usleep(100);
    if (!process->stop_reported || process->parent == 1)
        return NULL;
    for (size_t i = 0; i < rebuild->image->table[TABLE_PROCESS].count; i++) {
        const struct image_process *parent = IMAGE_PROCESS(rebuild->image, i);
        if (parent->pid != process->parent || parent->state != PROCESS_LIVE || !parent->vdso)
            continue;
        struct tracee *leader = &tracees[parent->first_thread];
        uint64_t arguments[6] = {P_PID, (uint64_t)process->pid, 0, WSTOPPED | WNOHANG};
        int64_t result;
        TRY(tracee_syscall(leader, parent->vdso_code, SYS_waitid, arguments, &result));
        if (!is_pending(rebuild, parent, SIGCHLD))
            TRY(drop_signal(leader, parent, SIGCHLD));
        TRY(tracee_write_registers(leader, &leader->registers));
    }
    return NULL;
}

struct bunshin_error *finish_rebuild(struct rebuild *rebuild) {
    size_t count = rebuild->image->table[TABLE_THREAD].count;
    struct tracee *tracees = calloc(count + 1, sizeof *tracees);
    if (!tracees)
        return bunshin_error_no_memory();
    struct bunshin_error *error = stop_all(rebuild, tracees, count);
    size_t processes = rebuild->image->table[TABLE_PROCESS].count;
    for (int which = 0; which < IMAGE_RLIMITS; which++)
        getrlimit((__rlimit_resource_t)which, &rebuild->own_limits[which]);
    for (int end = 0; end < 2; end++) /* all begin before one is waited for: they go on at the same time */
        for (size_t i = 0; !error && i < processes; i++) {
            const struct image_process *process = IMAGE_PROCESS(rebuild->image, i);
            if (process->state != PROCESS_ZOMBIE)
                error = end ? end_process(rebuild, process, tracees) : begin_process(rebuild, process, tracees);
        }
    if (!error)
        error = sysv_finish(rebuild, tracees);
    if (!error)
        error = procfile_finish(rebuild, tracees);
    for (size_t i = 0; !error && i < processes; i++) {
        const struct image_process *process = IMAGE_PROCESS(rebuild->image, i);
        if (process->state == PROCESS_STOPPED)
            error = stop_again(rebuild, process, tracees);
    }
    /* Signals stay blocked to the last: none must come in between system calls of ours. */
    for (size_t i = 0; !error && i < count; i++)
        if (tracees[i].state == TRACEE_STOPPED)
            error = last_touches(&tracees[i], IMAGE_THREAD(rebuild->image, i));
    for (size_t i = 0; i < count; i++)
        if (tracees[i].tid && tracees[i].state != TRACEE_GONE && ptrace(PTRACE_DETACH, tracees[i].tid, 0, 0) != 0 && !error)
            error = bunshin_error_os("cannot let thread %d go", tracees[i].tid);
    free(tracees);
    return error;
}
