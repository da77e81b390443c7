#define _GNU_SOURCE
#include "fork/silent.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fork/mountinfo.h"
#include "init/init.h"

#define ANSWER_NS 2000000000ll /* a server far away, on a full machine, may take that long */
#define ASKED_MOST 64

struct question { /* belongs to its thread too, which may never come back */
    char *point, type[24];
    uint32_t answered;
    struct question *next;
};

static struct question *open_questions; /* what stays open is not asked again by the next seal */

static bool has_server(const char *type) {
    static const char *const types[] = {"fuse", "fuseblk", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "virtiofs", "lustre", "gpfs", "beegfs"};
    if (!strncmp(type, "fuse.", 5))
        return true;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i]))
            return true;
    return false;
}

static void *ask(void *argument) {
    struct question *question = argument;
    struct statfs info;
    (void)statfs(question->point, &info);
    __atomic_store_n(&question->answered, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static bool is_answered(const struct question *question) { return __atomic_load_n(&question->answered, __ATOMIC_SEQ_CST); }

static void forget_answered(void) {
    for (struct question **at = &open_questions; *at;) {
        struct question *question = *at;
        if (!is_answered(question)) {
            at = &question->next;
            continue;
        }
        *at = question->next;
        free(question->point);
        free(question);
    }
}

static bool is_open(const char *point) {
    for (const struct question *question = open_questions; question; question = question->next)
        if (!strcmp(question->point, point))
            return true;
    return false;
}

/* Where a thread cannot be had, nothing is asked: the seal has a deadline of its own. */
static void put_question(const struct mount_entry *mount) {
    struct question *question = calloc(1, sizeof *question);
    pthread_attr_t attributes;
    pthread_t thread;
    if (!question || !(question->point = strdup(mount->point))) {
        free(question);
        return;
    }
    snprintf(question->type, sizeof question->type, "%s", mount->type);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    if (pthread_create(&thread, &attributes, ask, question) == 0) {
        question->next = open_questions;
        open_questions = question;
    } else {
        free(question->point);
        free(question);
    }
    pthread_attr_destroy(&attributes);
}

bool silent_look(int proc) {
    struct mountinfo mounts;
    int asked = 0;
    forget_answered();
    struct bunshin_error *error = mountinfo_read(proc, "self", &mounts);
    for (size_t i = 0; !error && i < mounts.count && asked < ASKED_MOST; i++)
        if (has_server(mounts.list[i].type) && !is_open(mounts.list[i].point)) {
            put_question(&mounts.list[i]);
            asked++;
        }
    mountinfo_deinit(&mounts);
    bunshin_error_destroy(error);
    for (int64_t end = init_now() + ANSWER_NS; asked && open_questions && init_now() < end; usleep(50))
        forget_answered();
    return open_questions != NULL;
}

/* ---- who uses one ---- */

static const struct question *find_silent(const char *path) {
    for (const struct question *question = open_questions; question; question = question->next) {
        size_t length = strlen(question->point);
        if (!strncmp(path, question->point, length) && (path[length] == '/' || path[length] == '\0' || !strcmp(question->point, "/")))
            return question;
    }
    return NULL;
}

static struct bunshin_error *refuse(const struct frozen_process *process, const char *what, const char *path, const struct question *question) {
    return bunshin_error_new(BUNSHIN_ERROR_FORK, ETIMEDOUT,
                             "cannot seal: pid %d (%s) has %.200s %s, and the file system there (%s, at %.200s) does not answer", process->pid,
                             process->stat.comm, path, what, question->type, question->point);
}

/* Links of /proc are read without asking the file system. */
static struct bunshin_error *look_at_link(const struct frozen_process *process, int proc, const char *name, const char *what) {
    char link[48], path[4200];
    snprintf(link, sizeof link, "%d/%s", process->alive, name);
    ssize_t length = readlinkat(proc, link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    const struct question *question = find_silent(path);
    return question ? refuse(process, what, path, question) : NULL;
}

static struct bunshin_error *look_at_descriptors(const struct frozen_process *process, int proc) {
    char name[32];
    int *numbers = NULL;
    size_t count = 0;
    struct bunshin_error *error = NULL;
    snprintf(name, sizeof name, "%d/fd", process->alive);
    if (!procfs_numbers(proc, name, &numbers, &count))
        return NULL;
    for (size_t i = 0; !error && i < count; i++) {
        char what[32];
        snprintf(name, sizeof name, "fd/%d", numbers[i]);
        snprintf(what, sizeof what, "as fd %d", numbers[i]);
        error = look_at_link(process, proc, name, what);
    }
    free(numbers);
    return error;
}

static struct bunshin_error *look_at_mappings(const struct frozen_process *process, int proc) {
    char name[32];
    struct buffer text = {0};
    snprintf(name, sizeof name, "%d/maps", process->alive);
    bool there = procfs_read(proc, name, &text);
    struct bunshin_error *error = NULL;
    char *rest = there ? (char *)text.data : NULL;
    for (char *line; !error && (line = strsep(&rest, "\n"));) {
        const char *path = strchr(line, '/');
        const struct question *question = path ? find_silent(path) : NULL;
        if (question)
            error = refuse(process, "mapped", path, question);
    }
    buffer_deinit(&text);
    return error;
}

struct bunshin_error *silent_refuse(const struct frozen *frozen, int proc) {
    for (size_t i = 0; open_questions && i < frozen->process_count; i++) {
        const struct frozen_process *process = &frozen->processes[i];
        if (process->zombie)
            continue;
        TRY(look_at_link(process, proc, "cwd", "as its directory"));
        TRY(look_at_link(process, proc, "root", "as its root"));
        TRY(look_at_link(process, proc, "exe", "as its program"));
        TRY(look_at_descriptors(process, proc));
        TRY(look_at_mappings(process, proc));
    }
    return NULL;
}
