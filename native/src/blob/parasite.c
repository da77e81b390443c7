/*
 * Runs for a moment inside a frozen thread of a workspace and asks the kernel what only that thread may ask. Changes
 * nothing. Its answers lie in its own memory, which pid 1 reads and then takes away.
 */
#include <linux/prctl.h>
#include <stddef.h>

#include "blob/blob.h"
#include "fork/blob_args.h"

void blob_entry(struct parasite_args *args);

static void ask_thread(struct parasite_args *args) {
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
    blob_call(SYS_prctl, PR_GET_PDEATHSIG, &args->parent_death_signal);
    blob_call(SYS_prctl, PR_GET_CHILD_SUBREAPER, &args->subreaper);
    args->keep_capabilities = (int32_t)blob_call(SYS_prctl, PR_GET_KEEPCAPS);
    args->dumpable = (int32_t)blob_call(SYS_prctl, PR_GET_DUMPABLE);
    args->no_thp = (int32_t)blob_call(SYS_prctl, PR_GET_THP_DISABLE);
    args->brk = (uint64_t)blob_call(SYS_brk, 0);
}

__attribute__((section(".text.entry"))) void blob_entry(struct parasite_args *args) {
    if (args->task == PARASITE_RESIDENT) {
        args->failed = (int32_t)-blob_call(SYS_mincore, args->range[0], args->range[1], args->resident);
    } else {
        if (args->task == PARASITE_PROCESS)
            ask_process(args);
        ask_thread(args);
        args->timer_slack = (uint64_t)blob_call(SYS_prctl, PR_GET_TIMERSLACK);
    }
    for (;;)
        arch_trap();
}
