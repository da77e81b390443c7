#define _GNU_SOURCE
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/records.h"

struct ward { /* a workspace in the keeper's care */
    int64_t id;
    pid_t pid;
    struct cgroup_set groups;
    int reply; /* who waits for its end, or -1 */
    struct ward *next;
};

struct remover { /* a child that deletes or merges trees */
    pid_t pid;
    int reply;
    bool merges;
    struct remover *next;
};

struct keeper {
    struct ward *wards;
    struct remover *removers;
    int flush_reply; /* who waits until no remover runs, or -1 */
    bool ending;
    enum { UNTRIED, CAN_END, CANNOT_END } background; /* whether what is put into the background could be called back */
};

static int take_fd(struct wire *request, uint32_t i) {
    int fd = i < request->fd_count ? request->fd[i] : -1;
    if (fd >= 0)
        request->fd[i] = -1;
    return fd;
}

static struct bunshin_error *keeper_spawn(struct keeper *keeper, const struct wire *request) {
    const char *memory = NULL, *pids = NULL;
    struct records *plan = malloc(sizeof *plan);
    struct ward *ward = calloc(1, sizeof *ward);
    if (!plan || !ward) {
        free(plan);
        free(ward);
        return bunshin_error_no_memory();
    }
    records_init(plan, request->payload, request->payload_size);
    while (records_next(plan)) {
        if (plan->count >= 2 && !strcmp(plan->string[0], "cgroup-memory"))
            memory = plan->string[1];
        if (plan->count >= 2 && !strcmp(plan->string[0], "cgroup-pids"))
            pids = plan->string[1];
    }
    free(plan);
    char name[64];
    snprintf(name, sizeof name, "bunshin-%d-%lld", getpid(), (long long)request->argument[0]);
    struct bunshin_error *error = cgroup_create(name, memory, pids, &ward->groups);
    if (!error)
        error = spawn(request, &ward->groups, &ward->pid);
    if (error) {
        cgroup_destroy(&ward->groups);
        free(ward);
        return error;
    }
    ward->id = request->argument[0];
    ward->reply = -1;
    ward->next = keeper->wards;
    keeper->wards = ward;
    return NULL;
}

static void keeper_end(struct keeper *keeper, int64_t id, int reply) {
    for (struct ward *ward = keeper->wards; ward; ward = ward->next)
        if (ward->id == id) {
            kill(ward->pid, SIGKILL);
            if (ward->reply >= 0)
                close(ward->reply);
            ward->reply = reply;
            return;
        }
    wire_answer(reply, NULL); /* it ended before */
    if (reply >= 0)
        close(reply);
}

/* Puts a workspace into the background, or calls it back. One that is gone has no priority: that is no error. */
static struct bunshin_error *keeper_background(struct keeper *keeper, int64_t id, bool on) {
    if (keeper->background == UNTRIED)
        keeper->background = background_can_end() ? CAN_END : CANNOT_END;
    if (keeper->background == CANNOT_END)
        return bunshin_error_new(BUNSHIN_ERROR_UNSUPPORTED, EPERM,
                                 "cannot run a workspace in the background: this user may not end that again (RLIMIT_NICE)");
    for (struct ward *ward = keeper->wards; ward; ward = ward->next)
        if (ward->id == id)
            return background_set(ward->pid, &ward->groups, on);
    return NULL;
}

static void keeper_remove(struct keeper *keeper, const char *path, int reply) {
    struct remover *remover = calloc(1, sizeof *remover);
    pid_t pid = remover ? fork() : -1;
    if (pid == 0) {
        prctl(PR_SET_NAME, "bunshin-remove");
        _exit(remove_tree(path) ? 0 : 1);
    }
    if (pid < 0) {
        free(remover);
        (void)remove_tree(path);
        wire_answer(reply, NULL);
        if (reply >= 0)
            close(reply);
        return;
    }
    remover->pid = pid;
    remover->reply = reply;
    remover->next = keeper->removers;
    keeper->removers = remover;
}

/* Runs work in a child, so that a large tree holds up no workspace; the answer says whether it went well. */
static void keeper_merge(struct keeper *keeper, const struct wire *request, int reply) {
    struct remover *remover = calloc(1, sizeof *remover);
    pid_t pid = remover ? fork() : -1;
    if (pid == 0) {
        prctl(PR_SET_NAME, "bunshin-merge");
        struct records *records = malloc(sizeof *records);
        if (!records)
            _exit(1);
        records_init(records, request->payload, request->payload_size);
        while (records_next(records))
            if (records->count < 2 || !merge_layers(records->string[0], records->string + 1, records->count - 1, request->argument[0]))
                _exit(1);
        _exit(0);
    }
    if (pid < 0) {
        free(remover);
        wire_answer(reply, bunshin_error_os("cannot merge layers: fork"));
        if (reply >= 0)
            close(reply);
        return;
    }
    remover->pid = pid;
    remover->reply = reply;
    remover->merges = true;
    remover->next = keeper->removers;
    keeper->removers = remover;
}

static void keeper_reap(struct keeper *keeper) {
    for (;;) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG | __WALL);
        if (pid <= 0)
            break;
        for (struct ward **at = &keeper->wards; *at; at = &(*at)->next)
            if ((*at)->pid == pid) {
                struct ward *ward = *at;
                *at = ward->next;
                cgroup_destroy(&ward->groups);
                wire_answer(ward->reply, NULL);
                if (ward->reply >= 0)
                    close(ward->reply);
                free(ward);
                break;
            }
        for (struct remover **at = &keeper->removers; *at; at = &(*at)->next)
            if ((*at)->pid == pid) {
                struct remover *remover = *at;
                *at = remover->next;
                wire_answer(remover->reply, remover->merges && status ? bunshin_error_new(BUNSHIN_ERROR_OS, EIO, "cannot merge layers") : NULL);
                if (remover->reply >= 0)
                    close(remover->reply);
                free(remover);
                break;
            }
    }
    if (!keeper->removers && keeper->flush_reply >= 0) {
        wire_answer(keeper->flush_reply, NULL);
        close(keeper->flush_reply);
        keeper->flush_reply = -1;
    }
}

static void keeper_handle(struct keeper *keeper, struct wire *request) {
    char path[4096];
    switch (request->verb) {
    case WIRE_SPAWN: {
        struct bunshin_error *error = keeper_spawn(keeper, request);
        if (error && request->fd_count)
            wire_answer(request->fd[0], error);
        break;
    }
    case WIRE_END:
        keeper_end(keeper, request->argument[0], take_fd(request, 0));
        break;
    case WIRE_REMOVE:
        snprintf(path, sizeof path, "%.*s", (int)request->payload_size, (const char *)request->payload);
        keeper_remove(keeper, path, take_fd(request, 0));
        break;
    case WIRE_MERGE:
        keeper_merge(keeper, request, take_fd(request, 0));
        break;
    case WIRE_BACKGROUND: {
        int reply = take_fd(request, 0);
        wire_answer(reply, keeper_background(keeper, request->argument[0], request->argument[1]));
        if (reply >= 0)
            close(reply);
        break;
    }
    case WIRE_FLUSH:
        if (keeper->flush_reply >= 0)
            close(keeper->flush_reply);
        keeper->flush_reply = take_fd(request, 0);
        keeper_reap(keeper);
        break;
    default:
        break;
    }
}

int keeper_main(int socket, pid_t owner, const char *state_path) {
    prctl(PR_SET_NAME, "bunshin-keeper");
    struct keeper keeper = {.flush_reply = -1};
    char lock_path[4096];
    snprintf(lock_path, sizeof lock_path, "%s/lock", state_path);
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock >= 0)
        (void)flock(lock, LOCK_EX | LOCK_NB);
    cgroup_remove_stale();
    int owner_fd = (int)syscall(SYS_pidfd_open, owner, 0);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    int children = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    struct bunshin_error *error = owner_fd < 0 || children < 0 ? bunshin_error_os("cannot start the keeper") : spawn_prepare();
    bool failed = error != NULL;
    wire_answer(socket, error); /* the first message says whether workspaces can be made here */

    while (!failed && !keeper.ending) {
        struct pollfd waits[3] = {{socket, POLLIN, 0}, {children, POLLIN, 0}, {owner_fd, POLLIN, 0}};
        if (poll(waits, 3, -1) < 0) {
            usleep(1000); /* all workspaces hang on this process: what fails may pass */
            continue;
        }
        if (waits[1].revents) {
            struct signalfd_siginfo info;
            while (read(children, &info, sizeof info) > 0)
                ;
            keeper_reap(&keeper);
        }
        if (waits[2].revents)
            keeper.ending = true;
        if (waits[0].revents) {
            struct wire request;
            bool open;
            struct bunshin_error *receive_error = wire_receive(socket, -1, &request, &open);
            if (receive_error) {
                bunshin_error_destroy(receive_error);
                continue;
            }
            if (!open) {
                keeper.ending = true;
                continue;
            }
            keeper_handle(&keeper, &request);
            wire_deinit(&request);
        }
    }
    for (struct ward *ward = keeper.wards; ward; ward = ward->next)
        kill(ward->pid, SIGKILL);
    while (keeper.wards || keeper.removers) {
        if (waitpid(-1, NULL, WNOHANG | __WALL | WNOWAIT) < 0 && errno == ECHILD)
            break;
        struct pollfd wait = {children, POLLIN, 0};
        poll(&wait, 1, 100);
        struct signalfd_siginfo info;
        while (read(children, &info, sizeof info) > 0)
            ;
        keeper_reap(&keeper);
    }
    remove_tree(state_path);
    return failed;
}
