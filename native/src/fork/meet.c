#define _GNU_SOURCE
#include "fork/meet.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0); }

void meet_fail(struct rebuild *rebuild, pid_t pid, enum restorer_step step, int errnum, const char *text) {
    struct rebuild_control *control = rebuild->control;
    uint32_t none = 0;
    if (__atomic_compare_exchange_n(&control->failed, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        control->failed_pid = pid;
        control->failed_step = step;
        control->failed_errno = errnum;
        snprintf(control->failed_text, sizeof control->failed_text, "%s", text);
        __atomic_store_n(&control->failed, 2, __ATOMIC_SEQ_CST);
    }
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        wake(&control->stage[stage]);
    _exit(127);
}

void meet_arrive(struct rebuild *rebuild, enum stage stage) {
    struct rebuild_control *control = rebuild->control;
    if (__atomic_add_fetch(&control->stage[stage], 1, __ATOMIC_SEQ_CST) == control->wanted[stage])
        wake(&control->stage[stage]);
}

/* A stub waits until all have arrived at a stage and pid 1 lets them pass. */
void meet_wait(struct rebuild *rebuild, enum stage stage) {
    struct rebuild_control *control = rebuild->control;
    while (!__atomic_load_n(&control->open[stage], __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &control->open[stage], FUTEX_WAIT, 0, NULL, NULL, 0);
}

void meet_wait_for(uint32_t *word, uint32_t at_least) {
    for (uint32_t now; (now = __atomic_load_n(word, __ATOMIC_SEQ_CST)) < at_least;)
        syscall(SYS_futex, word, FUTEX_WAIT, now, NULL, NULL, 0);
}

void meet_raise(uint32_t *word) {
    __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
    wake(word);
}

static const char *const step_names[STEP_COUNT] = {
    [STEP_UNMAP] = "clear its memory",       [STEP_MAP] = "map its memory",      [STEP_COPY] = "copy its memory",
    [STEP_PROTECT] = "protect its memory",   [STEP_VDSO] = "map the vdso",       [STEP_LAYOUT] = "set its memory layout",
    [STEP_ACTION] = "set a signal handler",  [STEP_THREAD] = "start a thread",   [STEP_TIMER] = "set a timer",
    [STEP_SIGNAL] = "queue a signal",        [STEP_LIMIT] = "set a limit",       [STEP_CREDENTIALS] = "set its credentials",
    [STEP_CONFINE] = "confine it",           [STEP_SCHEDULE] = "schedule it",    [STEP_DESCRIPTOR] = "place its descriptors",
    [STEP_PLACE] = "set its place in the tree", [STEP_BIRTH] = "clone it",
    [STEP_SEMAPHORE] = "take on what its end undoes of a semaphore",
    [STEP_SOCKET] = "make a socket",
};

static const char *const stage_names[STAGE_COUNT] = {
    [STAGE_BORN] = "while the tree was born",
    [STAGE_GROUPED] = "while groups were joined",
    [STAGE_MOVED] = "while groups were left",
    [STAGE_READY] = "while descriptors were placed",
    [STAGE_PARKED] = "while its memory was mapped",
};

static struct bunshin_error *failure(const struct rebuild *rebuild) {
    const struct rebuild_control *control = rebuild->control;
    for (int tries = 0; __atomic_load_n(&control->failed, __ATOMIC_SEQ_CST) == 1 && tries < 1000; tries++)
        usleep(10);
    int step = control->failed_step;
    return bunshin_error_new(BUNSHIN_ERROR_FORK, control->failed_errno, "cannot rebuild pid %d: cannot %s%s%s (0x%llx): %s",
                             control->failed_pid, step > 0 && step < STEP_COUNT && step_names[step] ? step_names[step] : "go on",
                             *control->failed_text ? ", " : "", control->failed_text, (unsigned long long)control->failed_detail,
                             strerrordesc_np(control->failed_errno) ? strerrordesc_np(control->failed_errno) : "unknown error");
}

/* Whom a signal killed, or the kernel for want of memory, has no word to say: it is found by looking. */
static struct bunshin_error *find_dead(const struct rebuild *rebuild, enum stage stage) {
    for (size_t i = 0; i < rebuild->image->table[TABLE_PROCESS].count; i++) {
        const struct image_process *process = IMAGE_PROCESS(rebuild->image, i);
        if (process->state == PROCESS_ZOMBIE && stage >= STAGE_READY)
            continue; /* it may have ended as it should: its parent sees to that */
        char name[16];
        struct process_stat stat;
        snprintf(name, sizeof name, "%d", process->pid);
        bool there = procfs_stat(rebuild->init->proc, name, &stat);
        if (there ? (stat.state == 'Z' || stat.state == 'X') && stat.threads <= 1 : stage > STAGE_BORN)
            return bunshin_error_new(BUNSHIN_ERROR_FORK, ESRCH, "cannot rebuild pid %d (%.15s): it was killed %s", process->pid,
                                     process->name, stage_names[stage]);
    }
    siginfo_t dead = {0}; /* a helper is in no table */
    if (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 && dead.si_pid && dead.si_code != CLD_EXITED)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, ESRCH, "cannot rebuild: pid %d was killed by signal %d %s", dead.si_pid, dead.si_status,
                                 stage_names[stage]);
    return NULL;
}

/* The first that is not there yet, for the error. */
static pid_t find_late(const struct rebuild *rebuild, char *ret_state) {
    for (size_t i = 0; i < rebuild->image->table[TABLE_PROCESS].count; i++) {
        pid_t pid = IMAGE_PROCESS(rebuild->image, i)->pid;
        char name[16];
        struct process_stat stat;
        snprintf(name, sizeof name, "%d", pid);
        if (!procfs_stat(rebuild->init->proc, name, &stat) || strchr("TtD", stat.state)) {
            *ret_state = procfs_stat(rebuild->init->proc, name, &stat) ? stat.state : '-';
            return pid;
        }
    }
    return 0;
}

/* pid 1 waits until `count` have arrived. */
struct bunshin_error *meet_await(struct rebuild *rebuild, enum stage stage, uint32_t count, int64_t deadline) {
    struct rebuild_control *control = rebuild->control;
    for (int looks = 0;; looks++) {
        uint32_t here = __atomic_load_n(&control->stage[stage], __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&control->failed, __ATOMIC_SEQ_CST))
            return failure(rebuild);
        if (here >= count)
            return NULL;
        if (looks % 5 == 4)
            TRY(find_dead(rebuild, stage));
        if (init_now() > deadline) {
            char state = '-';
            pid_t late = find_late(rebuild, &state);
            return bunshin_error_new(BUNSHIN_ERROR_FORK, ETIMEDOUT, "cannot rebuild: only %u of %u came so far within %d s (%s); pid %d is in state %c",
                                     here, count, (int)(MEET_PATIENCE_NS / 1000000000), stage_names[stage], late, state);
        }
        struct timespec patience = {0, 20000000};
        syscall(SYS_futex, &control->stage[stage], FUTEX_WAIT, here, &patience, NULL, 0);
    }
}

void meet_let_pass(struct rebuild *rebuild, enum stage stage) {
    __atomic_store_n(&rebuild->control->open[stage], 1, __ATOMIC_SEQ_CST);
    wake(&rebuild->control->open[stage]);
}
