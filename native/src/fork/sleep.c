#define _GNU_SOURCE
#include "fork/sleep.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "init/init.h"

/* The kernel's own: never seen by a program except through ptrace. */
#define ERESTARTSYS 512
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516

/* Sleeps that were interrupted and go on, by thread and place: where they came from, and when they end. */
static struct carried {
    pid_t tid;
    long number;
    uint64_t ip, sp;
    int64_t deadline;
} *carried;
static size_t carried_count;

static struct carried *find_carried(pid_t tid, const arch_registers *registers) {
    for (size_t i = 0; i < carried_count; i++)
        if (carried[i].tid == tid && carried[i].ip == ARCH_REG_IP(*registers) && carried[i].sp == ARCH_REG_SP(*registers))
            return &carried[i];
    return NULL;
}

static void carry(pid_t tid, const arch_registers *registers, long number, int64_t deadline) {
    struct carried *entry = NULL;
    for (size_t i = 0; i < carried_count && !entry; i++)
        if (carried[i].tid == tid)
            entry = &carried[i]; /* a thread sleeps in one place only */
    if (!entry) {
        struct carried *grown = realloc(carried, (carried_count + 1) * sizeof *grown);
        if (!grown)
            return; /* the next seal then takes the whole time: late, not wrong */
        carried = grown;
        entry = &carried[carried_count++];
    }
    *entry = (struct carried){tid, number, ARCH_REG_IP(*registers), ARCH_REG_SP(*registers), deadline};
}

void sleep_remember(const struct image_thread *thread, int64_t deadline) {
    arch_registers registers = thread->registers;
    carry(thread->tid, &registers, (long)ARCH_REG_NUMBER(registers), deadline);
}

static bool read_text(int proc, const char *path, char *text, size_t size) {
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, size - 1);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    return true;
}

/* A scheduler clock reading "123456.789012" (ms) after the name, in ns; -1 when there is none. */
static int64_t exec_start(const char *text) {
    const char *at = strstr(text, "se.exec_start");
    at = at ? strchr(at, ':') : NULL;
    if (!at)
        return -1;
    long long ms = 0, ns = 0;
    if (sscanf(at + 1, " %lld.%6lld", &ms, &ns) != 2)
        return -1;
    return ms * 1000000 + ns;
}

/* What to add to the scheduler clock of a processor to get CLOCK_MONOTONIC: read off ourselves, there. */
static bool clock_offset(int proc, int processor, int64_t *ret) {
    char text[1024];
    cpu_set_t before, there;
    if (sched_getaffinity(0, sizeof before, &before) != 0)
        return false;
    CPU_ZERO(&there);
    CPU_SET((size_t)processor, &there);
    if (sched_setaffinity(0, sizeof there, &there) != 0)
        return false;
    sched_yield(); /* brings our own reading up to date */
    int64_t now = init_now();
    bool ok = read_text(proc, "self/sched", text, sizeof text);
    sched_setaffinity(0, sizeof before, &before);
    int64_t own = ok ? exec_start(text) : -1;
    *ret = now - own;
    return own >= 0;
}

/* Calls that answer EINTR to any stop and wait for a relative time: which argument holds it, and how. */
static enum sleep_kind timed_argument(long number, int *ret) {
    switch (number) {
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
        *ret = 3;
        return SLEEP_MILLISECONDS;
    case SYS_epoll_pwait2:
    case SYS_semtimedop:
        *ret = 3;
        return SLEEP_TIMESPEC;
    case SYS_rt_sigtimedwait:
        *ret = 2;
        return SLEEP_TIMESPEC;
    case SYS_io_getevents:
    case SYS_io_pgetevents:
        *ret = 4;
        return SLEEP_TIMESPEC;
    default:
        return SLEEP_NONE;
    }
}

static bool is_relative_sleep(long number, const uint64_t *argument) {
    int at;
    enum sleep_kind kind = timed_argument(number, &at);
    if (kind != SLEEP_NONE)
        return kind == SLEEP_MILLISECONDS ? (int)argument[at] > 0 : argument[at] != 0;
    switch (number) {
    case SYS_nanosleep:
        return argument[1] == 0; /* the kernel writes the rest where the caller asked for it */
    case SYS_clock_nanosleep:
        return !(argument[1] & TIMER_ABSTIME) && argument[3] == 0;
    case SYS_poll:
        return (int)argument[2] > 0;
    case SYS_futex:
        return (argument[1] & 127) == FUTEX_WAIT && argument[3] != 0;
    default:
        return false;
    }
}

int64_t sleep_began(int proc, pid_t pid, pid_t tid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "%d/task/%d/syscall", pid, tid);
    if (!read_text(proc, path, text, sizeof text))
        return 0;
    long number;
    unsigned long long raw[6];
    if (sscanf(text, "%ld %llx %llx %llx %llx %llx %llx", &number, &raw[0], &raw[1], &raw[2], &raw[3], &raw[4], &raw[5]) != 7)
        return 0; /* running, or not in a system call */
    uint64_t argument[6];
    for (int i = 0; i < 6; i++)
        argument[i] = raw[i];
    if (!is_relative_sleep(number, argument))
        return 0;
    snprintf(path, sizeof path, "%d/task/%d/sched", pid, tid);
    if (!read_text(proc, path, text, sizeof text))
        return 0;
    int64_t started = exec_start(text), offset;
    snprintf(path, sizeof path, "%d/task/%d/stat", pid, tid);
    if (started < 0 || !read_text(proc, path, text, sizeof text))
        return 0;
    char *field = strrchr(text, ')');
    for (int i = 2; field && i < 39; i++)
        field = strchr(field + 1, ' ');
    if (!field || !clock_offset(proc, atoi(field + 1), &offset))
        return 0;
    return started + offset;
}

static int64_t timespec_at(pid_t pid, uint64_t address) {
    struct timespec time;
    struct bunshin_error *error = tracee_read(pid, address, &time, sizeof time);
    bunshin_error_destroy(error);
    return error ? -1 : (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* What was left is written below the stack, where nothing is that a program counts on while it is in a system call. */
static uint64_t scratch_of(const arch_registers *registers) { return (ARCH_REG_SP(*registers) - ARCH_RED_ZONE - 64) & ~15ull; }

bool sleep_shorten(pid_t pid, arch_registers *registers, enum sleep_kind kind, int64_t left) {
    int at;
    if (timed_argument((long)ARCH_REG_NUMBER(*registers), &at) != kind || kind == SLEEP_NONE)
        return false;
    if (left < 0)
        left = 0;
    if (kind == SLEEP_MILLISECONDS) {
        ARCH_REG_ARG(*registers, at) = (unsigned long long)((left + 999999) / 1000000);
        return true;
    }
    struct timespec rest = {left / 1000000000, left % 1000000000};
    struct bunshin_error *error = tracee_write(pid, scratch_of(registers), &rest, sizeof rest);
    if (!error)
        ARCH_REG_ARG(*registers, at) = scratch_of(registers);
    bunshin_error_destroy(error);
    return !error;
}

/* The call is made again with the time it had left. */
static void mend_timed(struct tracee *tracee) {
    int at;
    enum sleep_kind kind = timed_argument((long)ARCH_REG_NUMBER(tracee->registers), &at);
    uint64_t value = kind == SLEEP_NONE ? 0 : ARCH_REG_ARG(tracee->registers, at);
    int64_t whole = -1;
    if (kind == SLEEP_MILLISECONDS && (int)value > 0)
        whole = (int64_t)(int)value * 1000000;
    else if (kind == SLEEP_TIMESPEC && value)
        whole = timespec_at(tracee->process, value);
    if (whole < 0)
        return;
    int64_t left = tracee->asleep_since ? whole - (init_now() - tracee->asleep_since) : whole;
    tracee->sleep = kind;
    tracee->sleep_left = left < 0 ? 0 : left > whole ? whole : left;
    if (sleep_shorten(tracee->process, &tracee->registers, kind, tracee->sleep_left))
        tracee->changed = true;
}

void sleep_mend_interrupted(struct tracee *tracee) {
    tracee->sleep = SLEEP_NONE;
    if ((int64_t)ARCH_REG_NUMBER(tracee->registers) < 0 || (int64_t)ARCH_REG_RESULT(tracee->registers) != -EINTR)
        return;
    switch ((long)ARCH_REG_NUMBER(tracee->registers)) {
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_rt_sigtimedwait:
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_readv:
    case SYS_writev:
    case SYS_sendmmsg:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
    case SYS_read:
    case SYS_write:
        /* "Again, unless a handler ran": then the program sees the EINTR it would have seen. */
        ARCH_REG_RESULT(tracee->registers) = (unsigned long long)-ERESTARTNOHAND;
        tracee->changed = true;
        mend_timed(tracee);
        break;
    default:
        break;
    }
}

static bool was_restarted(const struct tracee *tracee) {
    return (int64_t)ARCH_REG_NUMBER(tracee->registers) >= 0 &&
           (int64_t)ARCH_REG_RESULT(tracee->registers) == -ERESTART_RESTARTBLOCK;
}

long sleep_number(const struct tracee *tracee) {
    long number = (long)ARCH_REG_NUMBER(tracee->registers);
    const struct carried *entry = number == SYS_restart_syscall ? find_carried(tracee->tid, &tracee->registers) : NULL;
    return entry ? entry->number : number;
}

void sleep_note(struct tracee *tracee) {
    arch_registers *registers = &tracee->registers;
    if (!was_restarted(tracee))
        return;
    long number = sleep_number(tracee);
    uint64_t argument[6];
    for (int i = 0; i < 6; i++)
        argument[i] = ARCH_REG_ARG(*registers, i);
    int64_t now = init_now(), whole = -1, rest = -1;
    enum sleep_kind kind = SLEEP_NANOSLEEP;
    switch (number) {
    case SYS_nanosleep:
        whole = timespec_at(tracee->tid, argument[0]);
        if (argument[1])
            rest = timespec_at(tracee->tid, argument[1]);
        break;
    case SYS_clock_nanosleep:
        whole = argument[1] & TIMER_ABSTIME ? -1 : timespec_at(tracee->tid, argument[2]);
        if (argument[3])
            rest = timespec_at(tracee->tid, argument[3]);
        break;
    case SYS_poll:
        kind = SLEEP_POLL;
        whole = (int64_t)(int)argument[2] * 1000000;
        break;
    case SYS_futex:
        kind = SLEEP_FUTEX;
        if ((argument[1] & 127) == FUTEX_WAIT && argument[3])
            whole = timespec_at(tracee->tid, argument[3]);
        break;
    default:
        break;
    }
    const struct carried *entry = find_carried(tracee->tid, registers);
    if (whole >= 0) {
        if (entry && entry->deadline > now)
            rest = entry->deadline - now;
        else if (rest < 0)
            rest = tracee->asleep_since ? whole - (now - tracee->asleep_since) : whole;
        tracee->sleep = kind;
        tracee->sleep_left = rest < 0 ? 0 : rest > whole ? whole : rest;
    }
    carry(tracee->tid, registers, number, now + (whole >= 0 ? tracee->sleep_left : 0));
}
