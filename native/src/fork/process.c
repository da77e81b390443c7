/* What the kernel knows of one process and its threads, apart from memory and descriptors. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/sleep.h"

#define XSTATE_MAX 32768

/* ---- status ---- */

static void read_ids(const char *text, const char *name, uint32_t ret[4]) {
    const char *at = strstr(text, name);
    if (at)
        sscanf(at + strlen(name), " %u %u %u %u", &ret[0], &ret[1], &ret[2], &ret[3]);
}

/* What pid 1 itself is under (a container's filter, say) all processes are, and a fork's will be. */
static uint64_t outer_filters(struct capture *capture) {
    uint64_t count = 0;
    struct buffer text = {0};
    if (prctl(PR_GET_SECCOMP) != 0 && procfs_read(capture->init->proc, "self/status", &text))
        procfs_field((const char *)text.data, "Seccomp_filters", 10, &count);
    buffer_deinit(&text);
    return count;
}

static struct bunshin_error *read_status(struct capture *capture, struct frozen_process *frozen, struct image_process *ret,
                                         uint64_t *ret_caught, uint64_t *ret_ignored, uint64_t *ret_shared_pending) {
    char path[48];
    struct buffer text = {0};
    snprintf(path, sizeof path, "%d/status", frozen->alive);
    if (!procfs_read(capture->init->proc, path, &text))
        return bunshin_error_new(BUNSHIN_ERROR_FORK, ESRCH, "cannot read the status of pid %d", frozen->pid);
    const char *status = (const char *)text.data;
    uint64_t mask = 0, seccomp = 0;
    read_ids(status, "\nUid:", ret->uid);
    read_ids(status, "\nGid:", ret->gid);
    procfs_field(status, "Umask", 8, &mask);
    ret->umask = (uint32_t)mask;
    procfs_field(status, "CapInh", 16, &ret->capabilities[0]);
    procfs_field(status, "CapPrm", 16, &ret->capabilities[1]);
    procfs_field(status, "CapEff", 16, &ret->capabilities[2]);
    procfs_field(status, "CapBnd", 16, &ret->capabilities[3]);
    procfs_field(status, "CapAmb", 16, &ret->capabilities[4]);
    procfs_field(status, "Seccomp_filters", 10, &seccomp);
    procfs_field(status, "SigCgt", 16, ret_caught);
    procfs_field(status, "SigIgn", 16, ret_ignored);
    procfs_field(status, "ShdPnd", 16, ret_shared_pending);
    if (seccomp)
        seccomp -= outer_filters(capture);
    ret->confined = seccomp > 0;
    struct bunshin_error *error = NULL;
    const char *groups = strstr(status, "\nGroups:");
    if (groups) {
        groups += 8;
        uint32_t list[1024];
        size_t count = 0;
        for (char *end; count < 1024; groups = end) {
            unsigned long group = strtoul(groups, &end, 10);
            if (end == groups || strchr(groups, '\n') < end - 1)
                break;
            list[count++] = (uint32_t)group;
        }
        error = capture_heap(capture, list, sizeof *list * count, &ret->groups);
    }
    buffer_deinit(&text);
    snprintf(path, sizeof path, "%d/personality", frozen->alive);
    if (!error && procfs_read(capture->init->proc, path, &text))
        ret->personality = (uint32_t)strtoul((const char *)text.data, NULL, 16);
    buffer_deinit(&text);
    if (!error && seccomp > 1)
        error = bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "a seccomp filter of its own");
    return error;
}

static struct bunshin_error *read_limits(struct frozen_process *frozen, struct image_process *ret) {
    for (int which = 0; which < IMAGE_RLIMITS; which++) {
        struct rlimit limit;
        if (prlimit(frozen->alive, (__rlimit_resource_t)which, NULL, &limit) != 0)
            return bunshin_error_os("cannot read the limits of pid %d", frozen->pid);
        ret->limits[which][0] = limit.rlim_cur;
        ret->limits[which][1] = limit.rlim_max;
    }
    return NULL;
}

/* ---- signals ---- */

static struct bunshin_error *read_pending(struct capture *capture, struct tracee *tracee, bool shared) {
    for (uint64_t at = 0;;) {
        struct {
            uint64_t off;
            uint32_t flags;
            int32_t nr;
        } peek = {at, shared ? 1 : 0, 16};
        siginfo_t infos[16];
        long got = ptrace(0x4209 /* PTRACE_PEEKSIGINFO */, tracee->tid, &peek, infos);
        if (got < 0)
            return bunshin_error_os("cannot read pending signals of thread %d", tracee->tid);
        if (got == 0)
            return NULL;
        for (long i = 0; i < got; i++) {
            struct image_signal record = {.tid = shared ? 0 : tracee->tid};
            memcpy(record.info, &infos[i], sizeof infos[i] < sizeof record.info ? sizeof infos[i] : sizeof record.info);
            TRY(capture_add(capture, TABLE_SIGNAL, &record, sizeof record, NULL));
        }
        at += (uint64_t)got;
    }
}

static int by_id(const void *one, const void *other) {
    int32_t a = ((const struct image_timer *)one)->id, b = ((const struct image_timer *)other)->id;
    return (a > b) - (a < b);
}

static struct bunshin_error *read_timer_ids(struct capture *capture, struct frozen_process *frozen, struct parasite_args *args,
                                            struct image_timer *ret) {
    char path[48];
    struct buffer text = {0};
    snprintf(path, sizeof path, "%d/timers", frozen->alive);
    args->timer_count = 0;
    if (!procfs_read(capture->init->proc, path, &text))
        return NULL;
    struct image_timer *timer = NULL;
    for (char *line = strtok((char *)text.data, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long long value;
        int number;
        char notify[32];
        if (sscanf(line, "ID: %d", &number) == 1) {
            if (args->timer_count >= PARASITE_TIMERS) {
                buffer_deinit(&text);
                return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "more than %d POSIX timers", PARASITE_TIMERS);
            }
            timer = &ret[args->timer_count];
            *timer = (struct image_timer){.id = number};
            args->timer_id[args->timer_count++] = number;
        } else if (timer && sscanf(line, "signal: %d/%llx", &number, &value) == 2) {
            timer->signal = number;
            timer->value = value;
        } else if (timer && sscanf(line, "notify: %31[^/]/%*[^.].%d", notify, &number) == 2) {
            timer->notify = !strcmp(notify, "none") ? 1 : !strcmp(notify, "thread") ? 2 : 0;
            if (strstr(line, "/tid.")) {
                timer->notify |= 4; /* SIGEV_THREAD_ID */
                timer->thread = number;
            }
        } else if (timer && sscanf(line, "ClockID: %d", &number) == 1)
            timer->clock = number;
    }
    buffer_deinit(&text);
    /* The kernel lists the newest first; where ids only count up, they have to be made again from the smallest. */
    qsort(ret, (size_t)args->timer_count, sizeof *ret, by_id);
    for (int i = 0; i < args->timer_count; i++)
        args->timer_id[i] = ret[i].id;
    return NULL;
}

/* ---- threads ---- */

static const char *capture_comm(struct capture *capture, const struct tracee *tracee) {
    const struct frozen_process *process = freeze_find(capture->frozen, tracee->process);
    return process ? process->stat.comm : "";
}

static struct bunshin_error *read_thread(struct capture *capture, struct tracee *tracee, struct parasite *parasite, int32_t process) {
    struct image_thread record = {.tid = tracee->tid, .process = process, .registers = tracee->registers, .mask = tracee->mask};
    const struct parasite_args *args = parasite->args;
    static uint8_t extended[XSTATE_MAX];
    struct iovec area = {extended, sizeof extended};
    if (ptrace(PTRACE_GETREGSET, tracee->tid, NT_X86_XSTATE, &area) != 0)
        return bunshin_error_os("cannot read the extended registers of thread %d", tracee->tid);
    TRY(capture_heap(capture, extended, area.iov_len, &record.extended));
    record.tid_address = args->tid_address;
    record.stack_base = args->stack.base;
    record.stack_size = args->stack.size;
    record.stack_flags = args->stack.flags;
    record.settings = args->settings;
    memcpy(record.dispatch, tracee->dispatch, sizeof record.dispatch);
    if (args->segments || args->core_cookie)
        return bunshin_error_unsupported(tracee->process, capture_comm(capture, tracee), -1, "%s",
                                         args->segments & 1   ? "a local descriptor table (modify_ldt)"
                                         : args->segments & 2 ? "thread-local segments (set_thread_area)"
                                                              : "a core scheduling cookie");
    size_t length;
    void *list;
    if (syscall(SYS_get_robust_list, tracee->tid, &list, &length) == 0) {
        record.robust_list = (uint64_t)list;
        record.robust_length = length;
    }
    struct {
        uint64_t pointer;
        uint32_t size, signature, flags, pad;
    } rseq = {0};
    if (ptrace(0x420f /* PTRACE_GET_RSEQ_CONFIGURATION */, tracee->tid, sizeof rseq, &rseq) > 0) {
        record.rseq = rseq.pointer;
        record.rseq_size = rseq.size;
        record.rseq_signature = rseq.signature;
    }
    struct sched_param parameters = {0};
    record.policy = sched_getscheduler(tracee->tid);
    sched_getparam(tracee->tid, &parameters);
    record.priority = parameters.sched_priority;
    errno = 0;
    record.nice = getpriority(PRIO_PROCESS, (id_t)tracee->tid);
    record.io_priority = (int32_t)syscall(SYS_ioprio_get, 1, tracee->tid);
    (void)syscall(SYS_sched_getaffinity, tracee->tid, sizeof record.affinity, record.affinity);
    record.sleep = tracee->sleep;
    record.sleep_left = tracee->sleep_left;
    ARCH_REG_NUMBER(record.registers) = (unsigned long long)sleep_number(tracee);
    char path[64];
    struct buffer name = {0};
    snprintf(path, sizeof path, "%d/task/%d/comm", tracee->process, tracee->tid);
    if (!procfs_read(capture->init->proc, path, &name)) {
        buffer_deinit(&name);
        return bunshin_error_os("cannot read the name of thread %d", tracee->tid);
    }
    if (name.size) {
        size_t used = name.size - 1 < 15 ? name.size - 1 : 15;
        memcpy(record.name, name.data, used);
    }
    buffer_deinit(&name);
    return capture_add(capture, TABLE_THREAD, &record, sizeof record, NULL);
}

/* ---- the order for one process ---- */

static struct bunshin_error *read_places(struct capture *capture, struct frozen_process *frozen, struct image_process *ret) {
    char path[48], link[4200];
    static const char *const names[] = {"cwd", "exe", "root"};
    int32_t *const targets[] = {&ret->directory, &ret->executable, &ret->root};
    ret->root = IMAGE_NONE;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%d/%s", frozen->alive, names[i]);
        ssize_t length = readlinkat(capture->init->proc, path, link, sizeof link - 1);
        if (length < 0 && errno == ENAMETOOLONG)
            return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "a %s with a path of more than %d bytes", names[i], PATH_MAX);
        if (length < 0)
            return bunshin_error_os("cannot read %s of pid %d", names[i], frozen->pid);
        link[length] = '\0';
        if (i == 2 && !strcmp(link, "/"))
            continue;
        if (i == 2 && (strstr(link, " (deleted)") || procfile_is(link)))
            return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "a root directory of its own, %.200s", link);
        int32_t known = CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description);
        TRY(capture_path(capture, frozen, link, i != 1 ? O_PATH | O_DIRECTORY : O_RDONLY, targets[i]));
        struct stat info;
        if (i == 1 && *targets[i] == known && fstatat(capture->init->proc, path, &info, 0) == 0 && !(info.st_mode & 0111))
            return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "an executable that may not be executed any more, %.200s", link);
    }
    return NULL;
}

static struct bunshin_error *read_layout(struct capture *capture, struct frozen_process *frozen, uint64_t brk, struct image_process *ret) {
    const struct process_stat *stat = &frozen->stat;
    char path[48];
    struct buffer auxv = {0};
    snprintf(path, sizeof path, "%d/auxv", frozen->alive);
    if (!procfs_read(capture->init->proc, path, &auxv))
        return bunshin_error_new(BUNSHIN_ERROR_FORK, ESRCH, "cannot read auxv of pid %d", frozen->pid);
    struct bunshin_error *error = capture_heap(capture, auxv.data, auxv.size, &ret->auxv);
    buffer_deinit(&auxv);
    ret->layout = (struct prctl_mm_map){
        .start_code = stat->start_code,
        .end_code = stat->end_code,
        .start_data = stat->start_data,
        .end_data = stat->end_data,
        .start_brk = stat->start_brk,
        .brk = brk,
        .start_stack = stat->start_stack,
        .arg_start = stat->arg_start,
        .arg_end = stat->arg_end,
        .env_start = stat->env_start,
        .env_end = stat->env_end,
        .exe_fd = (uint32_t)-1,
    };
    return error;
}

/*
 * What the parent of a process would learn of it from waitid(), without taking it from the parent. /proc does not tell:
 * an exit code is shown only for processes that were dumpable, and whether a stop was reported is not shown at all.
 */
static struct bunshin_error *ask_parent(struct capture *capture, const struct frozen_process *frozen, int options, siginfo_t *ret) {
    memset(ret, 0, sizeof *ret);
    if (frozen->stat.ppid == 1) {
        if (waitid(P_PID, (id_t)frozen->pid, ret, options | WNOHANG | WNOWAIT | __WALL) != 0)
            return bunshin_error_os("cannot ask for the state of pid %d", frozen->pid);
        return NULL;
    }
    struct frozen_process *parent = freeze_find(capture->frozen, frozen->stat.ppid);
    if (!parent || parent->zombie)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, ESRCH, "pid %d has no parent that could be asked", frozen->pid);
    struct tracee *leader = &capture->frozen->threads[parent->first_thread];
    struct mappings mappings;
    struct parasite parasite = {0};
    TRY(mappings_read(capture, parent->alive, &mappings));
    struct bunshin_error *error = parasite_enter(leader, mappings.vdso, &parasite);
    if (!error) {
        uint64_t arguments[6] = {P_PID, (uint64_t)frozen->pid, parasite.area + parasite_code_size(),
                                 (uint64_t)(options | WNOHANG | WNOWAIT | __WALL)};
        int64_t result;
        error = tracee_syscall(leader, mappings.vdso, SYS_waitid, arguments, &result);
        if (!error && result == 0)
            error = tracee_read(parent->alive, parasite.area + parasite_code_size(), ret, sizeof *ret);
    }
    parasite_leave(&parasite);
    mappings_deinit(&mappings);
    return error;
}

static int wait_status(const siginfo_t *info) {
    switch (info->si_code) {
    case CLD_EXITED:
        return (info->si_status & 0xff) << 8;
    case CLD_DUMPED:
        return info->si_status | 0x80;
    default:
        return info->si_status;
    }
}

static struct bunshin_error *capture_zombie(struct capture *capture, struct frozen_process *frozen) {
    siginfo_t info;
    TRY(ask_parent(capture, frozen, WEXITED, &info));
    struct image_process record = {
        .pid = frozen->pid,
        .parent = frozen->stat.ppid,
        .group = frozen->stat.pgrp,
        .session = frozen->stat.session,
        .state = PROCESS_ZOMBIE,
        .exit_code = info.si_pid ? wait_status(&info) : frozen->stat.exit_code,
        .exit_signal = frozen->stat.exit_signal,
        .terminal = IMAGE_NONE,
    };
    memcpy(record.name, frozen->stat.comm, sizeof record.name);
    return capture_add(capture, TABLE_PROCESS, &record, sizeof record, NULL);
}

/* How what it maps is locked: as our own mapping is. */
static struct bunshin_error *read_lock_future(struct capture *capture, const struct frozen_process *frozen, const struct parasite *parasite,
                                              int32_t *ret) {
    struct mappings mappings;
    TRY(mappings_read(capture, frozen->alive, &mappings));
    for (size_t i = 0; i < mappings.count; i++)
        if (mappings.list[i].start <= parasite->area && parasite->area < mappings.list[i].end && mappings.list[i].flags & MAPPING_LOCKED)
            *ret = MCL_FUTURE | (mappings.list[i].flags & MAPPING_LOCKED_ON_FAULT ? MCL_ONFAULT : 0);
    mappings_deinit(&mappings);
    return NULL;
}

struct bunshin_error *capture_process(struct capture *capture, struct frozen_process *frozen) {
    if (frozen->zombie)
        return capture_zombie(capture, frozen);
    struct tracee *leader = &capture->frozen->threads[frozen->first_thread];
    const struct process_stat *stat = &frozen->stat;
    struct image_process record = {
        .pid = frozen->pid,
        .parent = stat->ppid,
        .group = stat->pgrp,
        .session = stat->session,
        .state = leader->group_stopped ? PROCESS_STOPPED : PROCESS_LIVE,
        .exit_signal = stat->exit_signal,
        .terminal = IMAGE_NONE,
        .terminal_group = stat->tty_pgrp,
        .leader_gone = frozen->alive != frozen->pid,
        .exit_code = frozen->alive != frozen->pid ? stat->exit_code : 0,
        .thread_count = (int32_t)frozen->thread_count,
        .first_thread = CAPTURE_COUNT(capture, TABLE_THREAD, struct image_thread),
        .first_action = CAPTURE_COUNT(capture, TABLE_ACTION, struct image_action),
        .first_timer = CAPTURE_COUNT(capture, TABLE_TIMER, struct image_timer),
        .first_signal = CAPTURE_COUNT(capture, TABLE_SIGNAL, struct image_signal),
    };
    int32_t index = CAPTURE_COUNT(capture, TABLE_PROCESS, struct image_process);
    if (record.state == PROCESS_STOPPED) {
        siginfo_t info;
        TRY(ask_parent(capture, frozen, WSTOPPED, &info));
        record.stop_reported = info.si_pid == 0;
        record.stop_signal = info.si_pid ? info.si_status : leader->group_stopped;
    }
    if (stat->tty)
        record.terminal = stat->tty; /* a device number for now; descriptor.c knows the pty once all are seen */
    uint64_t caught = 0, ignored = 0, pending = 0;
    memcpy(record.name, stat->comm, sizeof record.name);
    TRY(read_status(capture, frozen, &record, &caught, &ignored, &pending));
    TRY(read_limits(frozen, &record));
    TRY(read_places(capture, frozen, &record));

    struct mappings mappings;
    TRY(mappings_read(capture, frozen->alive, &mappings));
    struct parasite parasite = {0};
    struct image_timer timers[PARASITE_TIMERS];
    struct bunshin_error *error = parasite_enter(leader, mappings.vdso, &parasite);
    if (error && parasite.no_room) {
        bunshin_error_destroy(error);
        error = bunshin_error_unsupported(frozen->pid, stat->comm, -1, "locked memory up to its limit, with whatever it maps (mlockall)");
    }
    if (!error) {
        parasite.args->task = PARASITE_PROCESS;
        parasite.args->signals = caught | ignored;
        error = read_timer_ids(capture, frozen, parasite.args, timers);
    }
    if (!error)
        error = parasite_run(&parasite, leader);
    if (!error) {
        const struct parasite_args *args = parasite.args;
        record.dumpable = args->dumpable;
        capture->not_dumpable |= args->dumpable != 1;
        record.subreaper = args->subreaper;
        record.no_thp = args->no_thp;
        record.never_written_and_executed = args->never_written_and_executed;
        int64_t since = init_now() - capture->sealed_at; /* what is left is as of the seal, for everything */
        memcpy(record.interval_timer, args->interval_timer, sizeof record.interval_timer);
        /* Kernels of before 6.13 or so start the next period only once SIGALRM is taken. While it waits, a timer that is
         * due at once does the same: the signal it sends is the one that waits. */
        int64_t *real = record.interval_timer[ITIMER_REAL];
        if ((real[0] || real[1]) && !real[2] && !real[3] && pending >> (SIGALRM - 1) & 1)
            real[3] = 1;
        timer_left_add(record.interval_timer[0] + 2, 1000, since);
        error = read_layout(capture, frozen, args->brk, &record);
        if (!error && args->locked)
            error = read_lock_future(capture, frozen, &parasite, &record.lock_future);
        for (int signal = 1; !error && signal <= 64; signal++)
            if (args->signals >> (signal - 1) & 1) {
                struct image_action action = {signal, 0, args->action[signal].handler, args->action[signal].flags,
                                              args->action[signal].restorer, args->action[signal].mask};
                error = capture_add(capture, TABLE_ACTION, &action, sizeof action, NULL);
                record.action_count++;
            }
        for (int i = 0; !error && i < args->timer_count; i++) {
            memcpy(timers[i].interval, args->timer[i], 16);
            memcpy(timers[i].remaining, args->timer[i] + 2, 16);
            if (clock_is_of_time(timers[i].clock))
                timer_left_add(timers[i].remaining, 1, since);
            timers[i].overrun = args->timer_overrun[i];
            error = capture_add(capture, TABLE_TIMER, &timers[i], sizeof timers[i], NULL);
            record.timer_count++;
        }
    }
    if (!error && pending)
        error = read_pending(capture, leader, true);
    for (size_t i = 0; !error && i < frozen->thread_count; i++) {
        struct tracee *tracee = &capture->frozen->threads[frozen->first_thread + i];
        if (i) {
            parasite.args->task = PARASITE_THREAD;
            error = parasite_run(&parasite, tracee);
        }
        if (!error)
            error = read_thread(capture, tracee, &parasite, index);
        if (!error)
            error = read_pending(capture, tracee, false);
    }
    record.signal_count = CAPTURE_COUNT(capture, TABLE_SIGNAL, struct image_signal) - record.first_signal;
    if (!error)
        error = sysv_capture_undo(capture, frozen, &parasite, index);
    if (!error)
        error = capture_memory(capture, frozen, &mappings, &parasite, &record);
    parasite_leave(&parasite);
    record.vdso = mappings.vdso_base;
    record.vdso_code = mappings.vdso;
    mappings_deinit(&mappings);
    if (!error)
        error = capture_descriptors(capture, frozen, &record);
    if (!error)
        error = capture_add(capture, TABLE_PROCESS, &record, sizeof record, NULL);
    return error;
}
