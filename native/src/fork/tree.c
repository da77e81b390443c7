/*
 * Rebuilding the process tree. Each process is cloned under its own pid by its parent, after the parent has become what it
 * was: so sessions are inherited as they were. Orphans are cloned as siblings by the leader of their session. Leaders of
 * sessions and groups that are dead already are played by helpers for as long as it takes.
 *
 * The children run this file's code as forks of pid 1, up to the point where they jump into the restorer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork/blobs.h"
#include "fork/confine.h"
#include "fork/meet.h"
#include "fork/rebuild.h"

enum birth_way { BIRTH_CHILD, BIRTH_SIBLING, BIRTH_ORPHAN };

struct birth { /* a process to be born: one of the image, or a helper */
    int32_t process; /* index, or IMAGE_NONE for a helper */
    pid_t pid, parent, session, group;
    pid_t creator; /* who clones it; 1 for us */
    enum birth_way way;
};

struct births {
    struct birth *list;
    size_t count;
    pid_t spare; /* a pid nobody has, for a helper that lives a moment */
};

/* ---- the plan ---- */

static struct birth *find_birth(const struct births *births, pid_t pid) {
    for (size_t i = 0; i < births->count; i++)
        if (births->list[i].pid == pid)
            return &births->list[i];
    return NULL;
}

static bool is_group_leader_missing(const struct births *births, const struct birth *birth) {
    return birth->group > 0 && !find_birth(births, birth->group);
}

static struct bunshin_error *plan_births(const struct rebuild *rebuild, struct births *ret) {
    struct image_header *image = rebuild->image;
    size_t processes = image->table[TABLE_PROCESS].count;
    ret->list = calloc(processes * 3 + 1, sizeof *ret->list);
    ret->count = 0;
    if (!ret->list)
        return bunshin_error_no_memory();
    for (size_t i = 0; i < processes; i++) {
        const struct image_process *process = IMAGE_PROCESS(image, i);
        ret->list[ret->count++] = (struct birth){.process = (int32_t)i,
                                                 .pid = process->pid,
                                                 .parent = process->parent,
                                                 .session = process->session,
                                                 .group = process->group};
    }
    for (size_t i = 0; i < processes; i++) {
        struct birth *birth = &ret->list[i];
        if (birth->session > 1 && !find_birth(ret, birth->session))
            ret->list[ret->count++] = (struct birth){
                .process = IMAGE_NONE, .pid = birth->session, .parent = 1, .session = birth->session, .group = birth->session};
        if (is_group_leader_missing(ret, birth) && birth->group > 1)
            ret->list[ret->count++] =
                (struct birth){.process = IMAGE_NONE, .pid = birth->group, .parent = 1, .session = birth->session, .group = birth->group};
    }
    ret->spare = 30000;
    for (size_t i = 0; i < image->table[TABLE_THREAD].count; i++)
        while (IMAGE_THREAD(image, i)->tid == ret->spare || find_birth(ret, ret->spare))
            ret->spare++;
    for (size_t i = 0; i < ret->count; i++) {
        struct birth *birth = &ret->list[i];
        const struct birth *leader = find_birth(ret, birth->session);
        birth->creator = birth->parent;
        birth->way = BIRTH_CHILD;
        if (birth->parent != 1 || birth->session == birth->pid || birth->session <= 1)
            continue;
        if (!leader || leader == birth)
            return bunshin_error_new(BUNSHIN_ERROR_FORK, EINVAL, "pid %d belongs to session %d, which has no leader", birth->pid, birth->session);
        birth->creator = leader->pid;
        birth->way = leader->parent == 1 ? BIRTH_SIBLING : BIRTH_ORPHAN;
    }
    return NULL;
}

/* ---- a stub ---- */

static void stub(struct rebuild *rebuild, const struct births *births, const struct birth *self) __attribute__((noreturn));

static pid_t clone_with_pid(pid_t pid, uint64_t flags, int exit_signal) {
    struct clone_args arguments = {.flags = flags,
                                   .exit_signal = (uint64_t)exit_signal,
                                   .set_tid = (uint64_t)(uintptr_t)&pid,
                                   .set_tid_size = 1};
    return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

/* Clones the processes that are `creator`'s to clone and belong into its present session. Returns 0 or an errno. */
static int give_birth(struct rebuild *rebuild, const struct births *births, pid_t creator, bool own_session, pid_t session) {
    for (size_t i = 0; i < births->count; i++) {
        const struct birth *child = &births->list[i];
        if (child->creator != creator || child->pid == creator)
            continue;
        bool here = child->session == session || child->session == child->pid;
        if (own_session != here)
            continue;
        if (!own_session && getsid(0) != child->session)
            return EPERM;
        const struct image_process *process = child->process == IMAGE_NONE ? NULL : IMAGE_PROCESS(rebuild->image, child->process);
        pid_t pid;
        if (child->way == BIRTH_SIBLING)
            pid = clone_with_pid(child->pid, CLONE_PARENT, 0);
        else if (child->way == BIRTH_ORPHAN) {
            pid = clone_with_pid(births->spare, 0, 0);
            if (pid == 0) {
                pid = clone_with_pid(child->pid, 0, SIGCHLD);
                if (pid == 0)
                    stub(rebuild, births, child);
                _exit(pid < 0);
            }
            int status = 0;
            if (pid > 0 && (waitpid(pid, &status, __WALL) != pid || status))
                return ECHILD;
        } else
            pid = clone_with_pid(child->pid, 0, process && process->exit_signal >= 0 ? process->exit_signal : SIGCHLD);
        if (pid == 0)
            stub(rebuild, births, child);
        if (pid < 0)
            return errno;
    }
    return 0;
}

static void become_zombie(struct rebuild *rebuild, const struct image_process *process) __attribute__((noreturn));
static void become_zombie(struct rebuild *rebuild, const struct image_process *process) {
    (void)rebuild;
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* else /proc would hide its exit code */
    if (WIFSIGNALED(process->exit_code)) {
        int signal_number = WTERMSIG(process->exit_code);
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, signal_number);
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        sigprocmask(SIG_UNBLOCK, &one, NULL);
    }
    _exit(WEXITSTATUS(process->exit_code));
}

/* The registration of our own libc, which the process to be does not know of, must end before our memory does. */
static void leave_rseq(void) {
    extern const ptrdiff_t __rseq_offset;
    extern const unsigned int __rseq_size;
    if (__rseq_size)
        syscall(SYS_rseq, (uintptr_t)__builtin_thread_pointer() + (uintptr_t)__rseq_offset, 32, 1 /* unregister */, 0x53053053);
}

static int place_descriptors(struct rebuild *rebuild, const struct image_process *process) {
    unsigned next = 0;
    for (int32_t i = 0; i < process->descriptor_count; i++) {
        const struct image_descriptor *descriptor = IMAGE_DESCRIPTOR(rebuild->image, process->first_descriptor + i);
        unsigned fd = (unsigned)descriptor->fd;
        if (fd > next)
            syscall(SYS_close_range, next, fd - 1, 0);
        if (dup3(rebuild_fd(rebuild, descriptor->description), descriptor->fd, descriptor->close_on_exec ? O_CLOEXEC : 0) < 0)
            return errno;
        next = fd + 1;
    }
    if ((unsigned)rebuild->base > next)
        syscall(SYS_close_range, next, (unsigned)rebuild->base - 1, 0);
    int failed = anonymous_open_pidfds(rebuild, process);
    return failed ? failed : anonymous_fill_epoll(rebuild, process);
}

static void write_small(const char *path, int value) {
    char text[16];
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int length = snprintf(text, sizeof text, "%d", value);
    if (fd >= 0) {
        if (write(fd, text, (size_t)length) != length)
            value = 0; /* lowering it may not be allowed; it does not change what a program does */
        close(fd);
    }
}

static struct restorer_thread describe_thread(const struct rebuild *rebuild, const struct image_process *process, int32_t index) {
    const struct image_thread *image = IMAGE_THREAD(rebuild->image, index);
    struct restorer_thread thread = {
        .tid = image->tid,
        .policy = image->policy,
        .priority = image->priority,
        .sleep = image->sleep,
        .sleep_left = image->sleep_left > rebuild->missed ? image->sleep_left - rebuild->missed : 0,
        .tid_address = image->tid_address,
        .robust_list = image->robust_list,
        .robust_length = image->robust_length,
        .rseq = image->rseq,
        .rseq_size = image->rseq_size,
        .rseq_signature = image->rseq_signature,
        .stack_base = image->stack_base,
        .stack_size = image->stack_size,
        .stack_flags = image->stack_flags,
        .nice = image->nice,
        .io_priority = image->io_priority,
        .confined = process->confined,
        .timer_slack = image->timer_slack,
        .capabilities = {process->capabilities[0], process->capabilities[1], process->capabilities[2]},
        .ambient = process->capabilities[4],
    };
    arch_registers registers = image->registers;
    for (int i = 0; i < 3; i++)
        thread.sleep_argument[i] = ARCH_REG_ARG(registers, i);
    memcpy(thread.affinity, image->affinity, sizeof thread.affinity);
    memcpy(thread.uid, process->uid, sizeof thread.uid);
    memcpy(thread.gid, process->gid, sizeof thread.gid);
    memcpy(thread.name, image->name, sizeof thread.name);
    return thread;
}

static uint64_t page_up(uint64_t size) { return (size + ARCH_PAGE - 1) & ~(ARCH_PAGE - 1); }

/* Lays out the hole: code, arguments, threads, groups, filter | control page | image | stacks. Then jumps. */
static void enter_restorer(struct rebuild *rebuild, const struct image_process *process, int32_t index) {
    struct image_header *image = rebuild->image;
    size_t filter_size = confine_filter_length() * sizeof(struct sock_filter);
    uint64_t code = page_up(blob_restorer_size());
    uint64_t data = page_up(sizeof(struct restorer_args) + sizeof(struct restorer_thread) * (size_t)process->thread_count +
                            process->groups.size + filter_size + 256);
    uint64_t control = page_up(sizeof(struct rebuild_control));
    uint64_t stacks = (uint64_t)(process->thread_count + process->leader_gone) * RESTORER_STACK;
    uint64_t at = process->hole;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (code + data + control + page_up(image->size) + stacks > process->hole_size)
        meet_fail(rebuild, process->pid, STEP_MAP, ENOMEM, "no room for the restorer");
    if (mmap((void *)at, code + data, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0) != (void *)at)
        meet_fail(rebuild, process->pid, STEP_MAP, errno, "room for the restorer");
    memcpy((void *)at, blob_restorer(), blob_restorer_size());
    struct restorer_args *args = (void *)(at + code);
    uint64_t threads = (at + code + sizeof *args + 15) & ~15ull;
    for (int32_t i = 0; i < process->thread_count; i++)
        ((struct restorer_thread *)threads)[i] = describe_thread(rebuild, process, process->first_thread + i);
    uint64_t groups = threads + sizeof(struct restorer_thread) * (uint64_t)process->thread_count;
    memcpy((void *)groups, IMAGE_HEAP(image, process->groups), process->groups.size);
    uint64_t filter = (groups + process->groups.size + 15) & ~15ull;
    memcpy((void *)filter, confine_filter(), filter_size);
    at += code + data;
    /* The control page is shared memory: moved, not copied. */
    uint64_t control_at = at;
    if (mremap(rebuild->control, 0, control, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)at) != (void *)at)
        meet_fail(rebuild, process->pid, STEP_MAP, errno, "the control page");
    at += control;
    uint64_t image_at_address = at;
    if (mmap((void *)at, image->size, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, rebuild->image_fd, 0) != (void *)at)
        meet_fail(rebuild, process->pid, STEP_MAP, errno, "the image");
    at += page_up(image->size);
    if (mmap((void *)at, stacks, PROT_READ | PROT_WRITE, flags, -1, 0) != (void *)at)
        meet_fail(rebuild, process->pid, STEP_MAP, errno, "stacks for the restorer");
    *args = (struct restorer_args){
        .self = process->hole,
        .self_end = at + stacks,
        .image = image_at_address,
        .control = control_at,
        .threads = threads,
        .stacks = at + RESTORER_STACK,
        .task_end = ARCH_TASK_END,
        .process = index,
        .fd_base = rebuild->base,
        .store_fd = rebuild->store_base,
        .description_fd = rebuild->description_base,
        .thread_count = process->thread_count,
        .fault = rebuild->fault,
        .without = rebuild->init->without,
        .filter = filter,
        .filter_length = confine_filter_length(),
        .groups = groups,
        .group_count = process->groups.size / sizeof(uint32_t),
    };
    leave_rseq();
    uint64_t stack = (at + RESTORER_STACK) & ~15ull, entry = process->hole;
    __asm__ volatile("mov %0, %%rsp\n"
                     "xor %%ebp, %%ebp\n"
                     "mov %1, %%rdi\n"
                     "call *%2\n"
                     :
                     : "r"(stack), "r"(args), "r"(entry)
                     : "memory", "rdi");
    __builtin_unreachable();
}

static void stub(struct rebuild *rebuild, const struct births *births, const struct birth *self) {
    const struct image_process *process = self->process == IMAGE_NONE ? NULL : IMAGE_PROCESS(rebuild->image, self->process);
    int failed = give_birth(rebuild, births, self->pid, false, self->session);
    if (!failed && rebuild->fault == STEP_PLACE)
        meet_fail(rebuild, self->pid, STEP_PLACE, EIO, "a fault was asked for");
    if (!failed && self->session == self->pid && setsid() < 0)
        failed = errno;
    if (!failed && process)
        failed = pty_take_control(rebuild, process);
    if (!failed && self->group == self->pid && self->session != self->pid && setpgid(0, 0) != 0)
        meet_fail(rebuild, self->pid, STEP_PLACE, errno, "lead its group");
    if (!failed)
        failed = give_birth(rebuild, births, self->pid, true, self->session);
    if (rebuild->fault == STEP_BIRTH)
        failed = EIO;
    if (failed)
        meet_fail(rebuild, self->pid, STEP_BIRTH, failed, "");
    meet_arrive(rebuild, STAGE_BORN);
    /* Only who needs another process to be there waits for it: most are born into their group. */
    bool joins = self->group > 1 && getpgrp() != self->group;
    if (joins || (process && process->terminal != IMAGE_NONE && self->session == self->pid))
        meet_wait(rebuild, STAGE_BORN);
    if (joins && setpgid(0, self->group) != 0)
        meet_fail(rebuild, self->pid, STEP_PLACE, errno, "join its group");
    meet_arrive(rebuild, STAGE_GROUPED);
    if (!process) {
        meet_wait(rebuild, STAGE_GROUPED);
        meet_arrive(rebuild, STAGE_READY);
        _exit(0); /* a helper has done its part */
    }
    if (process->state == PROCESS_ZOMBIE) {
        meet_wait(rebuild, STAGE_GROUPED);
        prctl(PR_SET_NAME, process->name);
        meet_arrive(rebuild, STAGE_READY);
        become_zombie(rebuild, process);
    }
    if ((failed = pty_set_foreground(rebuild, process)))
        meet_fail(rebuild, self->pid, STEP_PLACE, failed, "its terminal's foreground group");
    if (fchdir(rebuild_fd(rebuild, process->directory)) != 0)
        meet_fail(rebuild, self->pid, STEP_PLACE, errno, "its working directory");
    umask(process->umask);
    personality(process->personality);
    if (rebuild->fault == STEP_DESCRIPTOR)
        meet_fail(rebuild, self->pid, STEP_DESCRIPTOR, EIO, "");
    if ((failed = place_descriptors(rebuild, process)))
        meet_fail(rebuild, self->pid, STEP_DESCRIPTOR, failed, "");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    /* Also where it was not: its memory descends from pid 1's, outside whose user namespace an undumpable process could
     * not be sealed again. */
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    if (process->subreaper)
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (process->parent_death_signal)
        prctl(PR_SET_PDEATHSIG, process->parent_death_signal, 0, 0, 0);
    if (process->no_thp)
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (process->oom_score)
        write_small("/proc/self/oom_score_adj", process->oom_score);
    meet_arrive(rebuild, STAGE_READY);
    enter_restorer(rebuild, process, self->process);
    __builtin_unreachable();
}

/* ---- the order ---- */

struct bunshin_error *tree_rebuild(struct rebuild *rebuild) {
    struct births births;
    TRY(plan_births(rebuild, &births));
    struct image_header *image = rebuild->image;
    uint32_t total = (uint32_t)births.count, parked = (uint32_t)image->table[TABLE_THREAD].count;
    int64_t deadline = init_now() + MEET_PATIENCE_NS;
    for (size_t i = 0; i < image->table[TABLE_PROCESS].count; i++)
        parked += (uint32_t)IMAGE_PROCESS(image, i)->leader_gone; /* it says so when it leaves */
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        rebuild->control->wanted[stage] = stage == STAGE_PARKED ? parked : total;
    (void)confine_filter(); /* built once, here, and not in every stub */
    int failed = give_birth(rebuild, &births, 1, true, -1);
    if (!failed)
        failed = give_birth(rebuild, &births, 1, false, -1);
    struct bunshin_error *error = failed ? bunshin_error_new(BUNSHIN_ERROR_FORK, failed, "cannot clone a process under its pid: %s", strerrordesc_np(failed)) : NULL;
    if (!error)
        error = meet_await(rebuild, STAGE_BORN, total, deadline);
    if (!error) {
        meet_let_pass(rebuild, STAGE_BORN);
        error = meet_await(rebuild, STAGE_GROUPED, total, deadline);
    }
    if (!error) {
        meet_let_pass(rebuild, STAGE_GROUPED);
        error = meet_await(rebuild, STAGE_READY, total, deadline);
    }
    for (size_t i = 0; !error && i < births.count; i++)
        if (births.list[i].process == IMAGE_NONE)
            waitpid(births.list[i].pid, NULL, __WALL);
    if (!error)
        error = meet_await(rebuild, STAGE_PARKED, parked, deadline);
    free(births.list);
    return error;
}
