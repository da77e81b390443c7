/* System V message queues: the messages in their order, read without being taken; who sent and who received last. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/msg.h>

#include "fork/sysv.h"

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif
#define MESSAGE_MOST (1u << 20)

struct message { /* as msgsnd() takes it */
    long type;
    char text[];
};

/* ---- capture ---- */

static struct bunshin_error *take_messages(struct capture *capture, struct image_queue *queue) {
    struct message *message = malloc(sizeof *message + MESSAGE_MOST);
    struct buffer all = {0};
    struct bunshin_error *error = message ? NULL : bunshin_error_no_memory();
    for (long i = 0; !error && i < queue->count; i++) {
        ssize_t size = msgrcv(queue->id, message, MESSAGE_MOST, i, IPC_NOWAIT | MSG_COPY);
        uint64_t length = (uint64_t)size;
        if (size < 0) {
            error = bunshin_error_os("cannot read message %ld of System V queue %d", i, queue->id);
            break;
        }
        error = buffer_append(&all, &length, sizeof length);
        if (!error)
            error = buffer_append(&all, message, sizeof *message + length);
        if (!error && length % 8)
            error = buffer_extend(&all, 8 - length % 8, NULL);
    }
    if (!error)
        error = capture_heap(capture, all.data, all.size, &queue->messages);
    buffer_deinit(&all);
    free(message);
    return error;
}

struct bunshin_error *sysv_capture_queue(struct capture *capture, const char *line) {
    struct image_queue queue = {0};
    struct msqid_ds state;
    if (sscanf(line, "%d %d %o %*u %ld %d %d %u %u %u %u", &queue.key, &queue.id, &queue.mode, &queue.count, &queue.last_sender,
               &queue.last_receiver, &queue.uid, &queue.gid, &queue.creator_uid, &queue.creator_gid) != 10)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, EBADMSG, "cannot read the list of System V queues");
    if (msgctl(queue.id, IPC_STAT, &state) != 0)
        return bunshin_error_os("cannot look at System V queue %d", queue.id);
    queue.limit = state.msg_qbytes;
    TRY(take_messages(capture, &queue));
    return capture_add(capture, TABLE_QUEUE, &queue, sizeof queue, NULL);
}

/* ---- rebuild ---- */

static int make_queue(const void *record) {
    const struct image_queue *queue = record;
    return msgget(queue->key, IPC_CREAT | IPC_EXCL | (int)(queue->mode & 0777));
}

struct sending {
    const struct image_queue *queue;
    const uint8_t *messages;
};

static int send_all(const void *argument) {
    const struct sending *sending = argument;
    const uint8_t *at = sending->messages;
    for (long i = 0; i < sending->queue->count; i++) {
        uint64_t length = *(const uint64_t *)(const void *)at;
        if (msgsnd(sending->queue->id, at + 8, length, IPC_NOWAIT) != 0)
            return errno;
        at += 8 + sizeof(long) + ((length + 7) & ~7ull);
    }
    return 0;
}

static int send_nothing(const void *argument) {
    struct msgbuf message = {.mtype = 1};
    return msgsnd(*(const int32_t *)argument, &message, 0, IPC_NOWAIT) ? errno : 0;
}

static int receive_nothing(const void *argument) {
    struct msgbuf message;
    return msgrcv(*(const int32_t *)argument, &message, 0, 0, IPC_NOWAIT) < 0 ? errno : 0;
}

static int send_and_receive(const void *argument) {
    int failed = send_nothing(argument);
    return failed ? failed : receive_nothing(argument);
}

struct bunshin_error *sysv_rebuild_queue(struct rebuild *rebuild, const struct image_queue *queue) {
    struct sysv_creation creation = {
        .kind = SYSV_MSG, .id = queue->id, .actor = {1, queue->creator_uid, queue->creator_gid}, .make = make_queue, .record = queue};
    TRY(sysv_create(rebuild, &creation));
    struct sysv_actor sender = {.pid = queue->last_sender}, receiver = {.pid = queue->last_receiver};
    struct sending sending = {queue, IMAGE_HEAP(rebuild->image, queue->messages)};
    int failed = 0;
    if (queue->count) {
        if (receiver.pid)
            failed = sysv_act(&receiver, send_and_receive, &queue->id);
        if (!failed)
            failed = sysv_act(&sender, send_all, &sending);
    } else if (sender.pid && receiver.pid) {
        failed = sysv_act(&sender, send_nothing, &queue->id);
        if (!failed)
            failed = sysv_act(&receiver, receive_nothing, &queue->id);
    }
    if (failed)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, failed, "cannot fill System V queue %d: %s", queue->id, strerrordesc_np(failed));
    struct msqid_ds state;
    if (msgctl(queue->id, IPC_STAT, &state) != 0)
        return bunshin_error_os("cannot look at System V queue %d", queue->id);
    state.msg_qbytes = queue->limit;
    state.msg_perm.uid = queue->uid;
    state.msg_perm.gid = queue->gid;
    if (msgctl(queue->id, IPC_SET, &state) != 0)
        return bunshin_error_os("cannot set the limits of System V queue %d", queue->id);
    return NULL;
}
