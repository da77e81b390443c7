/*
 * What Linux lets be shared, or not, against custom: processes with parts in common, and threads with parts of their own.
 * A fork gives each process its own and all threads of one the same; whoever has it otherwise is refused by name.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork/capture.h"

static bool have_in_common(pid_t one, pid_t other, int kind) { return syscall(SYS_kcmp, one, other, kind, 0, 0) == 0; }

/* ---- processes ---- */

static struct bunshin_error *refuse_common(const struct frozen_process *one, const struct frozen_process *other, const char *what) {
    return bunshin_error_unsupported(one->pid, one->stat.comm, -1, "%s in common with pid %d", what, other->pid);
}

/* Processes that came from one another, perhaps by way of others that have ended since. */
static bool may_be_kin(const struct frozen_process *one, const struct frozen_process *other) {
    return one->stat.ppid == other->pid || other->stat.ppid == one->pid || one->stat.ppid == other->stat.ppid || one->stat.ppid == 1 ||
           other->stat.ppid == 1;
}

static struct bunshin_error *refuse_common_parts(struct capture *capture) {
    static const struct {
        int kind;
        const char *name;
    } parts[] = {{KCMP_VM, "memory"}, {KCMP_FILES, "a descriptor table"}, {KCMP_FS, "a working directory"}};
    for (size_t i = 0; i < capture->frozen->process_count; i++) {
        const struct frozen_process *one = &capture->frozen->processes[i];
        if (one->zombie)
            continue;
        const struct frozen_process *parent = freeze_find(capture->frozen, one->stat.ppid);
        if (parent && !parent->zombie && have_in_common(one->alive, parent->alive, KCMP_FS)) /* outlives exec */
            return refuse_common(one, parent, "a working directory");
        for (size_t j = 0; j < i; j++) {
            const struct frozen_process *other = &capture->frozen->processes[j];
            if (other->zombie || one->stat.start_stack != other->stat.start_stack || !may_be_kin(one, other))
                continue;
            for (size_t part = 0; part < sizeof parts / sizeof *parts; part++)
                if (have_in_common(one->alive, other->alive, parts[part].kind))
                    return refuse_common(one, other, parts[part].name);
        }
    }
    return NULL;
}

/* ---- threads ---- */

static bool same_line(const char *one, const char *other, const char *name) {
    const char *first = strstr(one, name), *second = strstr(other, name);
    if (!first || !second)
        return !first == !second;
    size_t length = strcspn(first + 1, "\n");
    return length == strcspn(second + 1, "\n") && !memcmp(first, second, length + 1);
}

static struct bunshin_error *refuse_thread(struct capture *capture, const struct frozen_process *process, const struct tracee *thread,
                                           const char *leader, struct buffer *text) {
    static const char *const credentials[] = {"\nUid:", "\nGid:", "\nGroups:", "\nCapInh:", "\nCapPrm:", "\nCapEff:", "\nCapBnd:", "\nCapAmb:"};
    char path[64];
    const char *what = NULL;
    snprintf(path, sizeof path, "%d/task/%d/status", process->pid, thread->tid);
    if (!procfs_read(capture->init->proc, path, text))
        return bunshin_error_new(BUNSHIN_ERROR_FORK, ESRCH, "cannot read the status of thread %d", thread->tid);
    if (!same_line((const char *)text->data, leader, "\nSeccomp_filters:"))
        what = "a seccomp filter of its own";
    for (size_t i = 0; i < sizeof credentials / sizeof *credentials; i++)
        if (!same_line((const char *)text->data, leader, credentials[i]))
            what = "credentials of its own";
    if (!have_in_common(thread->tid, process->alive, KCMP_FILES))
        what = "a descriptor table of its own";
    if (!have_in_common(thread->tid, process->alive, KCMP_FS))
        what = "a working directory of its own";
    return what ? bunshin_error_unsupported(process->pid, process->stat.comm, -1, "thread %d with %s", thread->tid, what) : NULL;
}

static struct bunshin_error *refuse_threads_apart(struct capture *capture) {
    struct buffer leader = {0}, text = {0};
    struct bunshin_error *error = NULL;
    for (size_t i = 0; !error && i < capture->frozen->process_count; i++) {
        const struct frozen_process *process = &capture->frozen->processes[i];
        char path[32];
        snprintf(path, sizeof path, "%d/status", process->alive);
        if (process->thread_count < 2)
            continue;
        if (!procfs_read(capture->init->proc, path, &leader))
            error = bunshin_error_new(BUNSHIN_ERROR_FORK, ESRCH, "cannot read the status of pid %d", process->pid);
        for (size_t j = 1; !error && j < process->thread_count; j++)
            error = refuse_thread(capture, process, &capture->frozen->threads[process->first_thread + j], (const char *)leader.data, &text);
    }
    buffer_deinit(&leader);
    buffer_deinit(&text);
    return error;
}

struct bunshin_error *apart_refuse(struct capture *capture) {
    TRY(refuse_common_parts(capture));
    return refuse_threads_apart(capture);
}
