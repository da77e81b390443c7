/* What pid 1 and the code it puts into other processes tell each other. Flat records: no pointers but addresses there. */
#ifndef BUNSHIN_FORK_BLOB_ARGS_H
#define BUNSHIN_FORK_BLOB_ARGS_H

#include <stdint.h>

#include "fork/image.h"

/*
 * What is left of a timer, {seconds, fraction}, changed by so many ns; `unit` is the fraction's, in ns. A timer that is set
 * stays so: one that should be over fires at once.
 */
static inline void timer_left_add(int64_t value[2], int64_t unit, int64_t ns) {
    if (!value[0] && !value[1])
        return;
    int64_t left = value[0] * 1000000000 + value[1] * unit + ns;
    if (left < unit)
        left = unit;
    value[0] = left / 1000000000;
    value[1] = left % 1000000000 / unit;
}

/* Whether a clock goes on by itself, not with the work of a processor. */
static inline int clock_is_of_time(int32_t clock) { return clock >= 0 && clock != 2 && clock != 3; }

/* ---- parasite: asks the kernel what only the thread itself may ask ---- */

#define PARASITE_TIMERS 128
#define PARASITE_PAGES 65536

enum parasite_task { PARASITE_PROCESS, PARASITE_THREAD, PARASITE_RESIDENT, PARASITE_SEMAPHORES };

struct parasite_args {
    int32_t task;
    int32_t timer_count;
    uint64_t signals; /* which actions to read */
    int32_t timer_id[PARASITE_TIMERS];
    uint64_t range[2]; /* PARASITE_RESIDENT: start, length; PARASITE_SEMAPHORES: id, count, and values in `resident` */
    /* answers */
    int32_t failed; /* errno of what must not fail, 0 */
    int32_t subreaper, dumpable, no_thp, never_written_and_executed;
    int32_t segments; /* 1: a local descriptor table, 2: thread-local segments */
    int32_t locked; /* what the process maps is locked at once */
    uint64_t core_cookie;
    uint64_t tid_address, brk;
    struct image_settings settings;
    struct {
        uint64_t base;
        int32_t flags, pad;
        uint64_t size;
    } stack;
    struct {
        uint64_t handler, flags, restorer, mask;
    } action[65];
    int64_t interval_timer[3][4];
    int64_t timer[PARASITE_TIMERS][4]; /* interval s, ns, value s, ns */
    int32_t timer_overrun[PARASITE_TIMERS];
    uint8_t resident[PARASITE_PAGES]; /* or int16_t[]: what is undone */
};

/* ---- restorer: turns a stub into the process that was sealed ---- */

enum stage { /* of a process being rebuilt; the control page counts how many have got there */
    STAGE_BORN,
    STAGE_GROUPED,
    STAGE_MOVED, /* only where somebody has left the group that bears its number */
    STAGE_READY, /* descriptors and places are set; memory is next */
    STAGE_PARKED,
    STAGE_COUNT,
};

/* Shared by pid 1 and all stubs of a rebuild. */
struct rebuild_control {
    uint32_t stage[STAGE_COUNT]; /* how many processes (threads for STAGE_PARKED) have reached it; futexes */
    uint32_t wanted[STAGE_COUNT]; /* of how many the last wakes pid 1 */
    uint32_t open[STAGE_COUNT];  /* set by pid 1: everybody may pass it */
    uint32_t adoption_round, adopting, adopted; /* tree.c: whose turn it is; who may lose his parent; how many have. Futexes */
    uint32_t failed;             /* the first failure: 1 while being written, then 2 */
    int32_t failed_pid, failed_step, failed_errno;
    int64_t failed_detail;
    char failed_text[160];
    struct { /* a system call that pid 1 wants made by another process: who makes a unix socket is written into it */
        uint32_t turn; /* counts what there is to look at; a futex */
        uint32_t over; /* no more to come */
        int32_t pid;   /* whose turn it is, 0 for none */
        uint32_t uid, gid, group_count;
        uint64_t groups; /* in the image's heap */
        int64_t number, argument[4], result;
        uint8_t address[128];
        int32_t ends[2];
    } errand;
};

#define RESTORER_STACK 16384

struct restorer_thread {
    int32_t tid, policy, priority, sleep;
    int64_t sleep_left;
    uint64_t sleep_argument[3];
    uint64_t tid_address, robust_list, robust_length, rseq;
    uint32_t rseq_size, rseq_signature;
    uint64_t stack_base, stack_size;
    int32_t stack_flags, nice, io_priority, confined;
    uint64_t affinity[16];
    struct image_settings settings;
    uint64_t capabilities[3];
    uint64_t ambient;
    uint32_t uid[4], gid[4];
    char name[16];
};

/* Steps of a seal, for fault injection. */
enum seal_step { SEAL_FREEZE = 1, SEAL_STORES, SEAL_CAPTURE, SEAL_IMAGE, SEAL_ANSWER };

struct restorer_args {
    uint64_t self, self_end; /* the hole: what stays mapped to the end */
    uint64_t image;          /* the image, mapped inside the hole */
    uint64_t control;        /* struct rebuild_control, mapped inside the hole */
    uint64_t threads;        /* struct restorer_thread[], in the hole */
    uint64_t stacks;         /* RESTORER_STACK each, for threads after the first */
    uint64_t task_end;
    int32_t process;         /* index */
    int32_t fd_base;         /* descriptors from here on are sources of mappings, closed at the end */
    int32_t store_fd;        /* of store 0; others follow */
    int32_t description_fd;  /* of description 0; others follow */
    int32_t thread_count;
    int32_t without;         /* enum without */
    int64_t missed;          /* ns since the seal that clocks should not show */
    int32_t fault;           /* fault injection: fail this step (enum restorer_step), or 0 */
    uint64_t filter, filter_length;
    uint64_t stub_rseq, stub_rseq_size, stub_rseq_signature;
    uint64_t groups, group_count;
    uint64_t drop_bounding; /* capabilities that pid 1 may hand on and this process may not */
};

/* Steps that can fail, as the control page reports them. */
enum restorer_step {
    STEP_UNMAP = 1,
    STEP_MAP,
    STEP_COPY,
    STEP_PROTECT,
    STEP_VDSO,
    STEP_LAYOUT,
    STEP_ACTION,
    STEP_THREAD,
    STEP_TIMER,
    STEP_SIGNAL,
    STEP_LIMIT,
    STEP_CREDENTIALS,
    STEP_CONFINE,
    STEP_SCHEDULE,
    STEP_DESCRIPTOR,
    STEP_PLACE,
    STEP_BIRTH,
    STEP_DESCRIPTIONS,
    STEP_LOCKS,
    STEP_OWN,
    STEP_FINISH,
    STEP_SEMAPHORE,
    STEP_SOCKET,
    STEP_COUNT,
};

#endif
