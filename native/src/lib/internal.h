/* What the library's files share. Handles are plain structs; only the workspace's connection is guarded by a lock. */
#ifndef BUNSHIN_LIB_INTERNAL_H
#define BUNSHIN_LIB_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "bunshin.h"
#include "common/error.h"
#include "common/wire.h"

struct bunshin_context {
    int socket;
    pid_t keeper;
    pid_t owner;
    atomic_llong next_id;
    atomic_int references; /* the context, its workspaces and snapshots */
};

struct bunshin_workspace {
    struct bunshin_context *context;
    pthread_mutex_t lock; /* guards the three below, which a replace changes */
    int socket;
    int64_t id;
    pid_t pid;
    bool ended;
    char *report;
};

struct bunshin_snapshot {
    struct bunshin_context *context;
    int image;
    int *store; /* page stores, this snapshot's own last */
    int store_count;
    int carrier; /* sockets of the workspace it was made of, for that one alone; -1 for none */
    uint64_t size;
    uint64_t spilled; /* which lie in files for now: bit 0 is the image, then the stores */
    char *report;
};

void context_hold(struct bunshin_context *context);
void context_drop(struct bunshin_context *context);
/* The step that BUNSHIN_FAULT ("seal:3", "rebuild:7"; for tests) asks to fail in this kind of work; 0 for none. */
int64_t fault_step(const char *work);
/* What BUNSHIN_WITHOUT ("pagemap-scan,timer-ids"; for tests) takes away: a mask of enum without. */
int64_t without_mask(void);
struct bunshin_error *context_check_owner(const struct bunshin_context *context) MUST_CHECK;

/* Sends a request with an answer socket of its own and waits for the answer. fds: extra descriptors behind the reply. */
struct request {
    uint32_t verb;
    int64_t argument[6];
    const void *payload;
    size_t payload_size;
    const int *fd;
    int fd_count;
    int timeout_ms; /* -1: as long as the other side lives */
};
struct bunshin_error *request_send(int socket, const struct request *request, int *ret_answer) MUST_CHECK;
struct bunshin_error *request_wait(int answer, int timeout_ms, const char *step, struct wire *ret) MUST_CHECK;
struct bunshin_error *request_run(int socket, const struct request *request, const char *step, struct wire *ret) MUST_CHECK;

/* Starts a workspace without waiting for it, then waits: a batch is sent first, so that rebuilds run side by side. */
struct start_ticket {
    struct bunshin_workspace *workspace;
    int answer;
};
struct bunshin_error *workspace_begin(struct bunshin_context *context, const uint8_t *plan, size_t plan_size,
                                      const struct bunshin_snapshot *snapshot, bool resume, struct start_ticket *ret) MUST_CHECK;
struct bunshin_error *workspace_await(struct start_ticket *ticket, struct bunshin_workspace **ret) MUST_CHECK;

#endif
