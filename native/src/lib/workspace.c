#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/internal.h"

#define BEGIN_PATIENCE_MS 60000
#define END_PATIENCE_MS 20000
#define LOOK_PATIENCE_MS 60000
#define ANSWER_GRACE_MS 15000 /* beyond a call's own deadline: the workspace ends the call by itself well before */

/* ---- birth and death ---- */

struct bunshin_error *workspace_begin(struct bunshin_context *context, const uint8_t *plan, size_t plan_size,
                                      const struct bunshin_snapshot *snapshot, bool resume, struct start_ticket *ret) {
    TRY(context_check_owner(context));
    struct bunshin_workspace *workspace = calloc(1, sizeof *workspace);
    int pair[2];
    if (!workspace)
        return bunshin_error_no_memory();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        free(workspace);
        return bunshin_error_os("cannot start a workspace: socketpair");
    }
    workspace->context = context;
    workspace->socket = pair[0];
    workspace->id = atomic_fetch_add(&context->next_id, 1) + 1;
    pthread_mutex_init(&workspace->lock, NULL);
    int fds[WIRE_FDS_MAX], count = 0;
    fds[count++] = pair[1];
    if (snapshot) {
        fds[count++] = snapshot->image;
        for (int i = 0; i < snapshot->store_count && count < WIRE_FDS_MAX - 2; i++)
            fds[count++] = snapshot->store[i];
        resume = resume && snapshot->carrier >= 0;
        if (resume)
            fds[count++] = snapshot->carrier;
    }
    struct request request = {
        .verb = WIRE_SPAWN, .argument = {workspace->id, fault_step("rebuild"), without_mask(), snapshot && resume}, .payload = plan, .payload_size = plan_size, .fd = fds, .fd_count = count};
    struct bunshin_error *error = request_send(context->socket, &request, &ret->answer);
    close(pair[1]);
    if (error) {
        close(pair[0]);
        pthread_mutex_destroy(&workspace->lock);
        free(workspace);
        return error;
    }
    context_hold(context);
    ret->workspace = workspace;
    return NULL;
}

struct bunshin_error *workspace_await(struct start_ticket *ticket, struct bunshin_workspace **ret) {
    struct wire answer;
    struct bunshin_error *error = request_wait(ticket->answer, BEGIN_PATIENCE_MS, "cannot start a workspace", &answer);
    if (error) {
        bunshin_workspace_destroy(ticket->workspace);
        return error;
    }
    ticket->workspace->report = strndup((const char *)answer.payload, answer.payload_size);
    wire_deinit(&answer);
    *ret = ticket->workspace;
    return NULL;
}

struct bunshin_error *bunshin_workspace_create(struct bunshin_context *context, const uint8_t *plan, size_t plan_size,
                                                   struct bunshin_workspace **ret) {
    struct start_ticket ticket;
    TRY(workspace_begin(context, plan, plan_size, NULL, false, &ticket));
    return workspace_await(&ticket, ret);
}

static void end(struct bunshin_context *context, int socket, int64_t id) {
    (void)shutdown(socket, SHUT_RDWR); /* other threads may be using it: closed only with the handle */
    struct request request = {.verb = WIRE_END, .argument = {id}, .timeout_ms = END_PATIENCE_MS};
    struct wire answer = {0};
    if (context->socket >= 0)
        bunshin_error_destroy(request_run(context->socket, &request, "cannot end a workspace", &answer));
    wire_deinit(&answer);
}

void bunshin_workspace_end(struct bunshin_workspace *workspace) {
    pthread_mutex_lock(&workspace->lock);
    bool ended = workspace->ended;
    workspace->ended = true;
    int socket = workspace->socket;
    int64_t id = workspace->id;
    pthread_mutex_unlock(&workspace->lock);
    if (!ended && getpid() == workspace->context->owner)
        end(workspace->context, socket, id);
}

void bunshin_workspace_destroy(struct bunshin_workspace *workspace) {
    if (!workspace)
        return;
    bunshin_workspace_end(workspace);
    if (getpid() == workspace->context->owner)
        close(workspace->socket);
    context_drop(workspace->context);
    pthread_mutex_destroy(&workspace->lock);
    free(workspace->report);
    free(workspace);
}

void bunshin_workspace_replace(struct bunshin_workspace *workspace, struct bunshin_workspace *fork) {
    pthread_mutex_lock(&workspace->lock);
    int old_socket = workspace->socket;
    int64_t old_id = workspace->id;
    char *old_report = workspace->report;
    workspace->socket = fork->socket;
    workspace->id = fork->id;
    workspace->report = fork->report;
    pthread_mutex_unlock(&workspace->lock);
    /* Nobody waits for the frozen tree's end: it can do nothing any more, and the keeper sees to it. */
    struct wire message = {.verb = WIRE_END, .argument = {old_id}};
    close(old_socket);
    if (workspace->context->socket >= 0)
        bunshin_error_destroy(wire_send(workspace->context->socket, &message));
    context_drop(fork->context);
    pthread_mutex_destroy(&fork->lock);
    free(old_report);
    free(fork);
}

static int socket_of(struct bunshin_workspace *workspace) {
    pthread_mutex_lock(&workspace->lock);
    int socket = workspace->socket;
    pthread_mutex_unlock(&workspace->lock);
    return socket;
}

int32_t bunshin_workspace_alive(struct bunshin_workspace *workspace) {
    struct pollfd wait = {.fd = socket_of(workspace), .events = POLLIN};
    return !(poll(&wait, 1, 0) > 0 && wait.revents & (POLLHUP | POLLERR | POLLNVAL));
}


const char *bunshin_workspace_report(const struct bunshin_workspace *workspace) {
    return workspace->report ? workspace->report : "";
}

/* ---- calls ---- */

struct owned_result {
    struct bunshin_result result;
    struct wire answer;
};

static struct bunshin_error *unpack(struct wire *answer, struct bunshin_result **ret) {
    struct owned_result *owned = calloc(1, sizeof *owned);
    uint64_t sizes[3];
    if (!owned) {
        wire_deinit(answer);
        return bunshin_error_no_memory();
    }
    owned->answer = *answer;
    struct bunshin_result *result = &owned->result;
    if (answer->payload_size < sizeof sizes)
        goto damaged;
    memcpy(sizes, answer->payload, sizeof sizes);
    uint64_t room = answer->payload_size - sizeof sizes;
    if (sizes[0] > room || sizes[1] > room - sizes[0] || sizes[2] > room - sizes[0] - sizes[1] ||
        answer->payload[answer->payload_size - 1] != 0)
        goto damaged;
    result->size = sizeof *result;
    result->exit_code = (int32_t)answer->argument[0];
    result->reason = (int32_t)(answer->argument[1] & 0xff);
    result->truncated = (int32_t)(answer->argument[1] >> 8 & 1);
    result->call = (uint64_t)answer->argument[2];
    result->duration = (double)answer->argument[3] / 1e9;
    result->stdout_total = (uint64_t)answer->argument[4];
    result->stderr_total = (uint64_t)answer->argument[5];
    result->output = answer->payload + sizeof sizes;
    result->output_size = sizes[0];
    result->stdout_data = result->output + sizes[0];
    result->stdout_size = sizes[1];
    result->stderr_data = result->stdout_data + sizes[1];
    result->stderr_size = sizes[2];
    result->notice = (const char *)result->stderr_data + sizes[2];
    *ret = result;
    return NULL;
damaged:
    wire_deinit(&owned->answer);
    free(owned);
    return bunshin_error_new(BUNSHIN_ERROR_OS, EBADMSG, "the result of a call came damaged");
}

void bunshin_result_destroy(struct bunshin_result *result) {
    if (!result)
        return;
    struct owned_result *owned = (struct owned_result *)(void *)result;
    wire_deinit(&owned->answer);
    free(owned);
}

struct bunshin_error *bunshin_workspace_call(struct bunshin_workspace *workspace, const uint8_t *call, size_t call_size,
                                                 double timeout, struct bunshin_result **ret) {
    TRY(context_check_owner(workspace->context));
    bool bounded = timeout >= 0 && timeout < 1e9;
    struct request request = {.verb = WIRE_CALL,
                              .argument = {bounded ? (int64_t)(timeout * 1e9) : -1},
                              .payload = call,
                              .payload_size = call_size,
                              .timeout_ms = bounded && timeout < 1e6 ? (int)(timeout * 1e3) + ANSWER_GRACE_MS : -1};
    struct wire answer;
    TRY(request_run(socket_of(workspace), &request, "cannot run a call", &answer));
    return unpack(&answer, ret);
}

struct bunshin_error *bunshin_workspace_output(struct bunshin_workspace *workspace, uint64_t call, struct bunshin_result **ret) {
    TRY(context_check_owner(workspace->context));
    struct request request = {.verb = WIRE_OUTPUT, .argument = {(int64_t)call}, .timeout_ms = LOOK_PATIENCE_MS};
    struct wire answer;
    TRY(request_run(socket_of(workspace), &request, "cannot read output", &answer));
    return unpack(&answer, ret);
}

struct bunshin_error *bunshin_workspace_interrupt(struct bunshin_workspace *workspace, const char *session) {
    TRY(context_check_owner(workspace->context));
    struct request request = {
        .verb = WIRE_INTERRUPT, .payload = session, .payload_size = strlen(session), .timeout_ms = LOOK_PATIENCE_MS};
    struct wire answer;
    TRY(request_run(socket_of(workspace), &request, "cannot interrupt", &answer));
    wire_deinit(&answer);
    return NULL;
}

struct bunshin_error *bunshin_workspace_freeze(struct bunshin_workspace *workspace) {
    TRY(context_check_owner(workspace->context));
    struct request request = {.verb = WIRE_FREEZE, .timeout_ms = LOOK_PATIENCE_MS};
    struct wire answer;
    TRY(request_run(socket_of(workspace), &request, "cannot freeze the workspace", &answer));
    wire_deinit(&answer);
    return NULL;
}

struct bunshin_error *bunshin_workspace_background(struct bunshin_workspace *workspace, int32_t on) {
    TRY(context_check_owner(workspace->context));
    pthread_mutex_lock(&workspace->lock);
    int64_t id = workspace->id;
    pthread_mutex_unlock(&workspace->lock);
    struct request request = {.verb = WIRE_BACKGROUND, .argument = {id, on}, .timeout_ms = LOOK_PATIENCE_MS};
    struct wire answer;
    TRY(request_run(workspace->context->socket, &request, "cannot change the priority of a workspace", &answer));
    wire_deinit(&answer);
    return NULL;
}

/* ---- looking ---- */

struct bunshin_error *bunshin_workspace_open(struct bunshin_workspace *workspace, const char *path, int32_t flags, uint32_t mode,
                                                 int32_t *ret) {
    TRY(context_check_owner(workspace->context));
    struct request request = {.verb = WIRE_OPEN,
                              .argument = {flags, mode},
                              .payload = path,
                              .payload_size = strlen(path),
                              .timeout_ms = LOOK_PATIENCE_MS};
    struct wire answer;
    TRY(request_run(socket_of(workspace), &request, "cannot open a file", &answer));
    if (answer.fd_count) {
        *ret = answer.fd[0];
        answer.fd[0] = -1;
    }
    bool got = answer.fd_count > 0;
    wire_deinit(&answer);
    return got ? NULL : bunshin_error_new(BUNSHIN_ERROR_OS, EBADMSG, "cannot open a file: no descriptor came");
}

struct bunshin_error *bunshin_workspace_processes(struct bunshin_workspace *workspace, int32_t with_memory, char **ret) {
    TRY(context_check_owner(workspace->context));
    struct request request = {.verb = WIRE_PROCESSES, .argument = {with_memory}, .timeout_ms = LOOK_PATIENCE_MS};
    struct wire answer;
    TRY(request_run(socket_of(workspace), &request, "cannot list processes", &answer));
    *ret = strndup((const char *)answer.payload, answer.payload_size);
    wire_deinit(&answer);
    return *ret ? NULL : bunshin_error_no_memory();
}

struct bunshin_error *bunshin_workspace_digest(struct bunshin_workspace *workspace, const uint8_t *request, size_t size, char **ret) {
    TRY(context_check_owner(workspace->context));
    struct request asked = {.verb = WIRE_DIGEST, .payload = request, .payload_size = size, .timeout_ms = LOOK_PATIENCE_MS};
    struct wire answer;
    TRY(request_run(socket_of(workspace), &asked, "cannot digest the state", &answer));
    *ret = strndup((const char *)answer.payload, answer.payload_size);
    wire_deinit(&answer);
    return *ret ? NULL : bunshin_error_no_memory();
}

struct bunshin_error *bunshin_workspace_holding(struct bunshin_workspace *workspace, uint64_t *ret_bytes, uint64_t *ret_cpu_ns) {
    TRY(context_check_owner(workspace->context));
    struct request request = {.verb = WIRE_HOLDING, .timeout_ms = LOOK_PATIENCE_MS};
    struct wire answer;
    TRY(request_run(socket_of(workspace), &request, "cannot measure a workspace", &answer));
    *ret_bytes = (uint64_t)answer.argument[0];
    *ret_cpu_ns = (uint64_t)answer.argument[1];
    wire_deinit(&answer);
    return NULL;
}

void bunshin_text_destroy(char *text) { free(text); }
