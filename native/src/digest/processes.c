/*
 * Live processes other than pid 1 and the shell. Nothing tells what is in the memory of one, so each has a token: a hash of
 * the call that it was born in, and of every call that it ran in since. One that has slept through a call keeps its token, and
 * forks have the tokens of what they were forked from.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/procfs.h"
#include "digest/digest.h"

struct known { /* a process; the last three as of the last look */
    pid_t pid;
    bool seen;
    bool stale; /* it ran in a call that no digest was asked for */
    uint64_t born; /* ticks; 0: unknown yet, in a fork */
    struct hash token;
    struct hash ran; /* how long each of its threads had run */
};

struct saved { /* in an image */
    int32_t pid;
    int32_t stale;
    struct hash token;
};

static struct {
    struct known *list;
    size_t count;
} processes;

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static struct bunshin_error *how_long(int proc, pid_t pid, struct hash *ret) {
    struct hash_state state;
    char path[64];
    int *tids = NULL;
    size_t count = 0;
    struct buffer text = {0};
    snprintf(path, sizeof path, "%d/task", pid);
    hash_init(&state);
    if (procfs_numbers(proc, path, &tids, &count)) {
        qsort(tids, count, sizeof *tids, by_number);
        for (size_t i = 0; i < count; i++) {
            snprintf(path, sizeof path, "%d/task/%d/schedstat", pid, tids[i]);
            hash_number(&state, (uint64_t)tids[i]);
            if (procfs_read(proc, path, &text)) /* time on a processor, time of waiting for one, turns */
                hash_number(&state, strtoull((char *)text.data, NULL, 10));
        }
        free(tids);
    }
    buffer_deinit(&text);
    *ret = hash_end(&state);
    return NULL;
}

static struct known *look_up(pid_t pid) {
    for (size_t i = 0; i < processes.count; i++)
        if (processes.list[i].pid == pid)
            return &processes.list[i];
    return NULL;
}

static struct bunshin_error *add(const struct known *known, struct known **ret) {
    struct known *grown = realloc(processes.list, (processes.count + 1) * sizeof *grown);
    if (!grown)
        return bunshin_error_no_memory();
    processes.list = grown;
    grown[processes.count] = *known;
    if (ret)
        *ret = &grown[processes.count];
    processes.count++;
    return NULL;
}

static struct bunshin_error *pids_of(struct init *init, int **ret, size_t *ret_count) {
    if (!procfs_numbers(init->proc, ".", ret, ret_count))
        return bunshin_error_os("cannot list processes");
    qsort(*ret, *ret_count, sizeof **ret, by_number);
    return NULL;
}

static bool is_other(const struct init *init, pid_t pid) { return pid != 1 && pid != init->session[CALL_SHELL].pid; }

/* What they did since the last digest, between calls, is what time does to them: every history has it. */
void processes_before_call(struct init *init) {
    int *pids = NULL;
    size_t count = 0;
    if (!init->digests)
        return;
    bool first = init->calls_since_digest++ == 0;
    struct bunshin_error *error = pids_of(init, &pids, &count);
    for (size_t i = 0; !error && i < count; i++) {
        char name[16];
        struct process_stat stat;
        struct known *known = is_other(init, pids[i]) ? look_up(pids[i]) : NULL;
        if (!known)
            continue;
        struct hash ran;
        error = how_long(init->proc, pids[i], &ran);
        snprintf(name, sizeof name, "%d", pids[i]);
        if (!known->born && procfs_stat(init->proc, name, &stat))
            known->born = stat.start_time;
        else if (!first)
            known->stale |= !hash_equal(&known->ran, &ran);
        known->ran = ran;
    }
    bunshin_error_destroy(error);
    free(pids);
}

static struct hash changed(const struct hash *token, const char *how, const struct hash *origin, uint64_t number) {
    struct hash_state state;
    hash_init(&state);
    if (token)
        hash_update(&state, token->bytes, HASH_SIZE);
    hash_text(&state, how, strlen(how));
    if (origin)
        hash_update(&state, origin->bytes, HASH_SIZE);
    hash_number(&state, number);
    return hash_end(&state);
}

static struct bunshin_error *digest_one(struct digest *digest, pid_t pid, uint64_t *births, struct sum *ret) {
    struct init *init = digest->init;
    char name[16];
    struct process_stat stat;
    snprintf(name, sizeof name, "%d", pid);
    if (!is_other(init, pid) || !procfs_stat(init->proc, name, &stat) || stat.state == 'X')
        return NULL;
    struct hash ran;
    TRY(how_long(init->proc, pid, &ran));
    struct known *known = look_up(pid);
    if (known && known->born && known->born != stat.start_time) {
        *known = (struct known){.pid = pid};
        known->token = changed(NULL, "born", &digest->origin, (*births)++);
    } else if (!known) {
        struct known fresh = {.pid = pid, .token = changed(NULL, "born", &digest->origin, (*births)++)};
        TRY(add(&fresh, &known));
    } else if (known->stale || (known->born && digest->init->calls_since_digest && !hash_equal(&known->ran, &ran)))
        known->token = changed(&known->token, "ran", &digest->origin, 0);
    known->born = stat.start_time;
    known->ran = ran;
    known->stale = false;
    known->seen = true;
    struct hash counted = changed(&known->token, stat.state == 'Z' ? "zombie" : "process", NULL, 0);
    sum_add(ret, &counted);
    return digest_unique(digest, "live processes");
}

struct bunshin_error *processes_digest(struct digest *digest, struct sum *ret) {
    int *pids = NULL;
    size_t count = 0, kept = 0;
    uint64_t births = 0;
    for (size_t i = 0; i < processes.count; i++)
        processes.list[i].seen = false;
    struct bunshin_error *error = pids_of(digest->init, &pids, &count);
    for (size_t i = 0; !error && i < count; i++)
        error = digest_one(digest, pids[i], &births, ret);
    free(pids);
    for (size_t i = 0; i < processes.count; i++)
        if (processes.list[i].seen)
            processes.list[kept++] = processes.list[i];
    processes.count = kept;
    return error;
}

/* ---- into a fork ---- */

struct bunshin_error *processes_save(struct init *init, struct buffer *ret) {
    for (size_t i = 0; i < processes.count; i++) {
        const struct known *known = &processes.list[i];
        struct saved saved = {.pid = known->pid, .stale = known->stale, .token = known->token};
        struct hash ran;
        if (init->calls_since_digest) {
            TRY(how_long(init->proc, known->pid, &ran));
            saved.stale |= !hash_equal(&ran, &known->ran);
        }
        TRY(buffer_append(ret, &saved, sizeof saved));
    }
    return NULL;
}

struct bunshin_error *processes_restore(const uint8_t *data, size_t size) {
    for (; size >= sizeof(struct saved); data += sizeof(struct saved), size -= sizeof(struct saved)) {
        struct saved saved;
        memcpy(&saved, data, sizeof saved);
        TRY(add(&(struct known){.pid = saved.pid, .stale = saved.stale, .token = saved.token}, NULL));
    }
    return NULL;
}
