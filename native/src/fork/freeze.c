#define _GNU_SOURCE
#include "fork/freeze.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fork/sleep.h"
#include "init/init.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

static struct tracee *find_thread(struct frozen *frozen, pid_t tid) {
    for (size_t i = 0; i < frozen->thread_count; i++)
        if (frozen->threads[i].tid == tid)
            return &frozen->threads[i];
    return NULL;
}

struct frozen_process *freeze_find(struct frozen *frozen, pid_t pid) {
    for (size_t i = 0; i < frozen->process_count; i++)
        if (frozen->processes[i].pid == pid)
            return &frozen->processes[i];
    return NULL;
}

static struct bunshin_error *add_thread(struct frozen *frozen, const struct tracee *tracee) {
    if ((frozen->thread_count & (frozen->thread_count - 1)) == 0) { /* grows at powers of two */
        size_t capacity = frozen->thread_count ? frozen->thread_count * 2 : 16;
        struct tracee *grown = realloc(frozen->threads, capacity * sizeof *grown);
        if (!grown)
            return bunshin_error_no_memory();
        frozen->threads = grown;
    }
    frozen->threads[frozen->thread_count++] = *tracee;
    return NULL;
}

/* A thread that cannot be seized has ended, or is a debugger's, or is beyond pid 1's rights. */
static struct bunshin_error *refuse_held(int proc, pid_t pid, pid_t tid) {
    struct process_stat stat, tracer_stat = {0};
    struct buffer status = {0};
    uint64_t tracer = 0;
    char path[48];
    snprintf(path, sizeof path, "%d/task/%d", pid, tid);
    if (!procfs_stat(proc, path, &stat) || stat.state == 'Z' || stat.state == 'X')
        return NULL;
    snprintf(path, sizeof path, "%d/task/%d/status", pid, tid);
    if (procfs_read(proc, path, &status))
        procfs_field((const char *)status.data, "TracerPid", 10, &tracer);
    buffer_deinit(&status);
    snprintf(path, sizeof path, "%llu", (unsigned long long)tracer);
    if (!tracer)
        return bunshin_error_unsupported(pid, stat.comm, -1, "thread %d, which pid 1 may not look at (it made itself undumpable in a fork, or is traced from outside)", tid);
    (void)procfs_stat(proc, path, &tracer_stat);
    return bunshin_error_unsupported(pid, stat.comm, -1, "a debugger's hold on thread %d: pid %llu (%s) traces it", tid,
                                     (unsigned long long)tracer, tracer_stat.comm);
}

static struct bunshin_error *seize_process(struct frozen *frozen, int proc, pid_t pid, bool *ret_new) {
    char path[48];
    int *tids = NULL;
    size_t count = 0;
    snprintf(path, sizeof path, "%d/task", pid);
    if (!procfs_numbers(proc, path, &tids, &count))
        return errno == ENOENT || errno == ESRCH ? NULL : bunshin_error_os("cannot list the threads of pid %d", pid);
    struct bunshin_error *error = NULL;
    for (size_t i = 0; !error && i < count; i++) {
        if (find_thread(frozen, tids[i]))
            continue;
        struct tracee tracee;
        int64_t asleep_since = sleep_began(proc, pid, tids[i]);
        if (!tracee_seize_if_alive(tids[i], pid, &tracee)) {
            if (errno == EPERM)
                error = refuse_held(proc, pid, tids[i]);
            else if (errno != ESRCH) /* gone: the next look tells */
                error = bunshin_error_os("cannot seize thread %d of pid %d", tids[i], pid);
            continue;
        }
        tracee.asleep_since = asleep_since;
        *ret_new = true;
        bool stops = tracee_interrupt_if_alive(&tracee);
        if (!stops && errno == ESRCH)
            tracee.state = TRACEE_GONE;
        else if (!stops)
            error = bunshin_error_os("cannot stop thread %d of pid %d", tids[i], pid);
        struct bunshin_error *full = add_thread(frozen, &tracee);
        if (full)
            bunshin_error_destroy(error);
        error = full ? full : error;
    }
    free(tids);
    return error;
}

#define STOP_USUALLY_NS 3000000ll
#define VFORK_PATIENCE_NS 1000000000ll

/*
 * A parent in vfork cannot be stopped until its child has called exec or exit, and the child is one of those we hold. It is
 * let run as far as that.
 */
static struct bunshin_error *finish_vfork(struct frozen *frozen, int proc, struct tracee *parent) {
    char name[48];
    struct process_stat stat;
    snprintf(name, sizeof name, "%d/task/%d", parent->process, parent->tid);
    if (!procfs_stat(proc, name, &stat) || stat.state != 'D')
        return NULL;
    for (size_t i = 0; i < frozen->thread_count; i++) {
        struct tracee *child = &frozen->threads[i];
        if (child->state != TRACEE_STOPPED || child->process == parent->process ||
            syscall(SYS_kcmp, parent->process, child->process, KCMP_VM, 0, 0) != 0)
            continue;
        bool done;
        TRY(tracee_run_to_exec(child, init_now() + VFORK_PATIENCE_NS, &done));
        if (!done)
            return bunshin_error_unsupported(parent->process, stat.comm, -1, "a child in vfork (pid %d) that does not call exec", child->process);
    }
    return NULL;
}

/* Who it is and what it waits for, where the kernel tells. */
static struct bunshin_error *refuse_unstopped(int proc, const struct tracee *tracee) {
    char path[48];
    struct process_stat stat = {.state = '?'};
    struct buffer where = {0};
    snprintf(path, sizeof path, "%d/task/%d", tracee->process, tracee->tid);
    (void)procfs_stat(proc, path, &stat);
    snprintf(path, sizeof path, "%d/task/%d/wchan", tracee->process, tracee->tid);
    bool told = procfs_read(proc, path, &where) && where.size > 1;
    struct bunshin_error *error = bunshin_error_new(
        BUNSHIN_ERROR_FORK, ETIMEDOUT, "cannot freeze: pid %d (%s) did not stop in time: its thread %d is in state %c%s%.60s%s", tracee->process,
        stat.comm, tracee->tid, stat.state, told ? ", in " : "", told ? (const char *)where.data : "",
        stat.state == 'D' ? ", a sleep that nothing interrupts (a file system, a disk or a device that does not answer)" : "");
    buffer_deinit(&where);
    return error;
}

/*
 * Those that take longer are looked at more closely, all in turn: a parent stops only after its child, and that child may
 * itself be slow to stop, or be a parent in vfork.
 */
static struct bunshin_error *wait_all(struct frozen *frozen, int proc, int64_t deadline) {
    for (bool patient = false, waiting = true; waiting; patient = true) {
        waiting = false;
        for (size_t i = 0; i < frozen->thread_count; i++) {
            struct tracee *tracee = &frozen->threads[i];
            if (tracee->state != TRACEE_SEIZED)
                continue;
            if (patient)
                TRY(finish_vfork(frozen, proc, tracee));
            struct bunshin_error *error = tracee_wait_stop(tracee, init_now() + STOP_USUALLY_NS);
            if (error && error->code != BUNSHIN_ERROR_TIMEOUT)
                return error;
            if (error && init_now() > deadline) {
                bunshin_error_destroy(error);
                return refuse_unstopped(proc, tracee);
            }
            waiting |= error != NULL;
            bunshin_error_destroy(error);
        }
    }
    return NULL;
}

/* Where the main thread has ended, its memory is seen through another one. */
static bool read_living(int proc, struct frozen_process *process) {
    struct process_stat leader = process->stat;
    char name[16];
    snprintf(name, sizeof name, "%d", process->alive);
    if (!procfs_stat(proc, name, &process->stat))
        return false;
    memcpy(process->stat.comm, leader.comm, sizeof leader.comm);
    process->stat.pid = leader.pid;
    process->stat.exit_signal = leader.exit_signal;
    process->stat.exit_code = leader.exit_code;
    return true;
}

/* The final list: processes, each with its threads in a row, leader first. */
static struct bunshin_error *arrange(struct frozen *frozen, int proc) {
    int *pids = NULL;
    size_t count = 0;
    if (!procfs_numbers(proc, ".", &pids, &count))
        return bunshin_error_os("cannot list processes");
    struct tracee *threads = calloc(frozen->thread_count + 1, sizeof *threads);
    frozen->processes = calloc(count + 1, sizeof *frozen->processes);
    struct bunshin_error *error = threads && frozen->processes ? NULL : bunshin_error_no_memory();
    size_t used = 0;
    for (size_t i = 0; !error && i < count; i++) {
        char name[16];
        if (pids[i] == 1)
            continue;
        struct frozen_process *process = &frozen->processes[frozen->process_count];
        snprintf(name, sizeof name, "%d", pids[i]);
        bool there = procfs_stat(proc, name, &process->stat), held = false;
        for (size_t j = 0; !there && j < frozen->thread_count; j++)
            held |= frozen->threads[j].process == pids[i] && frozen->threads[j].state == TRACEE_STOPPED;
        if (held)
            error = bunshin_error_os("cannot read the state of pid %d", pids[i]);
        if (!there || process->stat.state == 'X')
            continue;
        process->pid = pids[i];
        process->pidfd = -1;
        process->first_thread = used;
        for (int leader = 1; leader >= 0; leader--)
            for (size_t j = 0; j < frozen->thread_count; j++) {
                struct tracee *tracee = &frozen->threads[j];
                if (tracee->process == pids[i] && tracee->state == TRACEE_STOPPED && (tracee->tid == pids[i]) == leader)
                    threads[used++] = *tracee;
            }
        process->thread_count = used - process->first_thread;
        process->zombie = process->thread_count == 0;
        if (!process->zombie) {
            process->alive = threads[process->first_thread].tid;
            process->pidfd = (int)syscall(SYS_pidfd_open, process->alive, process->alive == pids[i] ? 0 : PIDFD_THREAD);
            if (process->pidfd < 0 && process->alive != pids[i])
                error = bunshin_error_unsupported(pids[i], process->stat.comm, -1,
                                                  "a main thread that has ended while others run (Linux 6.9 can look at those)");
            else if (process->pidfd < 0)
                error = bunshin_error_os("cannot open pid %d", pids[i]);
            else if (process->alive != pids[i] && !read_living(proc, process))
                error = bunshin_error_os("cannot read the state of thread %d of pid %d", process->alive, pids[i]);
        } else if (process->stat.state != 'Z')
            continue; /* ended between two reads */
        frozen->process_count++;
    }
    free(pids);
    if (error) {
        free(threads);
        return error;
    }
    free(frozen->threads);
    frozen->threads = threads;
    frozen->thread_count = used;
    return NULL;
}

struct bunshin_error *freeze(int proc, int64_t deadline, struct frozen **ret) {
    struct frozen *frozen = calloc(1, sizeof *frozen);
    if (!frozen)
        return bunshin_error_no_memory();
    struct bunshin_error *error = NULL;
    bool again = true;
    for (int round = 0; !error && again; round++) {
        int *pids = NULL;
        size_t count = 0;
        again = false;
        if (!procfs_numbers(proc, ".", &pids, &count)) {
            error = bunshin_error_os("cannot list processes");
            break;
        }
        for (size_t i = 0; !error && i < count; i++)
            if (pids[i] != 1)
                error = seize_process(frozen, proc, pids[i], &again);
        free(pids);
        if (!error)
            error = wait_all(frozen, proc, deadline);
        if (!error && again && init_now() > deadline)
            error = bunshin_error_new(BUNSHIN_ERROR_FORK, ETIMEDOUT, "cannot freeze: new processes kept appearing for %d rounds", round);
    }
    for (size_t i = 0; !error && i < frozen->thread_count; i++)
        if (frozen->threads[i].state == TRACEE_STOPPED) {
            error = tracee_read_registers(&frozen->threads[i]);
            if (!error) {
                sleep_mend_interrupted(&frozen->threads[i]);
                sleep_note(&frozen->threads[i]);
            }
        }
    if (!error)
        error = arrange(frozen, proc);
    if (error) {
        freeze_release(frozen);
        return error;
    }
    *ret = frozen;
    return NULL;
}

void freeze_release(struct frozen *frozen) {
    if (!frozen)
        return;
    for (size_t i = 0; i < frozen->thread_count; i++)
        tracee_release(&frozen->threads[i]);
    for (size_t i = 0; i < frozen->process_count; i++)
        if (frozen->processes[i].pidfd > 0)
            close(frozen->processes[i].pidfd);
    free(frozen->processes);
    free(frozen->threads);
    free(frozen);
}
