/*
 * System V semaphores: values, who changed each last, and what a process's end would undo. The last is shown nowhere, but
 * the kernel refuses an operation that would take it out of its range, and does nothing at all when a later operation of
 * the same call would have to wait: so it can be asked for without changing anything (blob/parasite.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork/sysv.h"

#define VALUE_MOST 32767

union argument { /* of semctl */
    int value;
    struct semid_ds *state;
    unsigned short *array;
};

/* ---- capture: sets ---- */

struct bunshin_error *sysv_capture_semaphores(struct capture *capture, const char *line) {
    struct image_semaphores set = {0};
    long long operated;
    if (sscanf(line, "%d %d %o %d %u %u %u %u %lld", &set.key, &set.id, &set.mode, &set.count, &set.uid, &set.gid, &set.creator_uid,
               &set.creator_gid, &operated) != 9)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, EBADMSG, "cannot read the list of System V semaphores");
    set.operated = operated != 0;
    unsigned short *values = calloc((size_t)set.count, sizeof *values);
    int32_t *pids = calloc((size_t)set.count, sizeof *pids);
    struct bunshin_error *error = values && pids ? NULL : bunshin_error_no_memory();
    if (!error && semctl(set.id, 0, GETALL, (union argument){.array = values}) < 0)
        error = bunshin_error_os("cannot read System V semaphores %d", set.id);
    for (int i = 0; !error && i < set.count; i++)
        pids[i] = semctl(set.id, i, GETPID);
    if (!error)
        error = capture_heap(capture, values, sizeof *values * (size_t)set.count, &set.values);
    if (!error)
        error = capture_heap(capture, pids, sizeof *pids * (size_t)set.count, &set.pids);
    free(values);
    free(pids);
    return error ? error : capture_add(capture, TABLE_SEMAPHORES, &set, sizeof set, NULL);
}

/* ---- capture: what the end of a process undoes ---- */

static bool same_undo(pid_t one, pid_t other) { return syscall(SYS_kcmp, one, other, KCMP_SYSVSEM, 0, 0) == 0; }

/* Undo values belong to threads, which have them in common as a rule; a fork can make no other way. */
static struct bunshin_error *refuse_undo(struct capture *capture, const struct frozen_process *frozen) {
    for (size_t i = 1; i < frozen->thread_count; i++)
        if (!same_undo(frozen->alive, capture->frozen->threads[frozen->first_thread + i].tid))
            return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "threads with semaphore undo values of their own");
    for (size_t i = 0; i < capture->frozen->process_count; i++) {
        const struct frozen_process *other = &capture->frozen->processes[i];
        if (other != frozen && !other->zombie && same_undo(frozen->alive, other->alive))
            return bunshin_error_unsupported(frozen->pid, frozen->stat.comm, -1, "semaphore undo values in common with pid %d", other->pid);
    }
    return NULL;
}

static struct bunshin_error *ask(struct parasite *parasite, const struct image_semaphores *set) {
    parasite->args->task = PARASITE_SEMAPHORES;
    parasite->args->failed = 0;
    parasite->args->range[0] = (uint64_t)set->id;
    parasite->args->range[1] = (uint64_t)set->count;
    return parasite_run(parasite, parasite->leader);
}

/* Who may not change the semaphores any more may do so for the moment. */
static struct bunshin_error *ask_all_the_same(struct parasite *parasite, const struct image_semaphores *set) {
    struct semid_ds state, open;
    if (semctl(set->id, 0, IPC_STAT, (union argument){.state = &state}) != 0)
        return bunshin_error_os("cannot look at System V semaphores %d", set->id);
    open = state;
    open.sem_perm.mode |= 0666;
    if (semctl(set->id, 0, IPC_SET, (union argument){.state = &open}) != 0)
        return bunshin_error_os("cannot open System V semaphores %d", set->id);
    struct bunshin_error *error = ask(parasite, set);
    if (semctl(set->id, 0, IPC_SET, (union argument){.state = &state}) != 0 && !error)
        error = bunshin_error_os("cannot close System V semaphores %d", set->id);
    return error;
}

struct bunshin_error *sysv_capture_undo(struct capture *capture, struct frozen_process *frozen, struct parasite *parasite, int32_t process) {
    int32_t sets = CAPTURE_COUNT(capture, TABLE_SEMAPHORES, struct image_semaphores);
    /* We have none (a thread that was begun may have left us a list, which nothing is on), and so has who has the same. */
    if (!sets || unshare(CLONE_SYSVSEM) != 0 || same_undo(frozen->alive, getpid()))
        return NULL;
    TRY(refuse_undo(capture, frozen));
    for (int32_t i = 0; i < sets; i++) {
        struct image_semaphores set = *CAPTURE_AT(capture, TABLE_SEMAPHORES, struct image_semaphores, i);
        int16_t *adjust = (int16_t *)(void *)parasite->args->resident; /* the values there, what is undone back */
        memcpy(adjust, capture->table[TABLE_HEAP].data + set.values.offset, set.values.size);
        struct bunshin_error *error = ask(parasite, &set);
        if (error && error->errnum == EACCES) {
            bunshin_error_destroy(error);
            memcpy(adjust, capture->table[TABLE_HEAP].data + set.values.offset, set.values.size);
            error = ask_all_the_same(parasite, &set);
        }
        TRY(error);
        for (int32_t number = 0; number < set.count; number++) {
            struct image_undo undo = {process, set.id, number, adjust[number]};
            if (undo.value)
                TRY(capture_add(capture, TABLE_UNDO, &undo, sizeof undo, NULL));
        }
    }
    return NULL;
}

/* ---- rebuild ---- */

static int make_set(const void *record) {
    const struct image_semaphores *set = record;
    return semget(set->key, set->count, IPC_CREAT | IPC_EXCL | (int)(set->mode & 0777));
}

struct setting { /* what one process had set last */
    const struct image_semaphores *set;
    const uint16_t *values;
    const int32_t *pids;
    pid_t pid;
    bool operate; /* the set has been operated on, and shows when */
};

static int operate(int id, int number, int value) {
    short first = value < VALUE_MOST ? 1 : -1;
    struct sembuf operations[2] = {{(unsigned short)number, first, IPC_NOWAIT}, {(unsigned short)number, (short)-first, IPC_NOWAIT}};
    return semop(id, operations, 2) ? errno : 0;
}

static int set_values(const void *argument) {
    const struct setting *setting = argument;
    bool operates = setting->operate;
    for (int32_t i = 0; i < setting->set->count; i++) {
        if (setting->pids[i] != setting->pid)
            continue;
        if (semctl(setting->set->id, i, SETVAL, (union argument){.value = setting->values[i]}) != 0)
            return errno;
        if (operates) {
            int failed = operate(setting->set->id, i, setting->values[i]);
            if (failed)
                return failed;
            operates = false;
        }
    }
    return 0;
}

struct bunshin_error *sysv_rebuild_semaphores(struct rebuild *rebuild, const struct image_semaphores *set) {
    struct sysv_creation creation = {
        .kind = SYSV_SEM, .id = set->id, .actor = {1, set->creator_uid, set->creator_gid}, .make = make_set, .record = set};
    TRY(sysv_create(rebuild, &creation));
    struct semid_ds state = {.sem_perm = {.uid = set->uid, .gid = set->gid, .mode = (unsigned short)(set->mode & 0777)}};
    if ((set->uid != set->creator_uid || set->gid != set->creator_gid) && semctl(set->id, 0, IPC_SET, (union argument){.state = &state}) != 0)
        return bunshin_error_os("cannot set the owner of System V semaphores %d", set->id);
    struct setting setting = {.set = set,
                              .values = (const void *)IMAGE_HEAP(rebuild->image, set->values),
                              .pids = (const void *)IMAGE_HEAP(rebuild->image, set->pids),
                              .operate = set->operated};
    for (int32_t i = 0; i < set->count; i++) {
        bool first = setting.pids[i] != 0;
        for (int32_t before = 0; first && before < i; before++)
            first = setting.pids[before] != setting.pids[i];
        if (!first)
            continue;
        setting.pid = setting.pids[i];
        int failed = sysv_act(&(struct sysv_actor){.pid = setting.pid}, set_values, &setting);
        if (failed)
            return bunshin_error_new(BUNSHIN_ERROR_FORK, failed, "cannot set System V semaphores %d: %s", set->id, strerrordesc_np(failed));
        setting.operate = false;
    }
    return NULL;
}

/* Taking on undo values has made a process the last to change a semaphore. Whoever it was does it once more. */
static struct bunshin_error *operate_from(struct tracee *leader, uint64_t vdso_code, int id, int number, int value) {
    short first = value < VALUE_MOST ? 1 : -1;
    struct sembuf operations[2] = {{(unsigned short)number, first, IPC_NOWAIT}, {(unsigned short)number, (short)-first, IPC_NOWAIT}};
    uint64_t at = (ARCH_REG_SP(leader->registers) - ARCH_RED_ZONE - 256) & ~15ull;
    uint64_t arguments[6] = {(uint64_t)id, at, 2};
    int64_t result;
    TRY(tracee_write(leader->process, at, operations, sizeof operations));
    TRY(tracee_syscall(leader, vdso_code, SYS_semop, arguments, &result));
    return tracee_write_registers(leader, &leader->registers);
}

struct operation {
    int id, number, value;
};

static int operate_once(const void *argument) {
    const struct operation *operation = argument;
    return operate(operation->id, operation->number, operation->value);
}

struct bunshin_error *sysv_finish_semaphores(struct rebuild *rebuild, struct tracee *tracees) {
    struct image_header *image = rebuild->image;
    for (size_t i = 0; i < image->table[TABLE_UNDO].count; i++) {
        const struct image_undo *undo = IMAGE_UNDO(image, i);
        const struct image_semaphores *set = NULL;
        for (size_t s = 0; !set && s < image->table[TABLE_SEMAPHORES].count; s++)
            if (IMAGE_SEMAPHORES(image, s)->id == undo->id)
                set = IMAGE_SEMAPHORES(image, s);
        if (!set)
            continue;
        pid_t last = ((const int32_t *)(const void *)IMAGE_HEAP(image, set->pids))[undo->number];
        struct operation operation = {undo->id, undo->number, ((const uint16_t *)(const void *)IMAGE_HEAP(image, set->values))[undo->number]};
        if (!last || semctl(undo->id, undo->number, GETPID) == last)
            continue;
        const struct image_process *process = sysv_find_process(rebuild, last);
        if (!process)
            (void)sysv_act(&(struct sysv_actor){.pid = last}, operate_once, &operation);
        else if (process->state != PROCESS_ZOMBIE && process->vdso && tracees[process->first_thread].state == TRACEE_STOPPED)
            TRY(operate_from(&tracees[process->first_thread], process->vdso_code, operation.id, operation.number, operation.value));
    }
    return NULL;
}
