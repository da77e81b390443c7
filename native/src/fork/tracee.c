#define _GNU_SOURCE
#include "fork/tracee.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG_ 0x4210
#define PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG_ 0x4211
#define STEP_PATIENCE_NS 5000000000ll /* for a thread of ours to come back from a few system calls */

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Those that could not be let go since they ran code of ours which did not come to an end. */
static struct tracee *late;
static size_t late_count;

static bool late_take(pid_t tid, struct tracee *ret) {
    for (size_t i = 0; i < late_count; i++)
        if (late[i].tid == tid) {
            *ret = late[i];
            late[i] = late[--late_count];
            return true;
        }
    return false;
}

static void late_add(const struct tracee *tracee) {
    struct tracee *grown = realloc(late, (late_count + 1) * sizeof *grown);
    if (!grown)
        return;
    late = grown;
    late[late_count++] = *tracee;
}

/*
 * When pid 1 ends, the kernel first lets its tracees go, and then kills all of the namespace. In between they would run, on
 * layers that are sealed and with a fork of theirs beside them: so they are killed by the first already.
 */
bool tracee_seize_if_alive(pid_t tid, pid_t process, struct tracee *ret) {
    late_take(tid, ret); /* who can be seized is nobody's any more */
    *ret = (struct tracee){.tid = tid, .process = process};
    return ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_EXITKILL) == 0;
}

bool tracee_interrupt_if_alive(struct tracee *tracee) { return ptrace(PTRACE_INTERRUPT, tracee->tid, 0, 0) == 0; }

/*
 * The end of a thread, if it has come. Seen by its tracer, a process is shown to its parent; but where the parent is pid 1 too, that
 * would be the only time: it stays, for init_reap() to find, since the call or session whose process it was ends with it.
 */
static bool has_ended(const struct tracee *tracee) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)tracee->tid, &info, WEXITED | WNOWAIT | WNOHANG | __WALL) != 0)
        return errno == ECHILD;
    if (info.si_pid != tracee->tid || info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED)
        return false; /* a tracer is told of stops as well, asked for or not */
    char path[32], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", tracee->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    const char *end = size > 0 ? strrchr(text, ')') : NULL;
    int parent = 0;
    bool own = tracee->tid == tracee->process && end && sscanf(end + 1, " %*c %d", &parent) == 1 && parent == getpid();
    return own || waitpid(tracee->tid, NULL, __WALL | WNOHANG) != 0;
}

/* Waits for a stop with a deadline; spins first, since a stop takes microseconds. */
static struct bunshin_error *wait_status(struct tracee *tracee, int64_t deadline, int *ret, bool *ret_gone) {
    *ret_gone = false;
    for (int spins = 0;; spins++) {
        siginfo_t info = {0};
        int got = waitid(P_PID, (id_t)tracee->tid, &info, WSTOPPED | WNOHANG | __WALL);
        if (got == 0 && info.si_pid == tracee->tid) {
            *ret = info.si_status << 8 | 0x7f;
            return NULL;
        }
        if (got != 0 && errno != ECHILD && errno != EINTR)
            return bunshin_error_os("cannot wait for thread %d of pid %d", tracee->tid, tracee->process);
        if (has_ended(tracee)) {
            *ret_gone = true;
            return NULL;
        }
        if (spins < 200)
            continue;
        if (now() > deadline)
            return bunshin_error_new(BUNSHIN_ERROR_TIMEOUT, ETIMEDOUT, "thread %d of pid %d did not stop in time", tracee->tid,
                                     tracee->process);
        struct timespec pause = {0, spins < 1000 ? 20000 : 500000};
        nanosleep(&pause, NULL);
    }
}

/* A thread that is stopped goes on, with a signal or 0. Only its death can be in the way of that for good. */
static void go_on(const struct tracee *tracee, bool detach, int signal) {
    for (int tries = 0; tries < 3; tries++)
        if (ptrace(detach ? PTRACE_DETACH : PTRACE_CONT, tracee->tid, 0, signal) == 0 || errno == ESRCH)
            return;
}

struct bunshin_error *tracee_wait_stop(struct tracee *tracee, int64_t deadline) {
    for (;;) {
        int status;
        bool gone;
        TRY(wait_status(tracee, deadline, &status, &gone));
        if (gone) {
            tracee->state = TRACEE_GONE;
            return NULL;
        }
        if (status >> 16 == PTRACE_EVENT_STOP) {
            int signal = WSTOPSIG(status);
            bool group_stop = signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
            if (group_stop && !tracee->group_stopped) {
                /* It was stopped already. Continued, it runs into the stop we asked for; the kernel remembers the other
                 * one, and takes it up again when we let go. */
                tracee->group_stopped = signal;
                go_on(tracee, false, 0);
                continue;
            }
            tracee->state = TRACEE_STOPPED;
            return NULL;
        }
        /* A signal arrived first. It goes back to the queue: the stop that was asked for comes next. */
        siginfo_t info;
        int signal = WSTOPSIG(status);
        go_on(tracee, false, ptrace(PTRACE_GETSIGINFO, tracee->tid, 0, &info) == 0 && signal != SIGTRAP ? signal : 0);
    }
}

struct bunshin_error *tracee_read_registers(struct tracee *tracee) {
    if (ptrace(PTRACE_GETREGS, tracee->tid, 0, &tracee->registers) != 0 ||
        ptrace(PTRACE_GETSIGMASK, tracee->tid, sizeof tracee->mask, &tracee->mask) != 0)
        return bunshin_error_os("cannot read registers of thread %d", tracee->tid);
    if (ptrace(PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG_, tracee->tid, sizeof tracee->dispatch, tracee->dispatch) == 0 && tracee->dispatch[0]) {
        tracee_set_dispatch(tracee->tid, (const uint64_t[4]){0});
        tracee->changed = true;
    }
    return NULL;
}

void tracee_set_dispatch(pid_t tid, const uint64_t dispatch[4]) {
    (void)ptrace(PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG_, tid, sizeof(uint64_t[4]), dispatch);
}

struct bunshin_error *tracee_write_registers(struct tracee *tracee, const arch_registers *registers) {
    if (ptrace(PTRACE_SETREGS, tracee->tid, 0, registers) != 0)
        return bunshin_error_os("cannot set registers of thread %d", tracee->tid);
    return NULL;
}

struct bunshin_error *tracee_set_mask(struct tracee *tracee, uint64_t mask) {
    if (ptrace(PTRACE_SETSIGMASK, tracee->tid, sizeof mask, &mask) != 0)
        return bunshin_error_os("cannot set the signal mask of thread %d", tracee->tid);
    return NULL;
}

uint64_t tracee_vdso_syscall(void) {
    static uint64_t offset; /* the same in every process of this kernel; pid 1 is single-threaded */
    if (offset)
        return offset;
    const uint8_t *vdso = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
    for (uint64_t i = 0; vdso && i < 4096; i++)
        if (arch_is_syscall(vdso + i))
            return offset = i;
    return 0;
}

/* Code of ours was not waited for to its end. It must not run on, and least of all be let go: whatever stops it will do. */
static void stop_running(struct tracee *tracee) {
    int status;
    bool gone;
    for (int asked = 0; asked < 2 && tracee->state == TRACEE_RUNNING; asked++) {
        if (asked && !tracee_interrupt_if_alive(tracee) && errno == ESRCH) {
            tracee->state = TRACEE_GONE;
            return;
        }
        struct bunshin_error *error = wait_status(tracee, now() + (asked ? 100000000 : 1000000), &status, &gone);
        if (!error)
            tracee->state = gone ? TRACEE_GONE : TRACEE_STOPPED;
        bunshin_error_destroy(error);
    }
}

static struct bunshin_error *wait_trap(struct tracee *tracee, const char *what) {
    int status;
    bool gone;
    struct bunshin_error *error = wait_status(tracee, now() + STEP_PATIENCE_NS, &status, &gone);
    if (error) {
        stop_running(tracee);
        return error;
    }
    if (gone) {
        tracee->state = TRACEE_GONE;
        return bunshin_error_new(BUNSHIN_ERROR_FORK, ESRCH, "thread %d of pid %d ended during %s", tracee->tid, tracee->process, what);
    }
    tracee->state = TRACEE_STOPPED;
    if (WSTOPSIG(status) != SIGTRAP || status >> 16)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, EFAULT, "thread %d of pid %d stopped with signal %d during %s", tracee->tid,
                                 tracee->process, WSTOPSIG(status), what);
    return NULL;
}

struct bunshin_error *tracee_syscall_begin(struct tracee *tracee, uint64_t vdso, long number, const uint64_t argument[6]) {
    arch_registers registers = tracee->registers;
    arch_set_syscall(&registers, vdso + tracee_vdso_syscall(), number, argument);
    tracee->changed = true;
    TRY(tracee_write_registers(tracee, &registers));
    if (ptrace(PTRACE_SINGLESTEP, tracee->tid, 0, 0) != 0)
        return bunshin_error_os("cannot step thread %d", tracee->tid);
    tracee->state = TRACEE_RUNNING;
    return NULL;
}

struct bunshin_error *tracee_syscall_end(struct tracee *tracee, int64_t *ret) {
    arch_registers registers;
    TRY(wait_trap(tracee, "a system call of ours"));
    if (ptrace(PTRACE_GETREGS, tracee->tid, 0, &registers) != 0)
        return bunshin_error_os("cannot read registers of thread %d", tracee->tid);
    *ret = (int64_t)ARCH_REG_RESULT(registers);
    return NULL;
}

struct bunshin_error *tracee_syscall(struct tracee *tracee, uint64_t vdso, long number, const uint64_t argument[6], int64_t *ret) {
    TRY(tracee_syscall_begin(tracee, vdso, number, argument));
    return tracee_syscall_end(tracee, ret);
}

struct bunshin_error *tracee_run(struct tracee *tracee, uint64_t entry, uint64_t stack, uint64_t argument) {
    arch_registers registers = tracee->registers;
    arch_set_call(&registers, entry, stack, argument);
    tracee->changed = true;
    TRY(tracee_write_registers(tracee, &registers));
    if (ptrace(PTRACE_CONT, tracee->tid, 0, 0) != 0)
        return bunshin_error_os("cannot continue thread %d", tracee->tid);
    tracee->state = TRACEE_RUNNING;
    return wait_trap(tracee, "code of ours");
}

struct bunshin_error *tracee_run_to_exec(struct tracee *tracee, int64_t deadline, bool *ret) {
    int deliver = 0;
    *ret = false;
    if (ptrace(PTRACE_SETOPTIONS, tracee->tid, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT) != 0)
        return bunshin_error_os("cannot follow thread %d", tracee->tid);
    while (!*ret) {
        int status;
        bool gone;
        if (ptrace(PTRACE_CONT, tracee->tid, 0, deliver) != 0)
            return bunshin_error_os("cannot continue thread %d", tracee->tid);
        struct bunshin_error *error = wait_status(tracee, deadline, &status, &gone);
        if (error && error->code == BUNSHIN_ERROR_TIMEOUT) {
            bunshin_error_destroy(error);
            tracee->state = TRACEE_SEIZED;
            if (tracee_interrupt_if_alive(tracee))
                TRY(tracee_wait_stop(tracee, now() + STEP_PATIENCE_NS));
            break;
        }
        TRY(error);
        if (gone) {
            tracee->state = TRACEE_GONE;
            *ret = true;
            return NULL;
        }
        int event = status >> 16;
        deliver = event ? 0 : WSTOPSIG(status);
        *ret = event == PTRACE_EVENT_EXEC || event == PTRACE_EVENT_EXIT;
    }
    (void)ptrace(PTRACE_SETOPTIONS, tracee->tid, 0, PTRACE_O_EXITKILL);
    if (*ret) { /* on to an ordinary stop, or to its end */
        if (tracee_interrupt_if_alive(tracee) && ptrace(PTRACE_CONT, tracee->tid, 0, 0) == 0) {
            tracee->state = TRACEE_SEIZED;
            return tracee_wait_stop(tracee, now() + STEP_PATIENCE_NS);
        }
        if (errno != ESRCH)
            return bunshin_error_os("cannot continue thread %d", tracee->tid);
        tracee->state = TRACEE_GONE;
    }
    return NULL;
}

void tracee_release(struct tracee *tracee) {
    if (tracee->state == TRACEE_RUNNING)
        stop_running(tracee);
    if (tracee->state == TRACEE_RUNNING) {
        late_add(tracee);
        return;
    }
    if (tracee->state == TRACEE_GONE)
        return;
    if (tracee->state == TRACEE_SEIZED) {
        /* Not stopped yet: it must be, to be let go. */
        struct bunshin_error *error = NULL;
        if (tracee_interrupt_if_alive(tracee))
            error = tracee_wait_stop(tracee, now() + 100000000);
        bunshin_error_destroy(error);
        if (error || tracee->state != TRACEE_STOPPED)
            return; /* tracee_stopped_late() lets it go */
    }
    if (tracee->changed) {
        ptrace(PTRACE_SETREGS, tracee->tid, 0, &tracee->registers);
        ptrace(PTRACE_SETSIGMASK, tracee->tid, sizeof tracee->mask, &tracee->mask);
        if (tracee->dispatch[0])
            tracee_set_dispatch(tracee->tid, tracee->dispatch);
    }
    go_on(tracee, true, 0);
    tracee->state = TRACEE_GONE;
}

void tracee_stopped_late(pid_t tid, int status) {
    struct tracee tracee;
    if (late_take(tid, &tracee)) {
        tracee.state = TRACEE_STOPPED;
        tracee_release(&tracee);
    } else /* it may be a signal that has stopped it before our stop came: that is not lost */
        (void)ptrace(PTRACE_DETACH, tid, 0, status >> 16 || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status));
}

struct bunshin_error *tracee_read(pid_t pid, uint64_t address, void *ret, size_t size) {
    struct iovec here = {ret, size}, there = {(void *)address, size};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)size)
        return NULL;
    char path[32]; /* unlike process_vm_readv, this also reads what the process itself may not */
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : pread(fd, ret, size, (off_t)address);
    struct bunshin_error *error =
        got == (ssize_t)size ? NULL : bunshin_error_os("cannot read %zu bytes at 0x%llx of pid %d", size, (unsigned long long)address, pid);
    if (fd >= 0)
        close(fd);
    return error;
}

struct bunshin_error *tracee_write(pid_t pid, uint64_t address, const void *data, size_t size) {
    struct iovec here = {(void *)data, size}, there = {(void *)address, size};
    if (process_vm_writev(pid, &here, 1, &there, 1, 0) != (ssize_t)size)
        return bunshin_error_os("cannot write %zu bytes at 0x%llx of pid %d", size, (unsigned long long)address, pid);
    return NULL;
}

struct bunshin_error *tracee_force(pid_t pid, uint64_t address, const void *data, size_t size) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t put = fd < 0 ? -1 : pwrite(fd, data, size, (off_t)address);
    struct bunshin_error *error = put == (ssize_t)size ? NULL : bunshin_error_os("cannot write %zu bytes into pid %d", size, pid);
    if (fd >= 0)
        close(fd);
    return error;
}
