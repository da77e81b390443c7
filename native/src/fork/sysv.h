/*
 * System V objects live in the workspace's IPC namespace, whether or not a process uses them. Each is made again under its
 * id, before there are processes, by a stand-in with the pid and the ids of whoever had made it.
 */
#ifndef BUNSHIN_FORK_SYSV_H
#define BUNSHIN_FORK_SYSV_H

#include "fork/capture.h"
#include "fork/rebuild.h"

/* Lines of /proc/sysvipc, without the heading; `each` gets one. */
struct bunshin_error *sysv_list(struct capture *capture, enum sysv_kind kind,
                                struct bunshin_error *(*each)(struct capture *capture, const char *line)) MUST_CHECK;

/* Who an object says has done something to it. */
struct sysv_actor {
    pid_t pid;
    uint32_t uid, gid;
};
/* Runs act(argument) in a child that is this process for as long as it takes. Returns 0 or an errno: what act() returned, or
 * EEXIST where the pid is somebody's. */
int sysv_act(const struct sysv_actor *actor, int (*act)(const void *argument), const void *argument);

/* Makes an object under its id. make() returns an id or -1, with any flags for IPC_EXCL. */
struct sysv_creation {
    enum sysv_kind kind;
    int id;
    struct sysv_actor actor;
    int (*make)(const void *record);
    const void *record;
};
struct bunshin_error *sysv_create(struct rebuild *rebuild, const struct sysv_creation *creation) MUST_CHECK;

/* A process of the image; NULL for none. */
const struct image_process *sysv_find_process(const struct rebuild *rebuild, pid_t pid);

/* By the order in which ids are given out: for qsort of records by id. */
int sysv_compare_ids(int one, int other);

/* ---- shared memory (sysv_shm.c) ---- */
struct bunshin_error *sysv_capture_segment(struct capture *capture, const char *line) MUST_CHECK;
struct bunshin_error *sysv_rebuild_segment(struct rebuild *rebuild, const struct image_segment *segment) MUST_CHECK;
struct bunshin_error *sysv_finish_segment(struct rebuild *rebuild, struct tracee *tracees, const struct image_segment *segment) MUST_CHECK;

/* ---- semaphores (sysv_sem.c) ---- */
struct bunshin_error *sysv_capture_semaphores(struct capture *capture, const char *line) MUST_CHECK;
struct bunshin_error *sysv_rebuild_semaphores(struct rebuild *rebuild, const struct image_semaphores *set) MUST_CHECK;
struct bunshin_error *sysv_finish_semaphores(struct rebuild *rebuild, struct tracee *tracees) MUST_CHECK;

/* ---- message queues (sysv_msg.c) ---- */
struct bunshin_error *sysv_capture_queue(struct capture *capture, const char *line) MUST_CHECK;
struct bunshin_error *sysv_rebuild_queue(struct rebuild *rebuild, const struct image_queue *queue) MUST_CHECK;

#endif
