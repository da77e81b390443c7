/*
 * libbunshin: live workspaces and their forks.
 *
 * Caveats first.
 *  - One context per owner process. A context starts one small helper process (the keeper); everything it made dies with
 *    the owner, also when the owner is killed. A context must not be used in a child of fork(): calls there fail.
 *  - Functions are thread-safe for different workspaces, and for one workspace where the text says so. They block; ctypes
 *    releases the GIL around them. No function prints, exits, or touches signal handlers.
 *  - Every function that returns `struct bunshin_error *` returns NULL on success; an error belongs to the caller, who
 *    gives it to bunshin_error_destroy(). Results come out through the last parameter, `ret`.
 *  - A workspace is an isolation of mistakes, not of malice: see docs/kernel-support.md for what the sandbox is.
 *
 * Records of strings ("plans", tool calls) are passed as a blob: each record is a uint32 count in native order, followed
 * by that many NUL-terminated strings; bunshin_gym/_native/records.py writes them, src/common/records.c reads them.
 */
#ifndef BUNSHIN_H
#define BUNSHIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define BUNSHIN_ABI 1

struct bunshin_error;
struct bunshin_context;
struct bunshin_workspace;
struct bunshin_snapshot;

enum bunshin_error_code {
    BUNSHIN_ERROR_OS = 1,          /* a system call failed: errno says which way */
    BUNSHIN_ERROR_UNSUPPORTED = 2, /* a kind of state a fork cannot keep; the source runs on */
    BUNSHIN_ERROR_FORK = 3,        /* seal or rebuild failed; the source runs on */
    BUNSHIN_ERROR_LOST = 4,        /* pid 1 of the workspace is gone */
    BUNSHIN_ERROR_BUSY = 5,        /* the session runs another call */
    BUNSHIN_ERROR_INVALID = 6,     /* an argument is wrong */
    BUNSHIN_ERROR_TIMEOUT = 7,     /* a deadline passed */
    BUNSHIN_ERROR_OWNER = 8,       /* used in a process that does not own the context */
};

enum bunshin_exit_reason {
    BUNSHIN_EXITED = 0,
    BUNSHIN_SIGNALED = 1,
    BUNSHIN_TIMEOUT = 2,
    BUNSHIN_SHELL_EXITED = 3,
    BUNSHIN_OUT_OF_MEMORY = 4,
    BUNSHIN_WORKSPACE_LOST = 5,
};

uint32_t bunshin_abi(void);

uint32_t bunshin_error_code(const struct bunshin_error *error);
int32_t bunshin_error_errno(const struct bunshin_error *error);
int32_t bunshin_error_pid(const struct bunshin_error *error); /* -1: none */
int32_t bunshin_error_fd(const struct bunshin_error *error);  /* -1: none */
const char *bunshin_error_message(const struct bunshin_error *error); /* UTF-8, lives as long as the error */
void bunshin_error_destroy(struct bunshin_error *error);

/* ---- context ---- */

struct bunshin_context_options {
    size_t size;            /* sizeof(struct bunshin_context_options) */
    const char *init_path;  /* the bunshin-init executable */
    const char *state_path; /* an empty directory; the keeper removes it at the end */
};

struct bunshin_error *bunshin_context_create(const struct bunshin_context_options *options, struct bunshin_context **ret);
/* Ends every workspace of the context and removes the state directory. Bounded: 10 s. */
void bunshin_context_destroy(struct bunshin_context *context);
/* Removes a directory tree below the state directory, whatever modes and owners it holds, in the background. */
struct bunshin_error *bunshin_context_remove(struct bunshin_context *context, const char *path);
/*
 * Makes one layer of several: records {target, layer…}, top first, one a mount point. Its files are links to theirs, or, with
 * `apart`, copies. Waits until it is done.
 */
struct bunshin_error *bunshin_context_merge(struct bunshin_context *context, const uint8_t *records, size_t size, int32_t apart);
/* Waits until earlier removals are done. */
struct bunshin_error *bunshin_context_flush(struct bunshin_context *context);

/* ---- workspace ---- */

/* Starts a workspace after `plan` (records; see src/init/plan.c for the verbs). */
struct bunshin_error *bunshin_workspace_create(struct bunshin_context *context, const uint8_t *plan, size_t plan_size,
                                               struct bunshin_workspace **ret);
/*
 * Ends the workspace and waits until no process of it is left. Calls in progress in other threads fail with
 * BUNSHIN_ERROR_LOST. Idempotent; the handle stays until bunshin_workspace_destroy(), which ends and frees.
 */
void bunshin_workspace_end(struct bunshin_workspace *workspace);
void bunshin_workspace_destroy(struct bunshin_workspace *workspace);
/* 1 while pid 1 of the workspace lives. */
int32_t bunshin_workspace_alive(struct bunshin_workspace *workspace);

struct bunshin_result {
    size_t size;
    int32_t exit_code; /* -1: none */
    int32_t reason;    /* enum bunshin_exit_reason */
    int32_t truncated; /* 1 where bytes were dropped from the middle of a stream */
    int32_t reserved;
    uint64_t call;         /* handle for output that a background job writes later */
    double duration;       /* seconds */
    uint64_t stdout_total; /* bytes written, kept or not */
    uint64_t stderr_total;
    const uint8_t *output; /* both streams in the order they arrived */
    size_t output_size;
    const uint8_t *stdout_data;
    size_t stdout_size;
    const uint8_t *stderr_data;
    size_t stderr_size;
    const char *notice; /* "" for none */
};

/*
 * Runs one tool call. `call` is a blob of records: first {"shell"|"python"|"exec"}, then settings {"name", value…}.
 * timeout: seconds. Thread-safe. A call to a session that is running another one fails with BUNSHIN_ERROR_BUSY.
 */
struct bunshin_error *bunshin_workspace_call(struct bunshin_workspace *workspace, const uint8_t *call, size_t call_size,
                                             double timeout, struct bunshin_result **ret);
/* What background jobs of an earlier call have written since it was last asked. */
struct bunshin_error *bunshin_workspace_output(struct bunshin_workspace *workspace, uint64_t call,
                                               struct bunshin_result **ret);
void bunshin_result_destroy(struct bunshin_result *result);
/* Interrupts the running call of a session ("shell" or "python"), as a timeout would. */
struct bunshin_error *bunshin_workspace_interrupt(struct bunshin_workspace *workspace, const char *session);

/*
 * Opens a regular file inside the workspace; the descriptor belongs to the caller. flags: O_RDONLY or
 * O_WRONLY|O_CREAT|O_TRUNC. Parent directories are created when writing. Never blocks on a FIFO or device: refused.
 */
struct bunshin_error *bunshin_workspace_open(struct bunshin_workspace *workspace, const char *path, int32_t flags,
                                             uint32_t mode, int32_t *ret);

/*
 * What later calls can see, as text: a line a part (src/digest/digest.c). request: records {"origin", 64 hexadecimal digits}, then
 * {"sealed", mount, layers, loose, strict} for what is known of sealed layers. Freed by bunshin_text_destroy().
 */
struct bunshin_error *bunshin_workspace_digest(struct bunshin_workspace *workspace, const uint8_t *request, size_t size, char **ret);
/* Text, one process a line: "pid ppid threads rss pss private comm", bytes; freed by bunshin_text_destroy(). */
struct bunshin_error *bunshin_workspace_processes(struct bunshin_workspace *workspace, int32_t with_memory, char **ret);
/*
 * What its processes hold for themselves alone, page tables included, and the time they have had of the processors. Cheap: no
 * page table is walked; pages that a process shares with its own children count for each.
 */
struct bunshin_error *bunshin_workspace_holding(struct bunshin_workspace *workspace, uint64_t *ret_bytes, uint64_t *ret_cpu_ns);
void bunshin_text_destroy(char *text);

/*
 * Stops every process of the workspace for good, and of its forks: only what later calls start runs, and the shell and the
 * interpreter while a call of theirs does. Fails with BUNSHIN_ERROR_BUSY while a call runs. Idempotent.
 */
struct bunshin_error *bunshin_workspace_freeze(struct bunshin_workspace *workspace);

/*
 * on 1: the workspace's processes run only where nobody else wants the processor; 0: as all others again. May be called while a
 * call runs. Fails with BUNSHIN_ERROR_UNSUPPORTED where this user could not end it again (no CAP_SYS_NICE, no RLIMIT_NICE).
 */
struct bunshin_error *bunshin_workspace_background(struct bunshin_workspace *workspace, int32_t on);

/* ---- snapshot and fork ---- */

/*
 * Freezes the tree, captures it, and lets it go again: a seal. On success the old tree is still frozen; the caller then
 * either releases it (bunshin_workspace_release: it runs on as it was) or replaces it by a fork
 * (bunshin_workspace_replace) and the frozen one ends. timeout: seconds until the source is released again by itself.
 * merged: bit i says that what is still mapped from the workspace's store i goes into the new one, so that store i is not needed on.
 */
struct bunshin_error *bunshin_workspace_seal(struct bunshin_workspace *workspace, double timeout, uint64_t merged,
                                             struct bunshin_snapshot **ret);
struct bunshin_error *bunshin_workspace_release(struct bunshin_workspace *workspace);
/* Takes over the processes of `fork` (whose handle is consumed); the ones held before end. */
void bunshin_workspace_replace(struct bunshin_workspace *workspace, struct bunshin_workspace *fork);

/* A new workspace from a snapshot, after a plan of its own (its own upper layer, limits). Thread-safe. */
struct bunshin_error *bunshin_snapshot_fork(struct bunshin_snapshot *snapshot, const uint8_t *plan, size_t plan_size,
                                            struct bunshin_workspace **ret);
/* The same for the workspace that was sealed, which goes on as it: it alone keeps connections to the outside. Once. */
struct bunshin_error *bunshin_snapshot_resume(struct bunshin_snapshot *snapshot, const uint8_t *plan, size_t plan_size,
                                              struct bunshin_workspace **ret);
/* The same for n at once: errors[i] or forks[i] is set. Rebuilds run in parallel. */
struct bunshin_error *bunshin_snapshot_fork_many(struct bunshin_snapshot *snapshot, const uint8_t *const *plans,
                                                 const size_t *plan_sizes, size_t n, struct bunshin_workspace **forks,
                                                 struct bunshin_error **errors);
/* Bytes of page store that this snapshot added. */
uint64_t bunshin_snapshot_size(const struct bunshin_snapshot *snapshot);
/*
 * The memory files behind it, as text, a line each: "identity bytes", the image first. Snapshots that share one give it the same
 * identity; what is spilled shows as "0 0". Freed by bunshin_text_destroy().
 */
struct bunshin_error *bunshin_snapshot_holding(const struct bunshin_snapshot *snapshot, char **ret);
/*
 * Moves memory files out to unnamed files in `directory`; bit i of `which` is line i of the holding, up to 64. They must be nobody
 * else's. No fork can be made before bunshin_snapshot_recall() brings them back. What fails leaves the rest as it was. Neither is
 * safe beside other uses of the same snapshot.
 */
struct bunshin_error *bunshin_snapshot_spill(struct bunshin_snapshot *snapshot, const char *directory, uint64_t which);
struct bunshin_error *bunshin_snapshot_recall(struct bunshin_snapshot *snapshot);
/* Stage times and counts of the seal, as text "name value\n…" (milliseconds, bytes, counts). */
const char *bunshin_snapshot_report(const struct bunshin_snapshot *snapshot);
/* Stage times of the rebuild of a forked workspace; "" for a fresh one. */
const char *bunshin_workspace_report(const struct bunshin_workspace *workspace);
/*
 * What a snapshot is: its image, then its page stores, as sealed memfds. Duplicates, which belong to the caller; fails with ENOSPC
 * where there are more than `room`. ret: how many.
 */
struct bunshin_error *bunshin_snapshot_export(struct bunshin_snapshot *snapshot, int32_t *fds, size_t room, size_t *ret);
/*
 * A snapshot of such descriptors, or of memfds with the same content: of this process or an earlier one, of the same library, on the
 * same kernel and processor. The caller sees to that: a wrong image is not found out before a fork fails. The descriptors are
 * duplicated. size, report: as the snapshot had them.
 */
struct bunshin_error *bunshin_snapshot_import(struct bunshin_context *context, const int32_t *fds, size_t count, uint64_t size,
                                              const char *report, struct bunshin_snapshot **ret);
void bunshin_snapshot_destroy(struct bunshin_snapshot *snapshot);

/* ---- features ---- */

/* What this machine can do, probed by trying: text "name value\n…"; freed by bunshin_text_destroy(). */
struct bunshin_error *bunshin_features(char **ret);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
