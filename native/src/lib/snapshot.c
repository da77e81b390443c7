#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/internal.h"

/* Nobody takes the seal: the tree is to run on, as soon as pid 1 hears of it. Needs no descriptor. */
static void release_unheard(struct bunshin_workspace *workspace) {
    struct wire release = {.verb = WIRE_RELEASE};
    bunshin_error_destroy(wire_send(workspace->socket, &release));
}

struct bunshin_error *bunshin_workspace_seal(struct bunshin_workspace *workspace, double timeout, uint64_t merged,
                                             struct bunshin_snapshot **ret) {
    TRY(context_check_owner(workspace->context));
    struct request request = {
        .verb = WIRE_SEAL, .argument = {(int64_t)(timeout * 1e9), fault_step("seal"), (int64_t)merged}, .timeout_ms = (int)(timeout * 1e3) + 5000};
    struct wire answer;
    struct bunshin_error *error = request_run(workspace->socket, &request, "cannot seal a workspace", &answer);
    if (error && (error->code == BUNSHIN_ERROR_TIMEOUT || error->code == BUNSHIN_ERROR_OS)) { /* our own: pid 1 may well have sealed */
        bool late = error->code == BUNSHIN_ERROR_TIMEOUT;
        release_unheard(workspace);
        error->code = BUNSHIN_ERROR_FORK;
        return late ? bunshin_error_wrap(error, "the workspace's pid 1 does not answer (stopped, or waiting for a file system that does not)") : error;
    }
    if (error)
        return error;
    struct bunshin_snapshot *snapshot = calloc(1, sizeof *snapshot);
    int *store = calloc(answer.fd_count + 1, sizeof *store);
    if (!snapshot || !store || !answer.fd_count) {
        free(snapshot);
        free(store);
        wire_deinit(&answer);
        release_unheard(workspace);
        return bunshin_error_no_memory();
    }
    snapshot->context = workspace->context;
    context_hold(snapshot->context);
    snapshot->image = answer.fd[0];
    answer.fd[0] = -1;
    snapshot->carrier = -1;
    if (answer.argument[1] && answer.fd_count > 1) {
        snapshot->carrier = answer.fd[--answer.fd_count];
        answer.fd[answer.fd_count] = -1;
    }
    for (uint32_t i = 1; i < answer.fd_count; i++) {
        store[snapshot->store_count++] = answer.fd[i];
        answer.fd[i] = -1;
    }
    snapshot->store = store;
    snapshot->size = (uint64_t)answer.argument[0];
    snapshot->report = strndup((const char *)answer.payload, answer.payload_size);
    wire_deinit(&answer);
    *ret = snapshot;
    return NULL;
}

struct bunshin_error *bunshin_workspace_release(struct bunshin_workspace *workspace) {
    struct request request = {.verb = WIRE_RELEASE, .timeout_ms = 20000};
    struct wire answer;
    struct bunshin_error *error = request_run(workspace->socket, &request, "cannot release a sealed workspace", &answer);
    if (error && error->code == BUNSHIN_ERROR_OS)
        release_unheard(workspace); /* for want of a descriptor, say */
    TRY(error);
    wire_deinit(&answer);
    return NULL;
}

struct bunshin_error *bunshin_snapshot_fork(struct bunshin_snapshot *snapshot, const uint8_t *plan, size_t plan_size,
                                                struct bunshin_workspace **ret) {
    struct start_ticket ticket;
    TRY(workspace_begin(snapshot->context, plan, plan_size, snapshot, false, &ticket));
    struct bunshin_error *error = workspace_await(&ticket, ret);
    return error ? bunshin_error_wrap(error, "cannot fork") : NULL;
}

struct bunshin_error *bunshin_snapshot_resume(struct bunshin_snapshot *snapshot, const uint8_t *plan, size_t plan_size,
                                                  struct bunshin_workspace **ret) {
    struct start_ticket ticket;
    struct bunshin_error *error = workspace_begin(snapshot->context, plan, plan_size, snapshot, true, &ticket);
    if (!error)
        error = workspace_await(&ticket, ret);
    if (snapshot->carrier >= 0)
        close(snapshot->carrier); /* for this one, and only once */
    snapshot->carrier = -1;
    return error ? bunshin_error_wrap(error, "cannot fork") : NULL;
}

struct bunshin_error *bunshin_snapshot_fork_many(struct bunshin_snapshot *snapshot, const uint8_t *const *plans,
                                                     const size_t *plan_sizes, size_t n, struct bunshin_workspace **forks,
                                                     struct bunshin_error **errors) {
    struct start_ticket *tickets = calloc(n + 1, sizeof *tickets);
    if (!tickets)
        return bunshin_error_no_memory();
    for (size_t i = 0; i < n; i++) {
        forks[i] = NULL;
        errors[i] = workspace_begin(snapshot->context, plans[i], plan_sizes[i], snapshot, false, &tickets[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (errors[i])
            continue;
        errors[i] = workspace_await(&tickets[i], &forks[i]);
        if (errors[i])
            bunshin_error_wrap(errors[i], "cannot fork");
    }
    free(tickets);
    return NULL;
}

/* ---- out of the process, and in again ---- */

struct bunshin_error *bunshin_snapshot_export(struct bunshin_snapshot *snapshot, int32_t *fds, size_t room, size_t *ret) {
    TRY(context_check_owner(snapshot->context));
    size_t count = 1 + (size_t)snapshot->store_count;
    if (count > room)
        return bunshin_error_new(BUNSHIN_ERROR_INVALID, ENOSPC, "a snapshot is %zu descriptors, and there is room for %zu", count, room);
    for (size_t i = 0; i < count; i++)
        if ((fds[i] = fcntl(i ? snapshot->store[i - 1] : snapshot->image, F_DUPFD_CLOEXEC, 3)) < 0) {
            struct bunshin_error *error = bunshin_error_os("cannot export a snapshot");
            while (i--)
                close(fds[i]);
            return error;
        }
    *ret = count;
    return NULL;
}

struct bunshin_error *bunshin_snapshot_import(struct bunshin_context *context, const int32_t *fds, size_t count, uint64_t size,
                                                  const char *report, struct bunshin_snapshot **ret) {
    TRY(context_check_owner(context));
    if (count < 2 || count > WIRE_FDS_MAX - 4)
        return bunshin_error_new(BUNSHIN_ERROR_INVALID, EINVAL, "a snapshot is an image and its page stores, not %zu descriptors", count);
    struct bunshin_snapshot *snapshot = calloc(1, sizeof *snapshot);
    int *store = calloc(count, sizeof *store);
    char *text = strdup(report);
    if (!snapshot || !store || !text) {
        free(snapshot);
        free(store);
        free(text);
        return bunshin_error_no_memory();
    }
    *snapshot = (struct bunshin_snapshot){.context = context, .store = store, .carrier = -1, .size = size, .report = text};
    context_hold(context);
    snapshot->image = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
    bool ok = snapshot->image >= 0;
    for (size_t i = 1; ok && i < count; i++)
        if ((ok = (store[i - 1] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3)) >= 0))
            snapshot->store_count++;
    if (!ok) {
        struct bunshin_error *error = bunshin_error_os("cannot import a snapshot");
        bunshin_snapshot_destroy(snapshot);
        return error;
    }
    *ret = snapshot;
    return NULL;
}

/* ---- looking, and the end ---- */

uint64_t bunshin_snapshot_size(const struct bunshin_snapshot *snapshot) { return snapshot->size; }

const char *bunshin_snapshot_report(const struct bunshin_snapshot *snapshot) { return snapshot->report ? snapshot->report : ""; }

void bunshin_snapshot_destroy(struct bunshin_snapshot *snapshot) {
    if (!snapshot)
        return;
    if (getpid() == snapshot->context->owner) {
        close(snapshot->image);
        if (snapshot->carrier >= 0)
            close(snapshot->carrier);
        for (int i = 0; i < snapshot->store_count; i++)
            close(snapshot->store[i]);
    }
    context_drop(snapshot->context);
    free(snapshot->store);
    free(snapshot->report);
    free(snapshot);
}
