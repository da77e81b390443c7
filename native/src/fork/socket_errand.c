/*
 * The kernel writes into a unix socket who called socketpair(), listen() or connect(): SO_PEERCRED and SO_PEERPIDFD tell.
 * So these calls are made by the stub that will be that process. Until then all stubs live with pid 1's descriptor table,
 * in which the results appear. For a process that is dead by now somebody else is born under its pid, for that one call.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork/socket_unix.h"

#define ERRAND_PATIENCE_NS 5000000000ll
#define GROUPS_MOST 64

static uint32_t bit_of(pid_t pid) { return 1u << (pid % 32); }

/* ---- who makes it ---- */

struct identity {
    uid_t uid;
    gid_t gid;
    int group_count, dumpable, bits;
    gid_t groups[GROUPS_MOST];
};

static void read_identity(struct identity *ret) {
    ret->uid = geteuid();
    ret->gid = getegid();
    ret->group_count = getgroups(GROUPS_MOST, ret->groups);
    ret->dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    ret->bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
}

/* Only what differs, and with all capabilities kept: another user's connect() must not fail by permissions. */
static bool take_identity(uid_t uid, gid_t gid, const gid_t *groups, int group_count, const struct identity *from) {
    bool other_groups = group_count >= 0 && (group_count != from->group_count ||
                                             memcmp(groups, from->groups, sizeof *groups * (size_t)(group_count > 0 ? group_count : 0)) != 0);
    if (uid == from->uid && gid == from->gid && !other_groups)
        return false;
    (void)prctl(PR_SET_SECUREBITS, (unsigned long)from->bits | SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
    if (other_groups)
        (void)syscall(SYS_setgroups, group_count, groups); /* where it is not allowed, nobody has other ones */
    (void)syscall(SYS_setresgid, -1, gid, -1);
    (void)syscall(SYS_setresuid, -1, uid, -1);
    return true;
}

static long perform(struct rebuild *rebuild) {
    struct rebuild_control *control = rebuild->control;
    struct identity own, other = {0};
    read_identity(&own);
    const gid_t *groups = (const void *)IMAGE_HEAP(rebuild->image, ((struct span){control->errand.groups, 0}));
    bool changed = take_identity(control->errand.uid, control->errand.gid, groups, (int)control->errand.group_count, &own);
    const int64_t *argument = control->errand.argument;
    long result = syscall(control->errand.number, argument[0], argument[1], argument[2], argument[3]);
    if (result < 0)
        result = -errno;
    if (changed) {
        read_identity(&other);
        (void)take_identity(own.uid, own.gid, own.groups, own.group_count, &other);
        (void)prctl(PR_SET_SECUREBITS, (unsigned long)own.bits, 0, 0, 0);
        (void)prctl(PR_SET_DUMPABLE, own.dumpable == 1, 0, 0, 0);
    }
    return result;
}

int socket_run_errands(struct rebuild *rebuild, pid_t self) {
    struct rebuild_control *control = rebuild->control;
    for (;;) {
        uint32_t turn = __atomic_load_n(&control->errand.turn, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&control->errand.over, __ATOMIC_SEQ_CST))
            break;
        if (__atomic_load_n(&control->errand.pid, __ATOMIC_SEQ_CST) == self) {
            control->errand.result = perform(rebuild);
            __atomic_store_n(&control->errand.pid, 0, __ATOMIC_SEQ_CST);
            syscall(SYS_futex, &control->errand.pid, FUTEX_WAKE, 1, NULL, NULL, 0);
            continue;
        }
        syscall(SYS_futex, &control->errand.turn, FUTEX_WAIT_BITSET, turn, NULL, NULL, bit_of(self));
    }
    return unshare(CLONE_FILES) == 0 ? 0 : errno;
}

/* ---- who wants it made ---- */

static long by_stub(struct rebuild *rebuild, pid_t pid) {
    struct rebuild_control *control = rebuild->control;
    int64_t deadline = init_now() + ERRAND_PATIENCE_NS;
    __atomic_store_n(&control->errand.pid, pid, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&control->errand.turn, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &control->errand.turn, FUTEX_WAKE_BITSET, 0x7fffffff, NULL, NULL, bit_of(pid));
    while (__atomic_load_n(&control->errand.pid, __ATOMIC_SEQ_CST)) {
        if (__atomic_load_n(&control->failed, __ATOMIC_SEQ_CST))
            return -ECHILD;
        if (init_now() > deadline)
            return -ETIMEDOUT;
        struct timespec patience = {0, 20000000};
        syscall(SYS_futex, &control->errand.pid, FUTEX_WAIT, pid, &patience, NULL, 0);
    }
    return (long)control->errand.result;
}

static long by_the_dead(struct rebuild *rebuild, pid_t pid) {
    pid_t stand_in = tree_clone(pid, CLONE_FILES, 0);
    if (stand_in == 0) {
        rebuild->control->errand.result = perform(rebuild);
        _exit(0);
    }
    int status = 0;
    if (stand_in < 0)
        return -errno;
    if (waitpid(stand_in, &status, __WALL) != stand_in || status)
        return -ECHILD;
    return (long)rebuild->control->errand.result;
}

long unix_errand(struct rebuild *rebuild, const struct image_credentials *who, long number, long a, long b, long c, long d) {
    struct rebuild_control *control = rebuild->control;
    control->errand.number = number;
    control->errand.argument[0] = a;
    control->errand.argument[1] = b;
    control->errand.argument[2] = c;
    control->errand.argument[3] = d;
    control->errand.uid = who->pid ? who->uid : geteuid();
    control->errand.gid = who->pid ? who->gid : getegid();
    control->errand.groups = who->groups.offset;
    control->errand.group_count = who->pid ? (uint32_t)(who->groups.size / sizeof(gid_t)) : (uint32_t)-1;
    if (who->pid <= 1)
        return perform(rebuild);
    return tree_has(rebuild, who->pid) ? by_stub(rebuild, who->pid) : by_the_dead(rebuild, who->pid);
}

void unix_errands_over(struct rebuild *rebuild) {
    struct rebuild_control *control = rebuild->control;
    __atomic_store_n(&control->errand.over, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&control->errand.turn, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &control->errand.turn, FUTEX_WAKE_BITSET, 0x7fffffff, NULL, NULL, FUTEX_BITSET_MATCH_ANY);
}

int unix_connect_as(const struct ucred *who, const gid_t *groups, int group_count, int fd, const struct sockaddr_un *address, socklen_t length) {
    pid_t stand_in = tree_clone(who->pid, CLONE_FILES, 0);
    if (stand_in < 0 && errno == EEXIST) /* it has ended and is not waited for: one that will have ended as well */
        stand_in = (pid_t)syscall(SYS_clone3, &(struct clone_args){.flags = CLONE_FILES}, sizeof(struct clone_args));
    if (stand_in == 0) {
        struct identity own;
        read_identity(&own);
        (void)take_identity(who->uid, who->gid, groups, group_count, &own);
        _exit(connect(fd, (const struct sockaddr *)address, length) == 0 ? 0 : errno);
    }
    int status = 0;
    if (stand_in < 0)
        return errno;
    if (waitpid(stand_in, &status, __WALL) != stand_in || !WIFEXITED(status))
        return ECHILD;
    return WEXITSTATUS(status);
}
