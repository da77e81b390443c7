/*
 * The order of a digest. The owner says what it knows of sealed layers, and which call was made; the answer is text, a line a
 * part: "files LOOSE STRICT CHANGED MOUNT", "sealed LAYERS LOOSE STRICT MOUNT", "shell HASH", and so on; the owner puts the
 * parts together (bunshin_gym/engines/native_digest.py).
 */
#define _GNU_SOURCE
#include "digest/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/records.h"
#include "digest/known.h"

struct bunshin_error *digest_unique(struct digest *digest, const char *reason) {
    if (digest->unique.size && strstr((char *)digest->unique.data, reason))
        return NULL;
    if (digest->unique.size) {
        digest->unique.size--; /* the NUL */
        TRY(buffer_append(&digest->unique, ", ", 2));
    }
    return buffer_append(&digest->unique, reason, strlen(reason) + 1);
}

struct bunshin_error *digest_report(struct digest *digest, const char *name, const void *hash) {
    char text[2 * HASH_SIZE + 1];
    hash_format(hash, text);
    return buffer_printf(&digest->report, "%s %s\n", name, text);
}

static struct bunshin_error *report_pair(struct digest *digest, const char *name, const struct pair *pair, uint64_t number,
                                         const char *mount) {
    char loose[2 * HASH_SIZE + 1], strict[2 * HASH_SIZE + 1];
    hash_format(&pair->loose, loose);
    hash_format(&pair->strict, strict);
    return buffer_printf(&digest->report, "%s %s %s %llu %s\n", name, loose, strict, (unsigned long long)number, mount);
}

static void gather(const struct settings *settings, const char *mount, struct tree *ret) {
    *ret = (struct tree){.mount = mount};
    for (int i = 0; i < settings->layer_count; i++)
        if (!strcmp(settings->layer[i].mount, mount))
            ret->fd[ret->count++] = settings->layer[i].fd;
    ret->own = ret->count;
    for (int i = 0; i < settings->base_count; i++)
        if (!strcmp(settings->base[i].mount, mount))
            ret->fd[ret->count++] = settings->base[i].fd;
}

static struct bunshin_error *take_sealed(const struct records *record, struct tree *tree) {
    if (record->count != 5 || strcmp(record->string[0], "sealed") || strcmp(record->string[1], tree->mount))
        return NULL;
    tree->known = atoi(record->string[2]);
    if (tree->known < 0 || tree->known > tree->own - 1 || !hash_parse(record->string[3], &tree->sealed.loose) ||
        !hash_parse(record->string[4], &tree->sealed.strict))
        return bunshin_error_new(BUNSHIN_ERROR_INVALID, EINVAL, "cannot digest: the sum of %s layers of %s is none", record->string[2],
                                 tree->mount);
    return NULL;
}

static struct bunshin_error *mount_digest(struct digest *digest, const char *mount, const struct wire *request) {
    static struct tree tree;
    static struct records records;
    struct pair whole;
    uint64_t changed = 0;
    struct stat root;
    gather(&digest->init->settings, mount, &tree);
    if (!tree.own)
        return NULL;
    records_init(&records, request->payload, request->payload_size);
    while (records_next(&records))
        TRY(take_sealed(&records, &tree));
    TRY(files_digest(digest, &tree, &whole, &changed));
    TRY(report_pair(digest, "files", &whole, changed, mount));
    TRY(report_pair(digest, "sealed", &tree.sealed, (uint64_t)tree.known, mount));
    if (fstatat(tree.fd[0], "", &root, AT_EMPTY_PATH) != 0)
        return bunshin_error_os("cannot look at %s", mount);
    return buffer_printf(&digest->report, "root %o %u %u %s\n", root.st_mode, root.st_uid, root.st_gid, mount);
}

static struct bunshin_error *mounts_digest(struct digest *digest, const struct wire *request) {
    const struct settings *settings = &digest->init->settings;
    for (int i = 0; i < settings->layer_count; i++) {
        bool again = false;
        for (int before = 0; before < i; before++)
            again |= !strcmp(settings->layer[before].mount, settings->layer[i].mount);
        if (!again)
            TRY(mount_digest(digest, settings->layer[i].mount, request));
    }
    if (settings->layer_count == SETTINGS_LAYERS) { /* there may be more than we keep */
        digest->by_history = true;
        return digest_unique(digest, "too many layers");
    }
    return NULL;
}

static struct bunshin_error *digest_all(struct digest *digest, const struct wire *request) {
    struct init *init = digest->init;
    struct session *shell = &init->session[CALL_SHELL];
    struct hash hash;
    struct sum processes = {0};
    struct pair memory = {0};
    for (int kind = CALL_SHELL; kind <= CALL_PYTHON; kind++)
        if (init->session[kind].running)
            return bunshin_error_new(BUNSHIN_ERROR_BUSY, EBUSY, "cannot digest: a call is running");
    init_reap(init);
    bool fresh = !shell->pid; /* which is the same state as none */
    if (fresh)
        TRY(session_ensure(init, CALL_SHELL));
    if (fresh || (!init->digests && session_at_rest(init, shell))) /* calls so far have not told the shell's state */
        TRY(session_ask(init, shell));
    if (init->session[CALL_PYTHON].pid)
        (void)session_at_rest(init, &init->session[CALL_PYTHON]); /* else it is seen to run in the next call */
    TRY(processes_digest(digest, &processes));
    if (digest->distrust)
        known_forget();
    TRY(mounts_digest(digest, request));
    TRY(files_in_memory(digest, &memory));
    TRY(report_pair(digest, "memory", &memory, 0, "/dev"));
    TRY(shell_digest(digest, shell, &hash));
    TRY(digest_report(digest, "shell", &hash));
    TRY(digest_report(digest, "processes", &processes));
    if (!init->digests)
        TRY(processes_settle(init));
    TRY(kernel_digest(digest, &hash));
    TRY(digest_report(digest, "kernel", &hash));
    if (digest->by_history)
        TRY(buffer_printf(&digest->report, "by-history\n"));
    if (digest->unique.size)
        TRY(buffer_printf(&digest->report, "unique %s\n", (char *)digest->unique.data));
    init->digests = true;
    init->calls_since_digest = 0;
    return NULL;
}

void digest_answer(struct init *init, struct wire *request) {
    static struct records records;
    int reply = request->fd_count ? request->fd[0] : -1;
    struct digest digest = {.init = init};
    struct bunshin_error *error = NULL;
    records_init(&records, request->payload, request->payload_size);
    if (!records_next(&records) || records.count != 2 || strcmp(records.string[0], "origin") ||
        !hash_parse(records.string[1], &digest.origin))
        error = bunshin_error_new(BUNSHIN_ERROR_INVALID, EINVAL, "cannot digest: the origin is no hash");
    if (!error)
        error = digest_all(&digest, request);
    if (error)
        wire_answer(reply, error);
    else {
        struct wire answer = {.verb = WIRE_RESULT, .payload = digest.report.data, .payload_size = digest.report.size};
        bunshin_error_destroy(wire_send(reply, &answer));
    }
    buffer_deinit(&digest.report);
    buffer_deinit(&digest.unique);
}

/* ---- into a fork ---- */

struct saved { /* followed by the processes */
    int32_t digests, shell_known;
    int64_t calls_since_digest;
    uint8_t logical[HASH_SIZE], token[HASH_SIZE];
    char background[2][24];
};

struct bunshin_error *digest_save(struct init *init, struct buffer *ret) {
    const struct session *shell = &init->session[CALL_SHELL];
    struct saved saved = {
        .digests = init->digests, .shell_known = shell->state.known, .calls_since_digest = init->calls_since_digest};
    memcpy(saved.logical, shell->state.logical, HASH_SIZE);
    memcpy(saved.token, shell->state.token, HASH_SIZE);
    memcpy(saved.background[0], shell->state.background, sizeof saved.background[0]);
    memcpy(saved.background[1], shell->state.background_before, sizeof saved.background[1]);
    TRY(buffer_append(ret, &saved, sizeof saved));
    return processes_save(init, ret);
}

struct bunshin_error *digest_restore(struct init *init, const uint8_t *data, size_t size) {
    struct session *shell = &init->session[CALL_SHELL];
    struct saved saved;
    if (size < sizeof saved)
        return NULL;
    memcpy(&saved, data, sizeof saved);
    init->digests = saved.digests;
    init->calls_since_digest = saved.calls_since_digest;
    shell->state.known = saved.shell_known;
    memcpy(shell->state.logical, saved.logical, HASH_SIZE);
    memcpy(shell->state.token, saved.token, HASH_SIZE);
    memcpy(shell->state.background, saved.background[0], sizeof saved.background[0]);
    memcpy(shell->state.background_before, saved.background[1], sizeof saved.background[1]);
    return processes_restore(data + sizeof saved, size - sizeof saved);
}
