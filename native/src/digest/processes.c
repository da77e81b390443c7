/*
 * Live processes other than pid 1 and the shell. Nothing tells what is in the memory of one, so each has a token: a hash of
 * the call that it was born in, and of every call that it ran in since. One that has slept through a call keeps its token, or
 * only did what it does by itself (ticks.c); and forks have the tokens of what they were forked from.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/procfs.h"
#include "digest/digest.h"
#include "digest/ticks.h"

struct known { /* a process; the last three as of the last look */
    pid_t pid;
    bool seen;
    bool stale; /* it ran in a call that no digest was asked for */
    uint64_t born; /* ticks; 0: unknown yet, in a fork */
    struct hash token;
    struct hash ran; /* how long each of its threads had run */
    struct ticks *ticks; /* of one that was seen to run by itself; else NULL */
    bool maps_files;     /* it can write files without changing their times */
};

struct saved { /* in an image */
    int32_t pid;
    int32_t stale, ticks, pad; /* ticks: what was learned follows */
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

/* It ran, and no call did. */
static void ran_by_itself(struct init *init, struct known *known) {
    if (!known->ticks)
        known->ticks = ticks_create();
    if (known->ticks)
        ticks_learn(init, known->pid, known->ticks, true);
}

/* Whether a call that it ran in told it nothing. */
static bool only_ticked(struct init *init, struct known *known) {
    return known->ticks && ticks_has_looked(known->ticks) && ticks_only(init, known->pid, known->ticks);
}

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
        if (!known->born && procfs_stat(init->proc, name, &stat)) { /* in a fork */
            known->born = stat.start_time;
            if (known->ticks)
                ticks_learn(init, known->pid, known->ticks, true);
        } else if (!hash_equal(&known->ran, &ran)) {
            if (first)
                ran_by_itself(init, known);
            else
                known->stale |= !only_ticked(init, known);
        }
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

/*
 * A page of a file that somebody has mapped and written once can be written again and again before its time changes. As
 * long as there is such a process, and once more after its end, what is known of files is not trusted.
 */
static bool maps_files(struct init *init, pid_t pid) {
    char path[32];
    struct buffer text = {0};
    bool found = false;
    snprintf(path, sizeof path, "%d/maps", pid);
    if (procfs_read(init->proc, path, &text))
        for (const char *line = (char *)text.data; *line && !found;) {
            size_t length = strcspn(line, "\n");
            const char *flags = memchr(line, ' ', length), *name = memchr(line, '/', length);
            found = flags && flags[2] == 'w' && flags[4] == 's' && name;
            line += length + (line[length] == '\n');
        }
    buffer_deinit(&text);
    return found;
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
    bool same = known && hash_equal(&known->ran, &ran);
    if (known && known->born && known->born != stat.start_time) {
        ticks_destroy(known->ticks);
        *known = (struct known){.pid = pid};
        known->token = changed(NULL, "born", &digest->origin, (*births)++);
    } else if (!known) {
        struct known fresh = {.pid = pid, .token = changed(NULL, "born", &digest->origin, (*births)++)};
        TRY(add(&fresh, &known));
    } else if (known->born && !same && !init->calls_since_digest)
        ran_by_itself(init, known);
    else if (known->stale || (known->born && !same && !only_ticked(init, known)))
        known->token = changed(&known->token, "ran", &digest->origin, 0);
    if (known->ticks && !ticks_has_looked(known->ticks))
        ticks_learn(init, pid, known->ticks, false); /* to compare with after the next call */
    if (!known->born || !same)
        known->maps_files = maps_files(init, pid);
    digest->distrust |= known->maps_files;
    if ((stat.state == 'T' || stat.state == 't') && init->calls_since_digest)
        known->token = changed(&known->token, "stopped", &digest->origin, 0); /* what waits for it, nobody tells */
    known->born = stat.start_time;
    known->ran = ran;
    known->stale = false;
    known->seen = true;
    struct hash counted = changed(&known->token, stat.state == 'Z' ? "zombie" : "process", NULL, 0);
    sum_add(ret, &counted);
    return digest_unique(digest, "live processes");
}

/* How many ran since they were last looked at, and did other things than before. */
static struct bunshin_error *learn_all(struct init *init, size_t *ret_ran, size_t *ret_new) {
    *ret_ran = *ret_new = 0;
    for (size_t i = 0; i < processes.count; i++) {
        struct known *known = &processes.list[i];
        struct hash ran;
        TRY(how_long(init->proc, known->pid, &ran));
        if (hash_equal(&ran, &known->ran))
            continue;
        known->ran = ran;
        ++*ret_ran;
        size_t before = known->ticks ? ticks_learned(known->ticks) : 0;
        ran_by_itself(init, known);
        *ret_new += known->ticks && ticks_learned(known->ticks) != before;
    }
    return NULL;
}

#define PAUSE_US 150000
#define PAUSES 24
#define PAUSES_STILL 5 /* nobody ran */
#define PAUSES_QUIET 7 /* a second without news */

/* Once in a lineage, at its first digest: what its services do by themselves. Nothing runs for most workspaces. */
struct bunshin_error *processes_settle(struct init *init) {
    size_t ran = 0, news = 0, quiet = 0, still = 0;
    for (int i = 0; processes.count && i < PAUSES && quiet < PAUSES_QUIET && still < PAUSES_STILL; i++) {
        usleep(PAUSE_US);
        TRY(learn_all(init, &ran, &news));
        still = ran ? 0 : still + 1;
        quiet = ran && !news && i > 0 ? quiet + 1 : 0;
    }
    return NULL;
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
        else {
            digest->distrust |= processes.list[i].maps_files;
            ticks_destroy(processes.list[i].ticks);
        }
    processes.count = kept;
    return error;
}

/* ---- into a fork ---- */

struct bunshin_error *processes_save(struct init *init, struct buffer *ret) {
    for (size_t i = 0; i < processes.count; i++) {
        const struct known *known = &processes.list[i];
        struct saved saved = {.pid = known->pid, .stale = known->stale, .ticks = known->ticks != NULL, .token = known->token};
        struct hash ran;
        if (init->calls_since_digest) {
            TRY(how_long(init->proc, known->pid, &ran));
            saved.stale |= !hash_equal(&ran, &known->ran);
        }
        TRY(buffer_append(ret, &saved, sizeof saved));
        if (known->ticks)
            TRY(ticks_save(known->ticks, ret));
    }
    return NULL;
}

struct bunshin_error *processes_restore(const uint8_t *data, size_t size) {
    while (size >= sizeof(struct saved)) {
        struct saved saved;
        struct ticks *ticks = NULL;
        memcpy(&saved, data, sizeof saved);
        data += sizeof saved;
        size -= sizeof saved;
        if (saved.ticks)
            TRY(ticks_restore(&data, &size, &ticks));
        TRY(add(&(struct known){.pid = saved.pid, .stale = saved.stale, .token = saved.token, .ticks = ticks}, NULL));
    }
    return NULL;
}
