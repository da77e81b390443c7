/*
 * A workspace in the background: its processes run only where nobody else wants the processor (SCHED_IDLE), until it is
 * called back. The kernel lets anyone go there, but leaving it takes a privilege of the machine's (CAP_SYS_NICE, or
 * RLIMIT_NICE), which pid 1 in its namespace cannot have: so it is the keeper that does it, from outside, and only if it
 * has been found able to undo it. What is started in there later inherits the policy.
 *
 * Where sched_autogroup_enabled is set, the kernel shares the processor among sessions first, whatever runs in them: a
 * session of nothing but SCHED_IDLE gets as much as another. So the sessions of the workspace, which pid 1 has made, are
 * made light as well.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/procfs.h"
#include "keeper/keeper.h"

#define PASSES 8 /* a process may be born while the others are gone through: again, until none is new */

bool background_can_end(void) {
    const struct sched_param none = {0};
    pid_t pid = fork();
    if (pid == 0)
        _exit(sched_setscheduler(0, SCHED_IDLE, &none) != 0 || sched_setscheduler(0, SCHED_OTHER, &none) != 0);
    int status = 1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && status == 0;
}

struct kin { /* a process and whose child it is */
    pid_t pid, parent;
};

static int by_pid(const void *a, const void *b) {
    pid_t one = ((const struct kin *)a)->pid, other = ((const struct kin *)b)->pid;
    return (one > other) - (one < other);
}

static bool is_below(const struct kin *kin, size_t count, const struct kin *at, pid_t root) {
    for (size_t steps = 0; at && steps <= count; steps++) {
        if (at->pid == root)
            return true;
        at = bsearch(&(struct kin){.pid = at->parent}, kin, count, sizeof *kin, by_pid);
    }
    return false;
}

/* `root` and all below it, found among all processes of the machine; NULL where there is no memory. */
static pid_t *tree_of(int proc, pid_t root, size_t *ret_count) {
    int *pids;
    size_t count, known = 0;
    *ret_count = 0;
    if (!procfs_numbers(proc, ".", &pids, &count))
        return NULL;
    struct kin *kin = calloc(count ? count : 1, sizeof *kin);
    for (size_t i = 0; kin && i < count; i++) {
        char name[16];
        struct process_stat stat;
        snprintf(name, sizeof name, "%d", pids[i]);
        if (procfs_stat(proc, name, &stat))
            kin[known++] = (struct kin){.pid = stat.pid, .parent = stat.ppid};
    }
    if (kin)
        qsort(kin, known, sizeof *kin, by_pid);
    for (size_t i = 0; i < known; i++)
        if (is_below(kin, known, &kin[i], root))
            pids[(*ret_count)++] = kin[i].pid; /* no more of them than there were */
    free(kin);
    return pids;
}

/* The members of a workspace's cgroup, which is quicker where there is one; NULL for none. */
static pid_t *members_of(const struct cgroup_set *groups, size_t *ret_count) {
    char path[4200];
    *ret_count = 0;
    if (!groups->count || snprintf(path, sizeof path, "%s/cgroup.procs", groups->path[0]) >= (int)sizeof path)
        return NULL;
    FILE *file = fopen(path, "re");
    pid_t *pids = NULL;
    size_t room = 0;
    int pid;
    while (file && fscanf(file, "%d", &pid) == 1) {
        if (*ret_count == room) {
            pid_t *more = realloc(pids, (room = room ? 2 * room : 32) * sizeof *pids);
            if (!more)
                break;
            pids = more;
        }
        pids[(*ret_count)++] = pid;
    }
    if (file)
        fclose(file);
    return pids;
}

/* Gives every thread of a process that has the policy `from` the policy `to`. How many it were, or -1 with errno. */
static int switch_threads(int proc, pid_t pid, int from, int to) {
    const struct sched_param none = {0};
    char path[32];
    int *tids;
    size_t count;
    int switched = 0;
    snprintf(path, sizeof path, "%d/task", pid);
    if (!procfs_numbers(proc, path, &tids, &count))
        return 0;
    for (size_t i = 0; i < count; i++) {
        int policy = sched_getscheduler(tids[i]);
        if (policy < 0 || (policy & ~SCHED_RESET_ON_FORK) != from)
            continue;
        if (sched_setscheduler(tids[i], to, &none) == 0)
            switched++;
        else if (errno != ESRCH) {
            free(tids);
            return -1;
        }
    }
    free(tids);
    return switched;
}

/* Gives the session of a process the weight of nice 19, or its usual one. Nothing where the kernel has no such groups. */
static void weigh_session(int proc, pid_t pid, bool on) {
    char path[32];
    snprintf(path, sizeof path, "%d/autogroup", pid);
    int fd = openat(proc, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    const char *nice = on ? "19" : "0";
    (void)!write(fd, nice, on ? 2 : 1);
    close(fd);
}

struct bunshin_error *background_set(pid_t root, const struct cgroup_set *groups, bool on) {
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return bunshin_error_os("cannot change the priority of a workspace: /proc");
    struct bunshin_error *error = NULL;
    int switched = 1;
    for (int pass = 0; pass < PASSES && switched > 0 && !error; pass++) {
        size_t count;
        pid_t *pids = members_of(groups, &count);
        if (!pids)
            pids = tree_of(proc, root, &count);
        switched = 0;
        for (size_t i = 0; i < count && !error; i++) {
            int here = switch_threads(proc, pids[i], on ? SCHED_OTHER : SCHED_IDLE, on ? SCHED_IDLE : SCHED_OTHER);
            if (here < 0)
                error = bunshin_error_os("cannot change the priority of a workspace: sched_setscheduler");
            else if (here) {
                switched += here;
                weigh_session(proc, pids[i], on);
            }
        }
        free(pids);
    }
    close(proc);
    return error;
}
