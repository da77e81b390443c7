/*
 * The state digest of a workspace, made by its pid 1: files (files.c), the shell (shell.c), other live processes
 * (processes.c), what the kernel keeps (kernel.c). digest.c holds the order. docs/state-key.md says what is left out.
 * All of it belongs to the one thread of pid 1.
 */
#ifndef BUNSHIN_DIGEST_DIGEST_H
#define BUNSHIN_DIGEST_DIGEST_H

#include "common/wire.h"
#include "digest/hash.h"
#include "init/init.h"

struct pair { /* sums without and with times */
    struct sum loose, strict;
};

struct digest {
    struct init *init;
    struct hash origin; /* of the call made since the last digest */
    struct buffer report;
    struct buffer unique; /* reasons, joined by ", " */
    bool distrust;        /* times of files do not tell whether they changed */
    bool by_history;      /* something could not be looked at: the whole counts by history, this once */
};

void digest_answer(struct init *init, struct wire *request);
struct bunshin_error *digest_unique(struct digest *digest, const char *reason) MUST_CHECK;
/* A line "name hex…" of the report. */
struct bunshin_error *digest_report(struct digest *digest, const char *name, const void *hash) MUST_CHECK;

/* ---- files.c ---- */

#define FILES_LAYERS (SETTINGS_LAYERS + 64)

struct tree { /* one mount that can be written, and the layers it is made of, top first */
    const char *mount;
    int fd[FILES_LAYERS];
    int count, own; /* the first `own` are the workspace's, the others the image's */
    int known;      /* of the lowest of its own layers, `sealed` is known */
    struct pair sealed;
};

/* Every difference between the workspace's files and the image's, and the same without what the top layer holds. `ret_changed`:
 * how many entries the top layer has. */
struct bunshin_error *files_digest(struct digest *digest, struct tree *tree, struct pair *ret, uint64_t *ret_changed) MUST_CHECK;
/* What lies on file systems in memory. */
struct bunshin_error *files_in_memory(struct digest *digest, struct pair *ret) MUST_CHECK;

/* ---- shell.c: what bash reports at the end of each call, and what can be seen of it from outside ---- */

/* The part of a report that tells of the state. */
void shell_report(struct session *session, const char *text, size_t size);
struct bunshin_error *shell_digest(struct digest *digest, struct session *session, struct hash *ret) MUST_CHECK;

/* Waits for a session that has just reported: it still puts things back, and is done when it reads its next line. False: it
 * does not. */
bool session_at_rest(struct init *init, const struct session *session);

/* ---- processes.c: everybody else ---- */

/* Before a call: who runs from here on runs in it. Nothing, until a first digest was asked for. */
void processes_before_call(struct init *init);
/* Takes up to 3.6 s where processes tick: they are watched, to know what each does by itself. */
struct bunshin_error *processes_settle(struct init *init) MUST_CHECK;
struct bunshin_error *processes_digest(struct digest *digest, struct sum *ret) MUST_CHECK;

/* ---- kernel.c ---- */

struct bunshin_error *kernel_digest(struct digest *digest, struct hash *ret) MUST_CHECK;

/* ---- what goes along into a fork (digest.c) ---- */

struct bunshin_error *digest_save(struct init *init, struct buffer *ret) MUST_CHECK;
struct bunshin_error *digest_restore(struct init *init, const uint8_t *data, size_t size) MUST_CHECK;
struct bunshin_error *processes_save(struct init *init, struct buffer *ret) MUST_CHECK;
struct bunshin_error *processes_restore(const uint8_t *data, size_t size) MUST_CHECK;

#endif
