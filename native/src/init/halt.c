/*
 * Stopping a workspace for good, so that somebody can look at the state it is in: every process but pid 1 stands still
 * from then on, and only what later calls start runs. Not by ptrace, as a seal does it: it lasts, and a seal comes on top.
 * A session is a process like any other, but calls need it: it is woken for the time of each call of its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/procfs.h"
#include "init/init.h"

#define PATIENCE_NS 10000000000ll
#define ROUND_NS 100000000ll /* what was sent the signal has this long before everybody is looked at anew */

enum pace { STILL, STOPPING, MOVING };

static bool awaits_stop(int proc, pid_t pid) {
    char path[32];
    struct buffer text = {0};
    uint64_t pending = 0;
    snprintf(path, sizeof path, "%d/status", pid);
    bool is = procfs_read(proc, path, &text) && procfs_field((char *)text.data, "ShdPnd", 16, &pending) && pending >> (SIGSTOP - 1) & 1;
    buffer_deinit(&text);
    return is;
}

/*
 * A second signal would stay pending in a process that is stopped, and a seal would stumble over it. A thread in state D
 * comes no further than the end of its system call, once the signal is there.
 */
static enum pace pace_of(int proc, pid_t pid) {
    char path[48];
    int *tids = NULL;
    size_t count = 0;
    bool moving = false, deep = false, stopped = false;
    snprintf(path, sizeof path, "%d/task", pid);
    if (!procfs_numbers(proc, path, &tids, &count))
        return STILL; /* gone */
    for (size_t i = 0; i < count; i++) {
        struct process_stat stat;
        snprintf(path, sizeof path, "%d/task/%d", pid, tids[i]);
        if (!procfs_stat(proc, path, &stat) || stat.state == 'Z' || stat.state == 'X')
            continue;
        stopped |= stat.state == 'T' || stat.state == 't';
        deep |= stat.state == 'D';
        moving |= !strchr("TtD", stat.state);
    }
    free(tids);
    if (!moving && !deep)
        return STILL;
    if (!stopped && !awaits_stop(proc, pid))
        return MOVING;
    return moving ? STOPPING : STILL;
}

/* Stops whoever moves and waits for them. *ret_moving: one that was not still when the round began, or 0. */
static struct bunshin_error *stop_round(struct init *init, pid_t *ret_moving) {
    int *pids = NULL;
    size_t count = 0;
    *ret_moving = 0;
    if (!procfs_numbers(init->proc, ".", &pids, &count))
        return bunshin_error_os("cannot freeze: cannot list processes");
    for (size_t i = 0; i < count; i++) {
        enum pace pace = pids[i] == 1 ? STILL : pace_of(init->proc, pids[i]);
        if (pace == MOVING)
            kill(pids[i], SIGSTOP);
        if (pace != STILL)
            *ret_moving = pids[i];
    }
    int64_t end = init_now() + ROUND_NS;
    for (size_t i = 0; i < count; i++)
        while (pids[i] != 1 && pace_of(init->proc, pids[i]) != STILL && init_now() < end)
            usleep(100);
    free(pids);
    return NULL;
}

static struct bunshin_error *halt_all(struct init *init) {
    for (struct call *call = init->calls; call; call = call->next)
        if (call->state != CALL_DONE)
            return bunshin_error_new(BUNSHIN_ERROR_BUSY, EBUSY, "cannot freeze: a call is running: `%.120s`", call->text ? call->text : "");
    int64_t end = init_now() + PATIENCE_NS;
    pid_t moving = 0;
    for (int quiet = 0; quiet < 2;) { /* in the second quiet round nobody is left that could have woken somebody in the first */
        TRY(stop_round(init, &moving));
        quiet = moving ? 0 : quiet + 1;
        if (moving && init_now() > end)
            return bunshin_error_new(BUNSHIN_ERROR_TIMEOUT, ETIMEDOUT, "cannot freeze: pid %d did not stop in time", moving);
    }
    init->halted = true;
    return NULL;
}

/* Answers a request: stops every process. Fails while a call runs, and where one does not stop. */
void halt_answer(struct init *init, struct wire *request) {
    if (request->fd_count)
        wire_answer(request->fd[0], init->halted ? NULL : halt_all(init));
}

void halt_wake(const struct init *init, const struct session *session) {
    if (init->halted && session->pid)
        kill(session->pid, SIGCONT);
}

void halt_again(const struct init *init, const struct session *session) {
    if (init->halted && session->pid)
        kill(session->pid, SIGSTOP);
}
