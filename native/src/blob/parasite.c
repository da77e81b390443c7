/*
 * Runs for a moment inside a frozen thread of a workspace and asks the kernel what only that thread may ask. Changes
 * nothing that lasts. Its answers lie in its own memory, which pid 1 reads and then takes away.
 */
#include <linux/mman.h>
#include <linux/prctl.h>
#include <stdbool.h>
#include <stddef.h>

#include "blob/blob.h"
#include "fork/blob_args.h"

#ifndef PR_GET_MDWE
#define PR_GET_MDWE 66
#endif
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#define PR_SCHED_CORE_GET 0
#endif

void blob_entry(struct parasite_args *args);

static void ask_settings(struct parasite_args *args) {
    struct image_settings *settings = &args->settings;
    settings->timer_slack = (uint64_t)blob_call(SYS_prctl, PR_GET_TIMERSLACK);
    blob_call(SYS_prctl, PR_GET_PDEATHSIG, &settings->parent_death_signal);
    settings->securebits = (int32_t)blob_call(SYS_prctl, PR_GET_SECUREBITS);
    blob_call(SYS_prctl, PR_GET_TSC, &settings->tsc);
    settings->cpuid = (int32_t)blob_call(SYS_arch_prctl, ARCH_GET_CPUID);
    for (int kind = 0; kind < 3; kind++)
        settings->speculation[kind] = (int32_t)blob_call(SYS_prctl, PR_GET_SPECULATION_CTRL, kind);
    args->core_cookie = 0;
    blob_call(SYS_prctl, PR_SCHED_CORE, PR_SCHED_CORE_GET, 0, 0, &args->core_cookie);
    args->segments = 0;
    for (uint32_t entry = ARCH_TLS_FIRST; entry < ARCH_TLS_FIRST + 3; entry++) {
        uint32_t segment[4] = {entry}; /* struct user_desc: number, base, limit, flags; empty: read_exec_only and not present */
        if (blob_call(SYS_get_thread_area, segment) == 0 && (segment[1] || segment[2]))
            args->segments |= 2;
    }
}

static void ask_thread(struct parasite_args *args) {
    ask_settings(args);
    long failed = blob_call(SYS_prctl, PR_GET_TID_ADDRESS, &args->tid_address);
    if (!failed)
        failed = blob_call(SYS_sigaltstack, 0, &args->stack);
    if (failed)
        args->failed = (int32_t)-failed;
}

static void ask_process(struct parasite_args *args) {
    for (int signal = 1; signal <= 64; signal++)
        if (args->signals >> (signal - 1) & 1) {
            long failed = blob_call(SYS_rt_sigaction, signal, 0, &args->action[signal], 8);
            if (failed)
                args->failed = (int32_t)-failed;
        }
    for (int which = 0; which < 3; which++)
        blob_call(SYS_getitimer, which, args->interval_timer[which]);
    for (int i = 0; i < args->timer_count; i++) {
        long failed = blob_call(SYS_timer_gettime, args->timer_id[i], args->timer[i]);
        if (failed)
            args->failed = (int32_t)-failed;
        args->timer_overrun[i] = (int32_t)blob_call(SYS_timer_getoverrun, args->timer_id[i]);
    }
    blob_call(SYS_prctl, PR_GET_CHILD_SUBREAPER, &args->subreaper);
    args->dumpable = (int32_t)blob_call(SYS_prctl, PR_GET_DUMPABLE);
    args->no_thp = (int32_t)blob_call(SYS_prctl, PR_GET_THP_DISABLE);
    args->never_written_and_executed = (int32_t)blob_call(SYS_prctl, PR_GET_MDWE);
    args->brk = (uint64_t)blob_call(SYS_brk, 0);
    /* The kernel tells nobody what mlockall() said of the future, but ours was mapped after that: locked pages cannot be dropped. */
    uint64_t page = ((uint64_t)args->resident + ARCH_PAGE - 1) & ~(ARCH_PAGE - 1);
    args->locked = blob_call(SYS_madvise, page, ARCH_PAGE, MADV_DONTNEED) == -22 /* EINVAL */;
}

/* ---- semaphores: what this process's end would add to one ---- */

#define VALUE_MOST 32767
#define UNDO 0x1000
#define NO_WAIT 04000

struct operation {
    uint16_t number;
    int16_t change, flags;
};

/* Whether operations, none of which is to last, take the undo value out of its range. */
static bool overruns(struct parasite_args *args, struct operation *operations, int count) {
    operations[count] = (struct operation){operations->number, -VALUE_MOST - 1, NO_WAIT}; /* would wait for ever: all is taken back */
    long result = blob_call(SYS_semop, args->range[0], operations, count + 1);
    if (result == -34 /* ERANGE */)
        return true;
    if (result != -11 /* EAGAIN */)
        args->failed = result < 0 ? (int32_t)-result : 5 /* EIO */;
    return false;
}

/* The undo value plus `less` is too much. The semaphore is raised to its limit first, for room. */
static bool is_above(struct parasite_args *args, uint16_t number, int16_t value, int16_t less) {
    struct operation operations[3];
    int count = 0;
    if (value < VALUE_MOST)
        operations[count++] = (struct operation){number, (int16_t)(VALUE_MOST - value), 0};
    operations[count++] = (struct operation){number, (int16_t)-less, UNDO | NO_WAIT};
    return overruns(args, operations, count);
}

/* The undo value less `more` is too little; and less one more than the limit, where `twice`. */
static bool is_below(struct parasite_args *args, uint16_t number, int16_t value, int16_t more, bool twice) {
    struct operation operations[5];
    int count = 0;
    if (value)
        operations[count++] = (struct operation){number, (int16_t)-value, NO_WAIT};
    operations[count++] = (struct operation){number, more, UNDO};
    if (twice) {
        operations[count++] = (struct operation){number, (int16_t)-more, NO_WAIT};
        operations[count++] = (struct operation){number, 1, UNDO};
    }
    return overruns(args, operations, count);
}

static int16_t ask_undo(struct parasite_args *args, uint16_t number, int16_t value) {
    bool above = is_above(args, number, value, VALUE_MOST);
    if (args->failed || (!above && !is_below(args, number, value, VALUE_MOST, true)))
        return 0;
    int low = 0, high = VALUE_MOST + 1; /* the smallest that overruns lies above low; high stands for none */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        bool over = above ? is_above(args, number, value, (int16_t)middle) : is_below(args, number, value, (int16_t)middle, false);
        if (over)
            high = middle;
        else
            low = middle;
    }
    return (int16_t)(above ? VALUE_MOST + 1 - high : high - VALUE_MOST - 2);
}

static void ask_semaphores(struct parasite_args *args) {
    int16_t *values = (int16_t *)args->resident;
    for (uint64_t i = 0; i < args->range[1] && !args->failed; i++)
        values[i] = ask_undo(args, (uint16_t)i, values[i]);
}

__attribute__((section(".text.entry"))) void blob_entry(struct parasite_args *args) {
    if (args->task == PARASITE_RESIDENT) {
        args->failed = (int32_t)-blob_call(SYS_mincore, args->range[0], args->range[1], args->resident);
    } else if (args->task == PARASITE_SEMAPHORES) {
        ask_semaphores(args);
    } else {
        if (args->task == PARASITE_PROCESS)
            ask_process(args);
        ask_thread(args);
        uint64_t entry;
        if (args->task == PARASITE_PROCESS && blob_call(SYS_modify_ldt, 0, &entry, sizeof entry) > 0)
            args->segments |= 1;
    }
    for (;;)
        arch_trap();
}
