#define _GNU_SOURCE
#include "fork/sysv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * An id is a sequence number above an index. The kernel gives out indices in turn, among the first CYCLE or half as many
 * again as there are objects, and counts the sequence up with every turn (before 5.2: the lowest index that is free).
 */
#define INDEX_BITS 15
#define CYCLE 64
#define TRIES_MOST 100000
#define ADVANCE_MOST 512 /* a few µs each */

static const char *const names[] = {"shm", "sem", "msg"};

/* ---- capture ---- */

struct bunshin_error *sysv_list(struct capture *capture, enum sysv_kind kind,
                                struct bunshin_error *(*each)(struct capture *capture, const char *line)) {
    char path[32];
    struct buffer text = {0};
    struct bunshin_error *error = NULL;
    snprintf(path, sizeof path, "sysvipc/%s", names[kind]);
    if (procfs_read(capture->init->proc, path, &text))
        for (char *line = strchr((char *)text.data, '\n'); !error && line && line[1]; line = strchr(line + 1, '\n'))
            error = each(capture, line + 1);
    buffer_deinit(&text);
    return error;
}

int sysv_compare_ids(int one, int other) {
    int a = one >> INDEX_BITS, b = other >> INDEX_BITS;
    return a != b ? (a > b) - (a < b) : (one > other) - (one < other);
}

/* ---- who does it ---- */

int sysv_act(const struct sysv_actor *actor, int (*act)(const void *argument), const void *argument) {
    if (actor->pid == 1 && !actor->uid && !actor->gid)
        return act(argument);
    pid_t wanted = actor->pid;
    struct clone_args clone = {.set_tid = (uint64_t)(uintptr_t)&wanted, .set_tid_size = wanted > 1};
    pid_t pid = (pid_t)syscall(SYS_clone3, &clone, sizeof clone);
    if (pid < 0)
        return errno;
    if (pid == 0) {
        if ((actor->gid && setresgid(actor->gid, actor->gid, (gid_t)-1) != 0) || (actor->uid && setresuid((uid_t)-1, actor->uid, (uid_t)-1) != 0))
            _exit(errno);
        _exit(act(argument));
    }
    int status = 0;
    while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

/* ---- ids ---- */

static int make_any(enum sysv_kind kind) {
    return kind == SYSV_SHM ? shmget(IPC_PRIVATE, 4096, 0600) : kind == SYSV_SEM ? semget(IPC_PRIVATE, 1, 0600) : msgget(IPC_PRIVATE, 0600);
}

static void throw_away(enum sysv_kind kind, int id) {
    if (kind == SYSV_SHM)
        shmctl(id, IPC_RMID, NULL);
    else if (kind == SYSV_SEM)
        semctl(id, 0, IPC_RMID);
    else
        msgctl(id, IPC_RMID, NULL);
}

static bool add_placeholder(enum sysv_kind kind, int **placeholders, int *count) {
    int *grown = realloc(*placeholders, (size_t)(*count + 1) * sizeof *grown);
    if (!grown)
        return false;
    *placeholders = grown;
    grown[*count] = make_any(kind);
    return grown[(*count)++] >= 0;
}

/* Where the next id cannot be said: until it comes up. */
static int count_up_to(const struct sysv_creation *creation) {
    int *placeholders = NULL, count = 0, failed = EBUSY, mask = (1 << INDEX_BITS) - 1, wanted = creation->id & mask, before = -1;
    bool ok = true;
    while (ok && wanted >= CYCLE && count <= wanted * 2 / 3)
        ok = add_placeholder(creation->kind, &placeholders, &count);
    for (int tries = 0; ok && failed == EBUSY && tries < TRIES_MOST; tries++) {
        int id = creation->make(creation->record);
        failed = id < 0 ? errno : id == creation->id ? 0 : EBUSY;
        if (failed != EBUSY)
            break;
        throw_away(creation->kind, id);
        if (sysv_compare_ids(id, creation->id) > 0)
            break; /* it was before */
        if ((id & mask) == before && before < wanted) /* the lowest, not the next: taken, another one is */
            ok = add_placeholder(creation->kind, &placeholders, &count);
        before = id & mask;
    }
    while (count > 0)
        throw_away(creation->kind, placeholders[--count]);
    free(placeholders);
    return failed;
}

static int make(const void *argument) {
    const struct sysv_creation *creation = argument;
    int id = creation->make(creation->record);
    if (id == creation->id)
        return 0;
    if (id < 0)
        return errno;
    throw_away(creation->kind, id);
    return count_up_to(creation);
}

static void ask_for_id(const struct rebuild *rebuild, enum sysv_kind kind, int id) {
    char text[16];
    if (rebuild->init->settings.kernel_fd < 0 || rebuild->init->without & WITHOUT_IPC_IDS)
        return;
    snprintf(text, sizeof text, "%s_next_id", names[kind]);
    int fd = openat(rebuild->init->settings.kernel_fd, text, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    int length = snprintf(text, sizeof text, "%d", id);
    (void)!write(fd, text, (size_t)length); /* what comes of it is looked at */
    close(fd);
}

struct bunshin_error *sysv_create(struct rebuild *rebuild, const struct sysv_creation *creation) {
    ask_for_id(rebuild, creation->kind, creation->id);
    int failed = sysv_act(&creation->actor, make, creation);
    if (!failed)
        return NULL;
    return bunshin_error_new(BUNSHIN_ERROR_FORK, failed, "cannot make the System V object %s %d again: %s", names[creation->kind], creation->id,
                             strerrordesc_np(failed) ? strerrordesc_np(failed) : "unknown error");
}

/* The id that the kernel would have given next. That of the source is spent with looking. */
static int next_id(enum sysv_kind kind) {
    int id = make_any(kind);
    if (id >= 0)
        throw_away(kind, id);
    return id;
}

/* So that ids which programs may still remember are not given to other objects. */
static void advance(enum sysv_kind kind, int next) {
    for (int tries = 0, id = 0; next >= 0 && id >= 0 && tries < ADVANCE_MOST; tries++) {
        id = next_id(kind);
        if (sysv_compare_ids(id, next) >= 0)
            return;
    }
}

/* ---- the order ---- */

const struct image_process *sysv_find_process(const struct rebuild *rebuild, pid_t pid) {
    for (size_t i = 0; i < rebuild->image->table[TABLE_PROCESS].count; i++)
        if (IMAGE_PROCESS(rebuild->image, i)->pid == pid)
            return IMAGE_PROCESS(rebuild->image, i);
    return NULL;
}

static int segments_by_id(const void *one, const void *other) {
    return sysv_compare_ids(((const struct image_segment *)one)->id, ((const struct image_segment *)other)->id);
}

static int semaphores_by_id(const void *one, const void *other) {
    return sysv_compare_ids(((const struct image_semaphores *)one)->id, ((const struct image_semaphores *)other)->id);
}

static int queues_by_id(const void *one, const void *other) {
    return sysv_compare_ids(((const struct image_queue *)one)->id, ((const struct image_queue *)other)->id);
}

struct bunshin_error *sysv_capture(struct capture *capture) {
    static const struct {
        struct bunshin_error *(*each)(struct capture *capture, const char *line);
        enum table table;
        size_t size;
        int (*compare)(const void *one, const void *other);
    } kinds[SYSV_KINDS] = {
        {sysv_capture_segment, TABLE_SEGMENT, sizeof(struct image_segment), segments_by_id},
        {sysv_capture_semaphores, TABLE_SEMAPHORES, sizeof(struct image_semaphores), semaphores_by_id},
        {sysv_capture_queue, TABLE_QUEUE, sizeof(struct image_queue), queues_by_id},
    };
    for (enum sysv_kind kind = SYSV_SHM; kind < SYSV_KINDS; kind++) {
        struct buffer *table = &capture->table[kinds[kind].table];
        TRY(sysv_list(capture, kind, kinds[kind].each));
        capture->next_id[kind] = table->size ? next_id(kind) : -1;
        if (table->size)
            qsort(table->data, table->size / kinds[kind].size, kinds[kind].size, kinds[kind].compare);
    }
    return NULL;
}

struct bunshin_error *sysv_rebuild(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    for (size_t i = 0; i < image->table[TABLE_SEGMENT].count; i++)
        TRY(sysv_rebuild_segment(rebuild, IMAGE_SEGMENT(image, i)));
    for (size_t i = 0; i < image->table[TABLE_SEMAPHORES].count; i++)
        TRY(sysv_rebuild_semaphores(rebuild, IMAGE_SEMAPHORES(image, i)));
    for (size_t i = 0; i < image->table[TABLE_QUEUE].count; i++)
        TRY(sysv_rebuild_queue(rebuild, IMAGE_QUEUE(image, i)));
    for (enum sysv_kind kind = SYSV_SHM; kind < SYSV_KINDS; kind++)
        advance(kind, image->next_id[kind]);
    return NULL;
}

struct bunshin_error *sysv_finish(struct rebuild *rebuild, struct tracee *tracees) {
    for (size_t i = 0; i < rebuild->image->table[TABLE_SEGMENT].count; i++)
        TRY(sysv_finish_segment(rebuild, tracees, IMAGE_SEGMENT(rebuild->image, i)));
    return sysv_finish_semaphores(rebuild, tracees);
}
