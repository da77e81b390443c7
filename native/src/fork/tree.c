/*
 * Rebuilding the process tree. Each process is cloned under its own pid, in its own session, by whom births.c says. Leaders of
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

#include "fork/births.h"
#include "fork/confine.h"
#include "fork/meet.h"
#include "fork/rebuild.h"

/* ---- the plan ---- */

static bool is_thread(const struct image_header *image, pid_t tid) {
    for (size_t i = 0; i < image->table[TABLE_THREAD].count; i++)
        if (IMAGE_THREAD(image, i)->tid == tid)
            return true;
    return false;
}

bool tree_has(const struct rebuild *rebuild, pid_t pid) { return pid == 1 || (rebuild->births && births_find(rebuild->births, pid)); }

/* Pids that nobody has, for those that live a moment. */
static void choose_between(const struct image_header *image, struct births *births) {
    pid_t spare = 30000;
    for (size_t i = 0; i < births->count; i++)
        if (births->list[i].way == BIRTH_ORPHAN || births->list[i].way == BIRTH_ADOPTED) {
            while (births_find(births, spare) || is_thread(image, spare))
                spare = spare == 32767 ? 300 : spare + 1;
            births->list[i].between = spare;
            spare = spare == 32767 ? 300 : spare + 1;
        }
}

static struct bunshin_error *plan_births(const struct rebuild *rebuild, struct births *ret) {
    struct image_header *image = rebuild->image;
    TRY(births_init(ret, image->table[TABLE_PROCESS].count));
    for (int32_t i = 0; i < (int32_t)image->table[TABLE_PROCESS].count; i++) {
        const struct image_process *process = IMAGE_PROCESS(image, i);
        births_add(ret, &(struct birth){.process = i,
                                        .pid = process->pid,
                                        .parent = process->parent,
                                        .session = process->session,
                                        .group = process->group,
                                        .foreground = process->terminal != IMAGE_NONE && process->session == process->pid
                                                          ? process->terminal_group
                                                          : 0});
        ret->zombies |= process->state == PROCESS_ZOMBIE;
    }
    const struct birth *impossible;
    TRY(births_plan(ret, &impossible));
    if (impossible)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, EINVAL, "pid %d cannot be born into session %d under pid %d", impossible->pid,
                                 impossible->session, impossible->parent);
    choose_between(image, ret);
    return NULL;
}

/* ---- a stub ---- */

static void stub(struct rebuild *rebuild, const struct births *births, const struct birth *self) __attribute__((noreturn));

pid_t tree_clone(pid_t pid, uint64_t flags, int exit_signal) {
    struct clone_args arguments = {.flags = flags,
                                   .exit_signal = (uint64_t)exit_signal,
                                   .set_tid = (uint64_t)(uintptr_t)&pid,
                                   .set_tid_size = 1};
    return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

static uint64_t tables(const struct rebuild *rebuild) { return rebuild->one_table ? CLONE_FILES : 0; }

static pid_t through_another(struct rebuild *rebuild, const struct births *births, const struct birth *child) {
    pid_t pid = tree_clone(child->between, tables(rebuild), 0);
    if (pid)
        return pid;
    pid = tree_clone(child->pid, tables(rebuild), SIGCHLD);
    if (pid == 0)
        stub(rebuild, births, child);
    if (pid < 0)
        meet_fail(rebuild, child->pid, STEP_BIRTH, errno, "");
    if (child->way == BIRTH_ADOPTED)
        meet_wait_for(&rebuild->control->adopting, (uint32_t)child->round + 1);
    _exit(0);
}

/* Clones the processes that are `creator`'s to clone and belong into its present session. Returns 0 or an errno. */
static int give_birth(struct rebuild *rebuild, const struct births *births, pid_t creator, bool own_session, pid_t session) {
    for (size_t i = 0; i < births->count; i++) {
        const struct birth *child = &births->list[i];
        if (child->creator != creator || child->pid == creator)
            continue;
        bool here = child->session == session || (child->session == child->pid && !child->early);
        if (own_session != here)
            continue;
        if (!own_session && getsid(0) != (child->early ? child->born_in : child->session))
            return EPERM;
        const struct image_process *process = child->process == IMAGE_NONE ? NULL : IMAGE_PROCESS(rebuild->image, child->process);
        pid_t pid;
        if (child->way == BIRTH_SIBLING)
            pid = tree_clone(child->pid, tables(rebuild) | CLONE_PARENT, 0);
        else if (child->way == BIRTH_CHILD) /* a helper's end must not be heard by a parent that it never had */
            pid = tree_clone(child->pid, tables(rebuild), !process ? (child->parent == 1 ? SIGCHLD : 0) : process->exit_signal >= 0 ? process->exit_signal : SIGCHLD);
        else if ((pid = through_another(rebuild, births, child)) > 0) {
            int status = 0;
            if (child->way == BIRTH_ORPHAN && (waitpid(pid, &status, __WALL) != pid || status))
                return ECHILD;
            continue;
        }
        if (pid == 0)
            stub(rebuild, births, child);
        if (pid < 0)
            return errno;
    }
    return 0;
}

/*
 * Adoptions, one adopter a round: it alone is a subreaper then, so that whoever loses his parent below it becomes its own,
 * whatever subreapers there are in between at other times.
 */
static void adopt(struct rebuild *rebuild, const struct births *births, const struct birth *self) {
    struct rebuild_control *control = rebuild->control;
    uint32_t due = 0;
    for (int round = 0; round < births->round_count; round++) {
        bool adopter = births->adopter[round] == self->pid;
        if (adopter) {
            meet_wait_for(&control->adoption_round, (uint32_t)round);
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            meet_raise(&control->adopting);
        }
        for (size_t i = 0; i < births->count; i++) {
            const struct birth *birth = &births->list[i];
            if (birth->way != BIRTH_ADOPTED || birth->round != round)
                continue;
            due++;
            if (birth->creator != self->pid)
                continue;
            waitpid(birth->between, NULL, __WALL);
            meet_raise(&control->adopted);
        }
        if (adopter) {
            meet_wait_for(&control->adopted, due);
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
            meet_raise(&control->adoption_round);
        }
    }
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

/*
 * Children that end now had ended long ago: nobody is to hear of it again. Not blocked, the signal is ignored. False when one
 * has ended in another way than it should.
 */
static bool miss_zombies(struct rebuild *rebuild, const struct births *births, pid_t self) {
    bool right = true;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_UNBLOCK, &child, NULL);
    for (size_t i = 0; i < births->count; i++) {
        const struct birth *birth = &births->list[i];
        siginfo_t info;
        if (birth->parent != self || birth->process == IMAGE_NONE)
            continue;
        const struct image_process *process = IMAGE_PROCESS(rebuild->image, birth->process);
        if (process->state != PROCESS_ZOMBIE)
            continue;
        int code = process->exit_code, status = WIFSIGNALED(code) ? WTERMSIG(code) : WEXITSTATUS(code);
        if (waitid(P_PID, (id_t)birth->pid, &info, WEXITED | WNOWAIT | __WALL) != 0 || info.si_status != status ||
            (info.si_code == CLD_EXITED) != WIFEXITED(code))
            right = false;
    }
    sigprocmask(SIG_BLOCK, &child, NULL);
    return right;
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
    if (!failed)
        failed = told_ask(rebuild, process);
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

static void join_group(struct rebuild *rebuild, const struct birth *self) {
    if (self->group > 1 && getpgrp() != self->group && setpgid(0, self->group) != 0)
        meet_fail(rebuild, self->pid, STEP_PLACE, errno, "join its group");
}

/* Flags of subreapers wait for the last adoption; helpers are reaped by whom they were put under. */
static void after_adoptions(struct rebuild *rebuild, const struct births *births, const struct birth *self) {
    if (IMAGE_PROCESS(rebuild->image, self->process)->subreaper)
        meet_wait_for(&rebuild->control->adoption_round, (uint32_t)births->round_count);
    for (size_t i = 0; i < births->count; i++)
        if (births->list[i].process == IMAGE_NONE && births->list[i].parent == self->pid)
            waitpid(births->list[i].pid, NULL, __WALL);
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
    if (!failed && (self->group == self->pid || self->leads_others) && self->session != self->pid && setpgid(0, 0) != 0)
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
    if (joins && !self->leads_others)
        join_group(rebuild, self);
    if (process && (failed = pty_set_foreground(rebuild, process)))
        meet_fail(rebuild, self->pid, STEP_PLACE, failed, "its terminal's foreground group");
    meet_arrive(rebuild, STAGE_GROUPED);
    if (births->round_count)
        adopt(rebuild, births, self);
    if (self->leads_others) {
        meet_wait(rebuild, STAGE_GROUPED);
        join_group(rebuild, self);
    }
    enum stage grouped = births->movers ? STAGE_MOVED : STAGE_GROUPED;
    if (births->movers)
        meet_arrive(rebuild, STAGE_MOVED);
    if (rebuild->one_table && (failed = socket_run_errands(rebuild, self->pid)))
        meet_fail(rebuild, self->pid, STEP_SOCKET, failed, "");
    if (!process) {
        meet_wait(rebuild, grouped);
        meet_arrive(rebuild, STAGE_READY);
        _exit(0); /* a helper has done its part */
    }
    if (process->state == PROCESS_ZOMBIE) {
        meet_wait(rebuild, grouped);
        prctl(PR_SET_NAME, process->name);
        meet_arrive(rebuild, STAGE_READY);
        become_zombie(rebuild, process);
    }
    if (births->round_count)
        after_adoptions(rebuild, births, self);
    if (fchdir(rebuild_fd(rebuild, process->directory)) != 0)
        meet_fail(rebuild, self->pid, STEP_PLACE, errno, "its working directory");
    umask(process->umask);
    if (personality(process->personality) < 0)
        meet_fail(rebuild, self->pid, STEP_PLACE, errno, "its personality");
    if (rebuild->fault == STEP_DESCRIPTOR)
        meet_fail(rebuild, self->pid, STEP_DESCRIPTOR, EIO, "");
    if ((failed = place_descriptors(rebuild, process)))
        meet_fail(rebuild, self->pid, STEP_DESCRIPTOR, failed, "");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0 /* finish.c takes it back */ ||
        (process->subreaper && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0))
        meet_fail(rebuild, self->pid, STEP_PLACE, errno, "what it is to its children");
    while (self->between && getppid() != self->parent)
        usleep(20); /* the end of the one in between is not to be taken for its parent's */
    if (process->no_thp && prctl(PR_SET_THP_DISABLE, 1, process->no_thp & ~1, 0, 0) != 0)
        meet_fail(rebuild, self->pid, STEP_PLACE, errno, "what it asked of the kernel");
    if (process->oom_score)
        write_small("/proc/self/oom_score_adj", process->oom_score);
    if (process->root != IMAGE_NONE && (fchdir(rebuild_fd(rebuild, process->root)) != 0 || chroot(".") != 0 ||
                                        fchdir(rebuild_fd(rebuild, process->directory)) != 0))
        meet_fail(rebuild, self->pid, STEP_PLACE, errno, "its root directory");
    meet_arrive(rebuild, STAGE_READY);
    if (births->zombies && !miss_zombies(rebuild, births, self->pid))
        meet_fail(rebuild, self->pid, STEP_PLACE, ECHILD, "a child that had ended");
    enter_restorer(rebuild, process, self->process);
}

/* ---- the order ---- */

struct bunshin_error *tree_rebuild(struct rebuild *rebuild) {
    struct births births;
    struct bunshin_error *error = plan_births(rebuild, &births);
    if (error) {
        births_deinit(&births);
        return error;
    }
    struct image_header *image = rebuild->image;
    uint32_t total = (uint32_t)births.count, parked = (uint32_t)image->table[TABLE_THREAD].count;
    int64_t deadline = init_now() + MEET_PATIENCE_NS;
    for (size_t i = 0; i < image->table[TABLE_PROCESS].count; i++)
        parked += (uint32_t)IMAGE_PROCESS(image, i)->leader_gone; /* it says so when it leaves */
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        rebuild->control->wanted[stage] = stage == STAGE_PARKED ? parked : total;
    (void)confine_filter(0); /* built once, here, and not in every stub */
    int failed = give_birth(rebuild, &births, 1, true, -1);
    if (!failed)
        failed = give_birth(rebuild, &births, 1, false, -1);
    error = failed ? bunshin_error_new(BUNSHIN_ERROR_FORK, failed, "cannot clone a process under its pid: %s", strerrordesc_np(failed)) : NULL;
    if (!error)
        error = meet_await(rebuild, STAGE_BORN, total, deadline);
    if (!error) {
        meet_let_pass(rebuild, STAGE_BORN);
        error = meet_await(rebuild, STAGE_GROUPED, total, deadline);
    }
    if (!error) {
        meet_let_pass(rebuild, STAGE_GROUPED);
        if (births.movers)
            error = meet_await(rebuild, STAGE_MOVED, total, deadline);
    }
    if (!error) {
        meet_let_pass(rebuild, STAGE_MOVED);
        rebuild->births = &births;
        if (rebuild->one_table)
            error = socket_rebuild_later(rebuild);
        rebuild->births = NULL;
    }
    if (!error) {
        error = meet_await(rebuild, STAGE_READY, total, deadline);
    }
    for (size_t i = 0; !error && i < births.count; i++)
        if (births.list[i].process == IMAGE_NONE && births.list[i].parent == 1)
            waitpid(births.list[i].pid, NULL, __WALL);
    if (!error)
        error = meet_await(rebuild, STAGE_PARKED, parked, deadline);
    births_deinit(&births);
    return error;
}
