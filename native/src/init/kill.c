/*
 * What a call started ends with it, also what has left its process group, its session or its parent. A process belongs to
 * the call if it was born after the call began and every process between it and the session (or pid 1, for orphans) was
 * too: what older background processes start is theirs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/procfs.h"
#include "init/init.h"

pid_t kill_newest_pid(void) {
    char text[32] = "";
    int fd = open("/proc/sys/kernel/ns_last_pid", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 ? atoi(text) : 0;
}

struct entry {
    pid_t pid, ppid;
    char state;
    bool target;
};

static struct entry *find(struct entry *entries, size_t count, pid_t pid) {
    for (size_t i = 0; i < count; i++)
        if (entries[i].pid == pid)
            return &entries[i];
    return NULL;
}

/* Pids count up and wrap: after a wrap a young process has a small number. */
static bool is_young(pid_t pid, pid_t mark, pid_t newest) {
    return newest >= mark ? pid > mark && pid <= newest : pid > mark || pid <= newest;
}

static size_t list_targets(struct init *init, pid_t root, pid_t mark, struct entry **ret) {
    int *pids = NULL;
    size_t count = 0, targets = 0;
    *ret = NULL;
    if (!procfs_numbers(init->proc, ".", &pids, &count))
        return 0;
    struct entry *entries = calloc(count + 1, sizeof *entries);
    size_t used = 0;
    for (size_t i = 0; entries && i < count; i++) {
        char name[16];
        struct process_stat stat;
        snprintf(name, sizeof name, "%d", pids[i]);
        if (pids[i] != 1 && procfs_stat(init->proc, name, &stat))
            entries[used++] = (struct entry){.pid = stat.pid, .ppid = stat.ppid, .state = stat.state};
    }
    free(pids);
    pid_t newest = kill_newest_pid();
    for (size_t i = 0; i < used; i++) {
        bool mine = entries[i].state != 'Z' && entries[i].state != 'X';
        for (struct entry *at = &entries[i]; mine;) {
            bool session = false;
            for (int kind = CALL_SHELL; kind <= CALL_PYTHON; kind++)
                session |= init->session[kind].pid == at->pid;
            if (session || !is_young(at->pid, mark, newest)) {
                mine = false;
                break;
            }
            if (at->ppid == root || at->ppid == 1)
                break;
            at = find(entries, used, at->ppid);
            if (!at)
                break; /* its parent ended between two reads: an orphan */
        }
        if (entries[i].pid == root && root != init->session[CALL_SHELL].pid && root != init->session[CALL_PYTHON].pid)
            mine = entries[i].state != 'Z';
        entries[i].target = mine;
        targets += mine;
    }
    size_t kept = 0;
    for (size_t i = 0; i < used; i++)
        if (entries[i].target)
            entries[kept++] = entries[i];
    *ret = entries;
    return targets;
}

void kill_call_tree(struct init *init, pid_t root, pid_t mark) {
    /* Stopping all before killing any keeps a tree that respawns itself from outrunning us. */
    for (int round = 0; round < 200; round++) {
        struct entry *targets;
        size_t count = list_targets(init, root, mark, &targets);
        for (size_t i = 0; i < count; i++)
            kill(targets[i].pid, SIGSTOP);
        for (size_t i = 0; i < count; i++)
            kill(targets[i].pid, SIGKILL);
        free(targets);
        if (!count)
            return;
        usleep(round < 10 ? 500 : 5000);
    }
}
