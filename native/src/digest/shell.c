/*
 * The shell's logical state, as bash reports it at the end of each call (init/drivers.h), without what changes by itself.
 * What bash does not tell is seen from outside: descriptors with their offsets, umask, limits, directory. A shell that
 * reports nothing we know counts by history, and so does what its background jobs leave in it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/procfs.h"
#include "digest/digest.h"

/* They tell of the moment, of the clock or of chance; BASH_CMDS is bash's memory of where it found commands. */
static const char *const left_out[] = {
    "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS", "BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL",
    "BASHPID",   "FUNCNAME",  "HISTCMD",    "LINENO",    "PIPESTATUS",   "RANDOM",      "SECONDS",     "SRANDOM",
    "EPOCHREALTIME", "EPOCHSECONDS", "_", "__bunshin_status",
};

/* The end of what `declare -p` says of one variable: a line end that is in no quotes. */
static const char *end_of_variable(const char *at, const char *end) {
    char quote = 0;
    for (; at < end; at++) {
        if (!quote && *at == '\n')
            return at + 1;
        if (*at == '\\' && quote != '\'' && at + 1 < end)
            at++;
        else if (quote == '$' && *at == '\'')
            quote = 0;
        else if (quote)
            quote = *at == quote ? 0 : quote;
        else if (*at == '$' && at + 1 < end && at[1] == '\'')
            quote = '$', at++;
        else if (*at == '"' || *at == '\'')
            quote = *at;
    }
    return end;
}

static bool is_left_out(const char *line, const char *end) {
    static const char begin[] = "declare ";
    if ((size_t)(end - line) < sizeof begin || strncmp(line, begin, sizeof begin - 1))
        return false;
    const char *name = memchr(line + sizeof begin - 1, ' ', (size_t)(end - line) - (sizeof begin - 1));
    if (!name)
        return false;
    name++;
    size_t length = 0;
    while (name + length < end && name[length] != '=' && name[length] != '\n')
        length++;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strlen(left_out[i]) == length && !strncmp(left_out[i], name, length))
            return true;
    return false;
}

/* Sections end with NUL: positional parameters, $!, variables, all else, "end". */
void shell_report(struct session *session, const char *text, size_t size) {
    const char *section[5], *stop[5], *at = text, *end = text + size;
    for (int i = 0; i < 5; i++) {
        section[i] = at;
        stop[i] = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
        if (!stop[i])
            return;
        at = stop[i] + 1;
    }
    if (at != end || strcmp(section[4], "end"))
        return;
    struct hash_state state;
    struct buffer traps = {0};
    int fd = open(INIT_PRIVATE "/shell.traps", O_RDONLY | O_CLOEXEC);
    struct bunshin_error *error = fd < 0 ? bunshin_error_os("no traps") : buffer_read_all(&traps, fd, "traps");
    if (fd >= 0)
        close(fd);
    if (!error) {
        hash_init(&state);
        hash_text(&state, section[0], (size_t)(stop[0] - section[0]));
        hash_text(&state, section[3], (size_t)(stop[3] - section[3]));
        hash_text(&state, traps.data, traps.size);
        for (const char *line = section[2]; line < stop[2];) {
            const char *next = end_of_variable(line, stop[2]);
            if (!is_left_out(line, next))
                hash_text(&state, line, (size_t)(next - line));
            line = next;
        }
        struct hash hash = hash_end(&state);
        memcpy(session->state.logical, hash.bytes, sizeof hash.bytes);
        snprintf(session->state.background, sizeof session->state.background, "%.*s", (int)(stop[1] - section[1]), section[1]);
        session->state.known = true;
    }
    bunshin_error_destroy(error);
    buffer_deinit(&traps);
}

/* ---- from outside ---- */

static struct bunshin_error *add_descriptor(struct digest *digest, pid_t pid, int fd, struct hash_state *state, bool *ret_by_history) {
    char path[64], link[4200];
    struct buffer info = {0};
    snprintf(path, sizeof path, "%d/fd/%d", pid, fd);
    ssize_t length = readlinkat(digest->init->proc, path, link, sizeof link - 1);
    if (length < 0)
        return NULL;
    link[length] = '\0';
    hash_number(state, (uint64_t)fd);
    if (*link != '/') { /* pipe:[1234], socket:[1234], anon_inode:…: what is in it, nobody tells */
        hash_text(state, link, strcspn(link, "["));
        *ret_by_history |= fd != 0; /* the pipe that calls come through */
        return NULL;
    }
    if (!strncmp(link, "/dev/pts/", 9)) {
        hash_text(state, "terminal", 8);
        return NULL;
    }
    hash_text(state, link, (size_t)length);
    struct stat kind;
    if (fstatat(digest->init->proc, path, &kind, 0) == 0 && !S_ISREG(kind.st_mode) && !S_ISDIR(kind.st_mode) && !S_ISCHR(kind.st_mode))
        *ret_by_history = true;
    /* A file without a name is seen through nothing else. */
    *ret_by_history |= strlen(link) > 10 && !strcmp(link + strlen(link) - 10, " (deleted)");
    snprintf(path, sizeof path, "%d/fdinfo/%d", pid, fd);
    if (procfs_read(digest->init->proc, path, &info)) {
        const char *mount = strstr((char *)info.data, "mnt_id:"); /* position and flags come before it */
        hash_text(state, info.data, mount ? (size_t)(mount - (char *)info.data) : info.size);
        *ret_by_history |= strstr((char *)info.data, "\nlock:") != NULL;
    }
    buffer_deinit(&info);
    return NULL;
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static struct bunshin_error *look(struct digest *digest, pid_t pid, struct hash_state *state, bool *ret_by_history) {
    int proc = digest->init->proc, *fds = NULL;
    size_t count = 0;
    char path[64], cwd[4200];
    struct buffer text = {0};
    struct process_stat stat;
    snprintf(path, sizeof path, "%d/fd", pid);
    if (!procfs_numbers(proc, path, &fds, &count))
        return bunshin_error_os("cannot list the shell's descriptors");
    qsort(fds, count, sizeof *fds, by_number);
    struct bunshin_error *error = NULL;
    for (size_t i = 0; !error && i < count; i++)
        error = add_descriptor(digest, pid, fds[i], state, ret_by_history);
    free(fds);
    snprintf(path, sizeof path, "%d/cwd", pid);
    ssize_t length = readlinkat(proc, path, cwd, sizeof cwd);
    hash_text(state, cwd, length < 0 ? 0 : (size_t)length);
    snprintf(path, sizeof path, "%d/limits", pid);
    if (!error && procfs_read(proc, path, &text))
        hash_text(state, text.data, text.size);
    snprintf(path, sizeof path, "%d/status", pid);
    uint64_t mask = 0;
    if (!error && procfs_read(proc, path, &text) && procfs_field((char *)text.data, "Umask", 8, &mask))
        hash_number(state, mask);
    snprintf(path, sizeof path, "%d", pid);
    if (!error && procfs_stat(proc, path, &stat))
        hash_number(state, (uint64_t)stat.nice);
    buffer_deinit(&text);
    return error;
}

#define REST_NS 200000000ll

bool session_at_rest(struct init *init, const struct session *session) {
    const char *reads = session->kind == CALL_SHELL ? "0 0x0 " : "0 "; /* read(0, …; of python: another descriptor */
    pid_t pid = session->pid;
    char path[32];
    struct buffer text = {0};
    bool rest = false;
    snprintf(path, sizeof path, "%d/syscall", pid);
    for (int64_t end = init_now() + REST_NS; !rest && init_now() < end;) {
        rest = procfs_read(init->proc, path, &text) && !strncmp((char *)text.data, reads, strlen(reads));
        if (!rest)
            usleep(20);
    }
    buffer_deinit(&text);
    return rest;
}

static void renew(struct session *session, const struct hash *origin) {
    struct hash_state state;
    hash_init(&state);
    hash_update(&state, session->state.token, sizeof session->state.token);
    hash_update(&state, origin->bytes, HASH_SIZE);
    struct hash hash = hash_end(&state);
    memcpy(session->state.token, hash.bytes, HASH_SIZE);
}

struct bunshin_error *shell_digest(struct digest *digest, struct session *session, struct hash *ret) {
    struct hash_state state;
    bool by_history = !session_at_rest(digest->init, session);
    if (by_history)
        TRY(digest_unique(digest, "a shell that is not at rest"));
    hash_init(&state);
    TRY(look(digest, session->pid, &state, &by_history));
    if (!session->state.known)
        TRY(digest_unique(digest, "a shell that does not tell its state"));
    if (by_history)
        TRY(digest_unique(digest, "pipes or sockets that the shell holds"));
    /* What `wait` remembers of a job is told nowhere. */
    bool started = strcmp(session->state.background, session->state.background_before) != 0;
    if (*session->state.background)
        TRY(digest_unique(digest, "background jobs"));
    if (started || by_history || !session->state.known)
        renew(session, &digest->origin);
    memcpy(session->state.background_before, session->state.background, sizeof session->state.background);
    if (session->state.known)
        hash_update(&state, session->state.logical, sizeof session->state.logical);
    hash_number(&state, (uint64_t)session->last_status);
    hash_update(&state, session->state.token, sizeof session->state.token);
    *ret = hash_end(&state);
    return NULL;
}
