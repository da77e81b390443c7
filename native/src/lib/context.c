#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/internal.h"

#define START_PATIENCE_MS 10000

uint32_t bunshin_abi(void) { return BUNSHIN_ABI; }

void context_hold(struct bunshin_context *context) { atomic_fetch_add(&context->references, 1); }

void context_drop(struct bunshin_context *context) {
    if (atomic_fetch_sub(&context->references, 1) == 1)
        free(context);
}

struct bunshin_error *context_check_owner(const struct bunshin_context *context) {
    if (getpid() != context->owner)
        return bunshin_error_new(BUNSHIN_ERROR_OWNER, EPERM, "a workspace belongs to process %d, which made it; process %d cannot use it",
                                 context->owner, getpid());
    return NULL;
}

int64_t fault_step(const char *work) {
    const char *setting = getenv("BUNSHIN_FAULT");
    size_t length = strlen(work);
    if (!setting || strncmp(setting, work, length) || setting[length] != ':')
        return 0;
    return atoi(setting + length + 1);
}

int64_t without_mask(void) {
    static const struct {
        const char *name;
        int64_t bit;
    } names[] = {{"pagemap-scan", WITHOUT_PAGEMAP_SCAN},
                 {"overlay-one-by-one", WITHOUT_OVERLAY_ONE_BY_ONE},
                 {"timer-ids", WITHOUT_TIMER_IDS},
                 {"ipc-ids", WITHOUT_IPC_IDS},
                 {"time-namespace", WITHOUT_TIME_NAMESPACE}};
    const char *setting = getenv("BUNSHIN_WITHOUT");
    int64_t mask = 0;
    for (size_t i = 0; setting && i < sizeof names / sizeof *names; i++)
        if (strstr(setting, names[i].name))
            mask |= names[i].bit;
    return mask;
}

/* ---- requests ---- */

struct bunshin_error *request_send(int socket, const struct request *request, int *ret_answer) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return bunshin_error_os("cannot ask: socketpair");
    struct wire message = {.verb = request->verb,
                           .payload = request->payload,
                           .payload_size = request->payload_size,
                           .fd_count = 1 + (uint32_t)request->fd_count};
    memcpy(message.argument, request->argument, sizeof message.argument);
    message.fd[0] = pair[1];
    if (request->fd_count)
        memcpy(message.fd + 1, request->fd, sizeof(int) * (size_t)request->fd_count);
    struct bunshin_error *error = wire_send(socket, &message);
    close(pair[1]);
    if (error) {
        close(pair[0]);
        if (error->errnum == EPIPE || error->errnum == ECONNRESET || error->errnum == ENOTCONN)
            error->code = BUNSHIN_ERROR_LOST;
        return error;
    }
    *ret_answer = pair[0];
    return NULL;
}

struct bunshin_error *request_wait(int answer, int timeout_ms, const char *step, struct wire *ret) {
    bool open = true;
    struct bunshin_error *error = wire_receive(answer, timeout_ms, ret, &open);
    close(answer);
    if (error)
        return bunshin_error_wrap(error, "%s", step);
    if (!open)
        return bunshin_error_new(BUNSHIN_ERROR_LOST, ESRCH, "%s: the workspace is lost (its pid 1 is gone)", step);
    error = wire_error(ret);
    if (error)
        wire_deinit(ret);
    return error;
}

struct bunshin_error *request_run(int socket, const struct request *request, const char *step, struct wire *ret) {
    int answer;
    struct bunshin_error *error = request_send(socket, request, &answer);
    if (error)
        return bunshin_error_wrap(error, "%s", step);
    return request_wait(answer, request->timeout_ms, step, ret);
}

/* ---- birth and death ---- */

static struct bunshin_error *start_keeper(const struct bunshin_context_options *options, int theirs, pid_t *ret) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char socket_text[16] = "3", owner_text[16];
    snprintf(owner_text, sizeof owner_text, "%d", getpid());
    char *argv[] = {(char *)"bunshin-keeper", (char *)"keeper", socket_text, owner_text, (char *)options->state_path, NULL};
    char *environment[] = {(char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    /* 3 may be the socket's own number already: dup2 onto itself then clears close-on-exec, as POSIX wants of spawn. */
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 2);
    posix_spawn_file_actions_adddup2(&actions, theirs, 3);
    posix_spawn_file_actions_addclosefrom_np(&actions, 4);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int failed = posix_spawn(ret, options->init_path, &actions, &attributes, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (failed) {
        errno = failed;
        return bunshin_error_os("cannot start %s", options->init_path);
    }
    return NULL;
}

struct bunshin_error *bunshin_context_create(const struct bunshin_context_options *options, struct bunshin_context **ret) {
    if (options->size < sizeof *options)
        return bunshin_error_new(BUNSHIN_ERROR_INVALID, EINVAL, "options of a context are %zu bytes, expected %zu", options->size, sizeof *options);
    struct rlimit files; /* a live workspace is a descriptor here: hundreds must fit */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return bunshin_error_os("cannot start the keeper: socketpair");
    struct bunshin_context *context = calloc(1, sizeof *context);
    struct bunshin_error *error = context ? NULL : bunshin_error_no_memory();
    struct wire hello = {0};
    bool open = true, started = false;
    if (!error)
        error = start_keeper(options, pair[1], &context->keeper);
    close(pair[1]);
    if (!error) {
        started = true;
        error = wire_receive(pair[0], START_PATIENCE_MS, &hello, &open);
    }
    if (!error)
        error = open ? wire_error(&hello) : bunshin_error_new(BUNSHIN_ERROR_OS, ECHILD, "the keeper ended at once");
    wire_deinit(&hello);
    if (error) {
        close(pair[0]);
        if (started) {
            kill(context->keeper, SIGKILL);
            waitpid(context->keeper, NULL, 0);
        }
        free(context);
        return bunshin_error_wrap(error, "cannot start the keeper");
    }
    context->socket = pair[0];
    context->owner = getpid();
    context->references = 1;
    *ret = context;
    return NULL;
}

void bunshin_context_destroy(struct bunshin_context *context) {
    if (!context)
        return;
    if (getpid() == context->owner && context->socket >= 0) {
        close(context->socket); /* the keeper ends everything and goes */
        context->socket = -1;
        bool gone = false;
        for (int waited = 0; waited < 10000 && !gone; waited += 2) {
            gone = waitpid(context->keeper, NULL, WNOHANG) != 0;
            if (!gone)
                usleep(2000);
        }
        if (!gone) {
            kill(context->keeper, SIGKILL);
            waitpid(context->keeper, NULL, 0);
        }
    }
    context_drop(context);
}

struct bunshin_error *bunshin_context_remove(struct bunshin_context *context, const char *path) {
    TRY(context_check_owner(context));
    struct wire message = {.verb = WIRE_REMOVE, .payload = (const uint8_t *)path, .payload_size = strlen(path)};
    return wire_send(context->socket, &message);
}

struct bunshin_error *bunshin_context_merge(struct bunshin_context *context, const uint8_t *records, size_t size, int32_t apart) {
    TRY(context_check_owner(context));
    struct request request = {.verb = WIRE_MERGE, .argument = {apart}, .payload = records, .payload_size = size, .timeout_ms = -1};
    struct wire answer;
    TRY(request_run(context->socket, &request, "cannot merge layers", &answer));
    wire_deinit(&answer);
    return NULL;
}

struct bunshin_error *bunshin_context_flush(struct bunshin_context *context) {
    TRY(context_check_owner(context));
    struct request request = {.verb = WIRE_FLUSH, .timeout_ms = 60000};
    struct wire answer;
    TRY(request_run(context->socket, &request, "cannot wait for removals", &answer));
    wire_deinit(&answer);
    return NULL;
}
