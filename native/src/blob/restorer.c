/*
 * The last part of a rebuild, in the process itself: from the address range that is free in the process to be, everything
 * else is unmapped and the sealed memory mapped in its place; then threads, timers, signals, and at the end privileges are
 * given up. Every thread parks; pid 1 gives each its registers, takes this range away, and lets go.
 */
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "blob/blob.h"
#include "common/wire.h"
#include "fork/blob_args.h"

#define PR_TIMER_CREATE_RESTORE_IDS 77
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif
#define SIGNAL_DEFAULT 0

void blob_entry(struct restorer_args *args);
static void thread_begin(struct restorer_args *args, struct restorer_thread *thread) __attribute__((noreturn));

#define IMAGE(a) ((struct image_header *)(a)->image)
#define CONTROL(a) ((struct rebuild_control *)(a)->control)
#define THREAD(a, i) ((struct restorer_thread *)(a)->threads + (i))

static void __attribute__((noreturn)) fail(struct restorer_args *args, enum restorer_step step, long result, int64_t detail) {
    struct rebuild_control *control = CONTROL(args);
    uint32_t none = 0;
    if (__atomic_compare_exchange_n(&control->failed, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        control->failed_pid = IMAGE_PROCESS(IMAGE(args), args->process)->pid;
        control->failed_step = step;
        control->failed_errno = (int32_t)-result;
        control->failed_detail = detail;
        __atomic_store_n(&control->failed, 2, __ATOMIC_SEQ_CST);
    }
    blob_call(SYS_futex, &control->stage[STAGE_PARKED], FUTEX_WAKE, 0x7fffffff);
    for (;;)
        blob_call(SYS_exit_group, 127);
}

static void check(struct restorer_args *args, enum restorer_step step, long result, int64_t detail) {
    if (args->fault == (int)step)
        fail(args, step, -5 /* EIO */, detail);
    if (result < 0 && result > -4096)
        fail(args, step, result, detail);
}

/* What the kernel may rightly refuse (a processor that is not there, a nice value that takes a privilege) stays as it is. */
static void check_mildly(struct restorer_args *args, enum restorer_step step, long result, int64_t detail) {
    if (result != -1 /* EPERM */ && result != -13 /* EACCES */ && result != -22 /* EINVAL */ && result != -12 /* ENOMEM */ && result != -38)
        check(args, step, result, detail);
}

/* ---- memory ---- */

/* For now it may lock what it could allow itself to; pid 1 sets all limits at the end. */
static void raise_lock_limit(void) {
    uint64_t limit[2];
    if (blob_call(SYS_prlimit64, 0, RLIMIT_MEMLOCK, 0, limit) == 0 && limit[0] != limit[1]) {
        limit[0] = limit[1];
        blob_call(SYS_prlimit64, 0, RLIMIT_MEMLOCK, limit, 0);
    }
}

static void lock(struct restorer_args *args, const struct image_op *op) {
    long failed = blob_call(SYS_mlock2, op->address, op->length, op->flags);
    if (failed) {
        /* A limit; or pages that cannot be there, behind a guard or the end of a file: they are locked all the same. */
        raise_lock_limit();
        check(args, STEP_MAP, blob_call(SYS_mlock2, op->address, op->length, 1 /* MLOCK_ONFAULT */), (int64_t)op->address);
        blob_call(SYS_mlock2, op->address, op->length, op->flags);
    }
}

static void restore_memory(struct restorer_args *args, const struct image_process *process) {
    struct image_header *image = IMAGE(args);
    check(args, STEP_UNMAP, blob_call(SYS_munmap, ARCH_PAGE * 16, args->self - ARCH_PAGE * 16), 0);
    check(args, STEP_UNMAP, blob_call(SYS_munmap, args->self_end, args->task_end - args->self_end), 1);
    for (int32_t i = 0; i < process->op_count; i++) {
        const struct image_op *op = IMAGE_OP(image, process->first_op + i);
        int source = op->source == SOURCE_ANONYMOUS ? -1
                     : op->source >= SOURCE_FILE    ? args->description_fd + (op->source - SOURCE_FILE)
                                                    : args->store_fd + op->source;
        if (op->kind == OP_MAP) {
            long at = blob_call(SYS_mmap, op->address, op->length, op->protection, op->flags, source, op->offset);
            check(args, STEP_MAP, at, (int64_t)op->address);
        } else if (op->kind == OP_COPY) {
            for (uint64_t done = 0; done < op->length;) {
                long got = blob_call(SYS_pread64, source, op->address + done, op->length - done, op->offset + done);
                check(args, STEP_COPY, got ? got : -5, (int64_t)op->address);
                done += (uint64_t)got;
            }
        } else if (op->kind == OP_PROTECT)
            check(args, STEP_PROTECT, blob_call(SYS_mprotect, op->address, op->length, op->protection), (int64_t)op->address);
        else if (op->kind == OP_ADVISE)
            check_mildly(args, STEP_PROTECT, blob_call(SYS_madvise, op->address, op->length, op->flags), (int64_t)op->address);
        else if (op->kind == OP_ATTACH) {
            long at = blob_call(SYS_shmat, IMAGE_SEGMENT(image, op->source)->id, op->address, op->flags);
            check(args, STEP_MAP, at, (int64_t)op->address);
        } else if (op->kind == OP_MOVE) {
            long at = blob_call(SYS_mremap, op->offset, op->length, op->length, 3 /* MREMAP_MAYMOVE | MREMAP_FIXED */, op->address);
            check(args, STEP_MAP, at, (int64_t)op->address);
        } else if (op->kind == OP_GROW)
            check(args, STEP_MAP, blob_call(SYS_mremap, op->address, op->offset, op->length, 0), (int64_t)op->address);
        else if (op->kind == OP_UNMAP)
            check(args, STEP_UNMAP, blob_call(SYS_munmap, op->address, op->length), (int64_t)op->address);
        else if (op->kind == OP_GUARD)
            check(args, STEP_PROTECT, blob_call(SYS_madvise, op->address, op->length, 102 /* MADV_GUARD_INSTALL */), (int64_t)op->address);
        else if (op->kind == OP_SEAL)
            check(args, STEP_PROTECT, blob_call(462 /* mseal */, op->address, op->length, 0), (int64_t)op->address);
        else if (op->kind == OP_NAME) {
            long failed = blob_call(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, op->address, op->length,
                                    (uint8_t *)image_at(image, TABLE_HEAP) + op->offset);
            if (failed != -9 /* EBADF */ && failed != -22 /* EINVAL: a kernel that names only what is no object's, or nothing */)
                check(args, STEP_PROTECT, failed, (int64_t)op->address);
        } else if (op->kind == OP_LOCK)
            lock(args, op);
    }
    if (process->vdso)
        check(args, STEP_VDSO, blob_call(SYS_arch_prctl, ARCH_MAP_VDSO, process->vdso), (int64_t)process->vdso);
    struct prctl_mm_map layout = process->layout;
    layout.auxv = (void *)IMAGE_HEAP(image, process->auxv);
    layout.auxv_size = (uint32_t)process->auxv.size;
    layout.exe_fd = (uint32_t)(args->description_fd + process->executable);
    check(args, STEP_LAYOUT, blob_call(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, &layout, sizeof layout, 0), 0);
    check(args, STEP_DESCRIPTOR, blob_call(SYS_close_range, args->fd_base, ~0u, 0), args->fd_base);
}

/* Those of other threads than main ones can only be opened now; a thread of another process may still be on its way. */
static void open_thread_pidfds(struct restorer_args *args, const struct image_process *process) {
    for (int32_t i = 0; i < process->descriptor_count; i++) {
        const struct image_descriptor *descriptor = IMAGE_DESCRIPTOR(IMAGE(args), process->first_descriptor + i);
        const struct image_description *record = IMAGE_DESCRIPTION(IMAGE(args), descriptor->description);
        const struct image_pidfd *state = (const void *)IMAGE_HEAP(IMAGE(args), record->data);
        if (record->kind != KIND_PIDFD || state->pid < 0 || state->thread != PIDFD_OF_OTHER_THREAD)
            continue;
        long fd = -1;
        for (int tries = 0; tries < 10000; tries++) {
            int64_t moment[2] = {0, 100000};
            fd = blob_call(SYS_pidfd_open, state->pid, 0200 /* O_EXCL */ | (record->flags & 04000 /* O_NONBLOCK */));
            if (fd >= 0)
                break;
            blob_call(SYS_nanosleep, moment, 0);
        }
        check(args, STEP_DESCRIPTOR, fd, descriptor->fd);
        check(args, STEP_DESCRIPTOR, blob_call(SYS_dup3, fd, descriptor->fd, descriptor->close_on_exec ? 02000000 /* O_CLOEXEC */ : 0), descriptor->fd);
        blob_call(SYS_close, fd);
    }
}

/* ---- locks: a process loses its own when it closes any descriptor of the file, so they come after that ---- */

static void restore_locks(struct restorer_args *args) {
    struct image_header *image = IMAGE(args);
    for (uint64_t i = 0; i < image->table[TABLE_LOCK].count; i++) {
        const struct image_lock *lock = IMAGE_LOCK(image, i);
        if (lock->kind != LOCK_POSIX || lock->process != args->process)
            continue;
        struct {
            short type, whence;
            int32_t pad;
            int64_t start, length;
            int32_t pid, pad2;
        } flock = {.type = lock->exclusive ? 1 : 0, .start = lock->start, .length = lock->length};
        check(args, STEP_DESCRIPTOR, blob_call(SYS_fcntl, lock->fd, 6 /* F_SETLK */, &flock), lock->fd);
    }
}

/* ---- semaphores: what the end of this process is to undo. The values are right already, and stay ---- */

#define VALUE_MOST 32767

static void restore_undo(struct restorer_args *args, const struct image_undo *undo, int value) {
    int16_t sign = undo->value < 0 ? -1 : 1;
    for (int left = undo->value * sign; left;) {
        int room = value > VALUE_MOST - value ? value : VALUE_MOST - value, part = left < room ? left : room;
        struct {
            uint16_t number;
            int16_t change, flags;
        } with = {(uint16_t)undo->number, (int16_t)(-sign * part), 0x1000 /* SEM_UNDO */},
          against = {(uint16_t)undo->number, (int16_t)(sign * part), 0}, both[2];
        /* The one that adds comes first, unless the other has more room. */
        bool adds = value + part <= VALUE_MOST;
        both[0] = (with.change > 0) == adds ? with : against;
        both[1] = (with.change > 0) == adds ? against : with;
        check(args, STEP_SEMAPHORE, blob_call(SYS_semop, undo->id, both, 2), undo->id);
        left -= part;
    }
}

static void restore_undos(struct restorer_args *args) {
    struct image_header *image = IMAGE(args);
    for (uint64_t i = 0; i < image->table[TABLE_UNDO].count; i++) {
        const struct image_undo *undo = IMAGE_UNDO(image, i);
        for (uint64_t s = 0; undo->process == args->process && s < image->table[TABLE_SEMAPHORES].count; s++) {
            const struct image_semaphores *set = IMAGE_SEMAPHORES(image, s);
            if (set->id == undo->id)
                restore_undo(args, undo, ((const uint16_t *)(const void *)IMAGE_HEAP(image, set->values))[undo->number]);
        }
    }
}

/* ---- signals and timers ---- */

static void restore_actions(struct restorer_args *args, const struct image_process *process) {
    struct image_action *actions = (struct image_action *)image_at(IMAGE(args), TABLE_ACTION) + process->first_action;
    for (int signal = 1; signal <= 64; signal++) {
        if (signal == SIGKILL || signal == SIGSTOP)
            continue;
        struct {
            uint64_t handler, flags, restorer, mask;
        } action = {SIGNAL_DEFAULT, 0, 0, 0};
        for (int32_t i = 0; i < process->action_count; i++)
            if (actions[i].signal == signal) {
                action.handler = actions[i].handler;
                action.flags = actions[i].flags;
                action.restorer = actions[i].restorer;
                action.mask = actions[i].mask;
            }
        check(args, STEP_ACTION, blob_call(SYS_rt_sigaction, signal, &action, 0, 8), signal);
    }
}

static void restore_timers(struct restorer_args *args, const struct image_process *process) {
    struct image_timer *timers = (struct image_timer *)image_at(IMAGE(args), TABLE_TIMER) + process->first_timer;
    bool ids = process->timer_count && !(args->without & WITHOUT_TIMER_IDS);
    long exact = ids ? blob_call(SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0) : -1;
    for (int32_t i = 0; i < process->timer_count; i++) {
        struct {
            uint64_t value;
            int32_t signal, notify;
            int32_t thread;
            uint8_t rest[44];
        } event = {.value = timers[i].value, .signal = timers[i].signal, .notify = timers[i].notify, .thread = timers[i].thread};
        for (int tries = 0;; tries++) {
            int32_t id = timers[i].id;
            check(args, STEP_TIMER, blob_call(SYS_timer_create, timers[i].clock, &event, &id), timers[i].id);
            if (id == timers[i].id)
                break;
            /* Before Linux 6.16 ids only count up: those before it are made and thrown away. */
            if (exact == 0 || id > timers[i].id || tries > 100000)
                fail(args, STEP_TIMER, -16, timers[i].id);
            blob_call(SYS_timer_delete, id);
        }
        int64_t setting[4] = {timers[i].interval[0], timers[i].interval[1], timers[i].remaining[0], timers[i].remaining[1]};
        if (clock_is_of_time(timers[i].clock))
            timer_left_add(setting + 2, 1, -args->missed);
        if (setting[2] || setting[3])
            check(args, STEP_TIMER, blob_call(SYS_timer_settime, timers[i].id, 0, setting, 0), timers[i].id);
    }
    if (exact == 0)
        blob_call(SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0, 0);
    for (int which = 0; which < 3; which++) {
        const int64_t *timer = process->interval_timer[which];
        int64_t setting[4] = {timer[0], timer[1], timer[2], timer[3]};
        if (which == 0)
            timer_left_add(setting + 2, 1000, -args->missed);
        if (setting[2] || setting[3])
            check(args, STEP_TIMER, blob_call(SYS_setitimer, which, setting, 0), which);
    }
}

static void restore_pending(struct restorer_args *args, const struct image_process *process) {
    struct image_signal *signals = (struct image_signal *)image_at(IMAGE(args), TABLE_SIGNAL) + process->first_signal;
    for (int32_t i = 0; i < process->signal_count; i++) {
        int32_t number = *(int32_t *)signals[i].info;
        long result = signals[i].tid ? blob_call(SYS_rt_tgsigqueueinfo, process->pid, signals[i].tid, number, signals[i].info)
                                     : blob_call(SYS_rt_sigqueueinfo, process->pid, number, signals[i].info);
        check(args, STEP_SIGNAL, result, number);
    }
}

/* ---- threads ---- */

/* Ambient capabilities are raised while all are permitted; the last capset() leaves those that may stay. */
static void raise_ambient(struct restorer_args *args, struct restorer_thread *thread) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    check(args, STEP_CREDENTIALS, blob_call(SYS_capget, &header, data), 5);
    for (int half = 0; half < 2; half++) {
        data[half].inheritable = (uint32_t)(thread->capabilities[0] >> (32 * half));
        data[half].effective = data[half].permitted;
    }
    check(args, STEP_CREDENTIALS, blob_call(SYS_capset, &header, data), 6);
    for (int capability = 0; thread->ambient >> capability; capability++)
        if (thread->ambient >> capability & 1)
            check(args, STEP_CREDENTIALS, blob_call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability), capability);
}

/* What takes effect on whatever the thread does next comes last. */
static void restore_settings(const struct image_settings *settings) {
    if (settings->parent_death_signal)
        blob_call(SYS_prctl, PR_SET_PDEATHSIG, settings->parent_death_signal);
    for (int kind = 0; kind < 3; kind++)
        if (settings->speculation[kind] > 0 && settings->speculation[kind] & PR_SPEC_PRCTL && !(settings->speculation[kind] & PR_SPEC_ENABLE))
            blob_call(SYS_prctl, PR_SET_SPECULATION_CTRL, kind, settings->speculation[kind] & ~PR_SPEC_PRCTL);
    if (settings->cpuid == 0)
        blob_call(SYS_arch_prctl, ARCH_SET_CPUID, 0);
    if (settings->tsc == PR_TSC_SIGSEGV)
        blob_call(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV);
}

static void give_up_privileges(struct restorer_args *args, struct restorer_thread *thread, bool main_thread) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    blob_call(SYS_prctl, PR_SET_KEEPCAPS, 1);
    int same = 1;
    for (int i = 0; i < 4; i++)
        same &= thread->uid[i] == thread->uid[0] && thread->gid[i] == thread->gid[0];
    if (args->group_count)
        check_mildly(args, STEP_CREDENTIALS, blob_call(SYS_setgroups, args->group_count, args->groups), 4); /* where one id is mapped */
    if (!same || thread->gid[0])
        check(args, STEP_CREDENTIALS, blob_call(SYS_setresgid, thread->gid[0], thread->gid[1], thread->gid[2]), 0);
    if (!same || thread->uid[0]) {
        check(args, STEP_CREDENTIALS, blob_call(SYS_setresuid, thread->uid[0], thread->uid[1], thread->uid[2]), 1);
        check(args, STEP_CREDENTIALS, blob_call(SYS_prctl, PR_SET_DUMPABLE, 1), 2);
    }
    for (int capability = 0; args->drop_bounding >> capability; capability++)
        if (args->drop_bounding >> capability & 1)
            check(args, STEP_CREDENTIALS, blob_call(SYS_prctl, PR_CAPBSET_DROP, capability), capability);
    if (thread->ambient)
        raise_ambient(args, thread);
    blob_call(SYS_prctl, PR_SET_KEEPCAPS, 0);
    if (thread->settings.securebits)
        check(args, STEP_CREDENTIALS, blob_call(SYS_prctl, PR_SET_SECUREBITS, thread->settings.securebits), 4);
    /* The filter first: setting one needs no privilege after no_new_privs, and what follows is allowed by it. The main
     * thread, which is last to come here, sets it for all: that is much cheaper than one each. */
    if (thread->confined && main_thread) {
        struct {
            uint16_t length;
            uint64_t filter;
        } program = {(uint16_t)args->filter_length, args->filter};
        long odd = blob_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
        check(args, STEP_CONFINE, odd > 0 ? -16 /* EBUSY: a thread that cannot have it */ : odd, odd);
    }
    for (int half = 0; half < 2; half++) {
        data[half].inheritable = (uint32_t)(thread->capabilities[0] >> (32 * half));
        data[half].permitted = (uint32_t)(thread->capabilities[1] >> (32 * half));
        data[half].effective = (uint32_t)(thread->capabilities[2] >> (32 * half));
    }
    check(args, STEP_CREDENTIALS, blob_call(SYS_capset, &header, data), 3);
}

static void __attribute__((noreturn)) park(struct restorer_args *args, struct restorer_thread *thread) {
    struct rebuild_control *control = CONTROL(args);
    if (__atomic_add_fetch(&control->stage[STAGE_PARKED], 1, __ATOMIC_SEQ_CST) == control->wanted[STAGE_PARKED])
        blob_call(SYS_futex, &control->stage[STAGE_PARKED], FUTEX_WAKE, 1);
    /* A sleep goes on in the kernel from here: pid 1 finds the thread in it and gives it its registers; the kernel then
     * restarts the sleep by itself, with the time that is left. */
    if (thread->sleep == SLEEP_NANOSLEEP) {
        int64_t left[2] = {thread->sleep_left / 1000000000, thread->sleep_left % 1000000000};
        blob_call(SYS_clock_nanosleep, 1 /* CLOCK_MONOTONIC */, 0, left, 0);
    } else if (thread->sleep == SLEEP_POLL)
        blob_call(SYS_poll, thread->sleep_argument[0], thread->sleep_argument[1], (thread->sleep_left + 999999) / 1000000);
    else if (thread->sleep == SLEEP_FUTEX) {
        int64_t left[2] = {thread->sleep_left / 1000000000, thread->sleep_left % 1000000000};
        blob_call(SYS_futex, thread->sleep_argument[0], thread->sleep_argument[1], thread->sleep_argument[2], left);
    }
    if (thread->sleep)
        __atomic_store_n(&thread->sleep, -1, __ATOMIC_SEQ_CST); /* over before it was stopped */
    for (;;)
        blob_call(SYS_futex, &control->open[STAGE_PARKED], FUTEX_WAIT, 0, 0);
}

static void __attribute__((noreturn)) thread_finish(struct restorer_args *args, struct restorer_thread *thread) {
    check(args, STEP_THREAD, blob_call(SYS_prctl, PR_SET_NAME, thread->name), thread->tid);
    check(args, STEP_THREAD, blob_call(SYS_set_tid_address, thread->tid_address), thread->tid);
    if (thread->robust_list)
        check(args, STEP_THREAD, blob_call(SYS_set_robust_list, thread->robust_list, thread->robust_length), thread->tid);
    if (thread->rseq)
        check(args, STEP_THREAD, blob_call(SYS_rseq, thread->rseq, thread->rseq_size, 0, thread->rseq_signature), thread->tid);
    struct {
        uint64_t base;
        int32_t flags, pad;
        uint64_t size;
    } stack = {thread->stack_base, thread->stack_flags & ~1 /* SS_ONSTACK is not set, it happens */, 0, thread->stack_size};
    check(args, STEP_THREAD, blob_call(SYS_sigaltstack, &stack, 0), thread->tid);
    check_mildly(args, STEP_SCHEDULE, blob_call(SYS_prctl, PR_SET_TIMERSLACK, thread->settings.timer_slack), thread->tid);
    check_mildly(args, STEP_SCHEDULE, blob_call(SYS_sched_setaffinity, 0, sizeof thread->affinity, thread->affinity), thread->tid);
    if (thread->policy) {
        int32_t priority = thread->priority;
        check(args, STEP_SCHEDULE, blob_call(SYS_sched_setscheduler, 0, thread->policy, &priority), thread->policy);
    }
    check_mildly(args, STEP_SCHEDULE, blob_call(SYS_setpriority, 0, 0, thread->nice), thread->nice);
    check_mildly(args, STEP_SCHEDULE, blob_call(SYS_ioprio_set, 1, 0, thread->io_priority), thread->io_priority);
    give_up_privileges(args, thread, thread->tid == IMAGE_PROCESS(IMAGE(args), args->process)->pid);
    restore_settings(&thread->settings);
    park(args, thread);
}

static void thread_begin(struct restorer_args *args, struct restorer_thread *thread) { thread_finish(args, thread); }

/* Starts a thread on a stack of its own; in it, calls thread_begin. */
static long start_thread(struct restorer_args *args, struct restorer_thread *thread, uint64_t stack) {
    int32_t tid = thread->tid;
    struct clone_args clone = {
        .flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
        .stack = stack,
        .stack_size = RESTORER_STACK,
        .set_tid = (uint64_t)&tid,
        .set_tid_size = 1,
    };
    long result;
    __asm__ volatile("mov %[args], %%r12\n"
                     "mov %[thread], %%r13\n"
                     "syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "xor %%ebp, %%ebp\n"
                     "mov %%r12, %%rdi\n"
                     "mov %%r13, %%rsi\n"
                     "call *%[entry]\n"
                     "hlt\n"
                     "1:\n"
                     : "=a"(result)
                     : "a"(SYS_clone3), "D"(&clone), "S"(sizeof clone), [args] "r"(args), [thread] "r"(thread), [entry] "b"(thread_begin)
                     : "rcx", "r11", "r12", "r13", "memory");
    return result;
}

/* A main thread that had ended before: it ends again, alone, as soon as the others are there. */
static void __attribute__((noreturn)) leader_leave(struct restorer_args *args, const struct image_process *process) {
    struct rebuild_control *control = CONTROL(args);
    blob_call(SYS_prctl, PR_SET_NAME, process->name);
    give_up_privileges(args, THREAD(args, 0), true); /* who may signal the process is asked of its main thread */
    if (__atomic_add_fetch(&control->stage[STAGE_PARKED], 1, __ATOMIC_SEQ_CST) == control->wanted[STAGE_PARKED])
        blob_call(SYS_futex, &control->stage[STAGE_PARKED], FUTEX_WAKE, 1);
    for (;;)
        blob_call(SYS_exit, process->exit_code >> 8);
}

/* ---- the order ---- */

__attribute__((section(".text.entry"))) void blob_entry(struct restorer_args *args) {
    const struct image_process *process = IMAGE_PROCESS(IMAGE(args), args->process);
    restore_memory(args, process);
    restore_locks(args);
    restore_undos(args);
    restore_actions(args, process);
    int32_t own = process->leader_gone ? 0 : 1; /* threads that the main thread itself is */
    for (int32_t i = own; i < args->thread_count; i++)
        check(args, STEP_THREAD, start_thread(args, THREAD(args, i), args->stacks + (uint64_t)(i - own) * RESTORER_STACK), THREAD(args, i)->tid);
    open_thread_pidfds(args, process);
    restore_pending(args, process);
    restore_timers(args, process);
    if (process->never_written_and_executed > 0)
        check(args, STEP_PROTECT, blob_call(SYS_prctl, PR_SET_MDWE, process->never_written_and_executed), 0);
    if (process->lock_future) { /* the last that has to do with memory: from here on whatever is mapped is locked */
        raise_lock_limit();
        check(args, STEP_PROTECT, blob_call(SYS_mlockall, process->lock_future), 1);
    }
    if (process->leader_gone)
        leader_leave(args, process);
    thread_finish(args, THREAD(args, 0));
}
