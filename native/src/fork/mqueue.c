/*
 * POSIX message queues, whether or not somebody has them open. They are files of a file system of the IPC namespace, which
 * pid 1 mounts nowhere. A message can only be read by taking it: all are taken and put back, which keeps their order.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/rebuild.h"

#define DELETED " (deleted)"

struct message { /* in the image; the text follows, to a multiple of 8 */
    uint64_t length;
    uint32_t priority, pad;
};

/* ---- capture ---- */

int mqueue_directory(void) {
    static int mounted = -1; /* once a workspace */
    if (mounted >= 0)
        return mounted;
    int context = (int)syscall(SYS_fsopen, "mqueue", 1 /* FSOPEN_CLOEXEC */);
    if (context >= 0 && syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        mounted = (int)syscall(SYS_fsmount, context, 1 /* FSMOUNT_CLOEXEC */, 0);
    if (context >= 0)
        close(context);
    return mounted;
}

static struct bunshin_error *take_messages(struct capture *capture, int fd, struct image_mqueue *queue) {
    char *text = malloc((size_t)queue->message_size + 1);
    struct buffer all = {0};
    struct bunshin_error *error = text ? NULL : bunshin_error_no_memory();
    while (!error) {
        unsigned priority = 0;
        long length = syscall(SYS_mq_timedreceive, fd, text, (size_t)queue->message_size, &priority, NULL);
        if (length < 0) {
            if (errno != EAGAIN)
                error = bunshin_error_os("cannot read a message queue");
            break;
        }
        struct message message = {(uint64_t)length, priority, 0};
        size_t pad = (8 - (size_t)length % 8) % 8;
        error = buffer_append(&all, &message, sizeof message);
        if (!error)
            error = buffer_append(&all, text, (size_t)length);
        if (!error && pad)
            error = buffer_extend(&all, pad, NULL);
    }
    free(text);
    struct bunshin_error *other = NULL;
    for (size_t at = 0; at < all.size;) {
        struct message message;
        memcpy(&message, all.data + at, sizeof message);
        if (syscall(SYS_mq_timedsend, fd, all.data + at + sizeof message, message.length, message.priority, NULL) != 0 && !other)
            other = bunshin_error_os("cannot put back what was in a message queue");
        at += sizeof message + ((message.length + 7) & ~7ull);
    }
    if (!error && !other)
        error = capture_heap(capture, all.data, all.size, &queue->messages);
    buffer_deinit(&all);
    if (error)
        bunshin_error_destroy(other);
    return error ? error : other;
}

static struct bunshin_error *refuse_notification(struct capture *capture, int fd, const char *name) {
    char text[128] = "";
    int pid = 0;
    const char *at;
    if (pread(fd, text, sizeof text - 1, 0) > 0 && (at = strstr(text, "NOTIFY_PID:")))
        pid = atoi(at + strlen("NOTIFY_PID:"));
    if (!pid)
        return NULL;
    const struct frozen_process *process = freeze_find(capture->frozen, pid);
    return bunshin_error_unsupported(pid, process ? process->stat.comm : "", -1, "a notification by the message queue %.100s", name);
}

/* `fd`: an opening of ours, that waits for nothing. */
static struct bunshin_error *capture_queue(struct capture *capture, int fd, const char *name, bool unlinked, int32_t *ret) {
    struct stat info;
    struct mq_attr attributes;
    if (fstat(fd, &info) != 0 || syscall(SYS_mq_getsetattr, fd, NULL, &attributes) != 0)
        return bunshin_error_os("cannot look at the message queue %.100s", name);
    for (*ret = 0; *ret < CAPTURE_COUNT(capture, TABLE_MQUEUE, struct image_mqueue); (*ret)++)
        if (CAPTURE_AT(capture, TABLE_MQUEUE, struct image_mqueue, *ret)->inode == info.st_ino)
            return NULL;
    TRY(refuse_notification(capture, fd, name));
    struct image_mqueue queue = {.inode = info.st_ino,
                                 .mode = info.st_mode & 07777,
                                 .uid = info.st_uid,
                                 .gid = info.st_gid,
                                 .unlinked = unlinked,
                                 .most = attributes.mq_maxmsg,
                                 .message_size = attributes.mq_msgsize};
    TRY(capture_text(capture, name, &queue.name));
    TRY(take_messages(capture, fd, &queue));
    return capture_add(capture, TABLE_MQUEUE, &queue, sizeof queue, ret);
}

struct bunshin_error *mqueue_capture_all(struct capture *capture) {
    struct stat info;
    int mounted = mqueue_directory(), list = mounted < 0 ? -1 : openat(mounted, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = list < 0 ? NULL : fdopendir(list);
    struct bunshin_error *error = NULL;
    if (!stream || fstat(list, &info) != 0)
        return NULL; /* a kernel without them */
    capture->mqueue_device = info.st_dev;
    for (struct dirent *entry; !error && (entry = readdir(stream));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        int32_t index;
        int fd = openat(mounted, entry->d_name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        error = fd < 0 ? bunshin_error_os("cannot open the message queue %.100s", entry->d_name)
                       : capture_queue(capture, fd, entry->d_name, false, &index);
        if (fd >= 0)
            close(fd);
    }
    closedir(stream);
    return error;
}

bool mqueue_is(const struct capture *capture, const struct stat *info) { return capture->mqueue_device && info->st_dev == capture->mqueue_device; }

struct bunshin_error *mqueue_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    char name[300], path[32];
    size_t length = strlen(holder->link), cut = strlen(DELETED);
    bool unlinked = length > cut && !strcmp(holder->link + length - cut, DELETED);
    snprintf(name, sizeof name, "%.*s", (int)(unlinked ? length - cut : length) - 1, holder->link + 1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", holder->copy);
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return bunshin_error_os("cannot open the message queue %.100s", name);
    ret->kind = KIND_MQUEUE;
    struct bunshin_error *error = capture_queue(capture, fd, name, unlinked, &ret->object);
    close(fd);
    return error;
}

/* ---- rebuild ---- */

static struct bunshin_error *send_all(struct rebuild *rebuild, const struct image_mqueue *queue, int fd) {
    const uint8_t *at = IMAGE_HEAP(rebuild->image, queue->messages), *end = at + queue->messages.size;
    while (at < end) {
        const struct message *message = (const void *)at;
        if (syscall(SYS_mq_timedsend, fd, at + sizeof *message, message->length, message->priority, NULL) != 0)
            return bunshin_error_os("cannot fill a message queue");
        at += sizeof *message + ((message->length + 7) & ~7ull);
    }
    return NULL;
}

static struct bunshin_error *make_queue(struct rebuild *rebuild, int32_t index, char *name, size_t size, int *ret) {
    const struct image_mqueue *queue = IMAGE_MQUEUE(rebuild->image, index);
    struct mq_attr attributes = {.mq_maxmsg = queue->most, .mq_msgsize = queue->message_size};
    snprintf(name, size, "%s", (const char *)IMAGE_HEAP(rebuild->image, queue->name));
    for (int tries = 0; (*ret = (int)syscall(SYS_mq_open, name, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK | O_CLOEXEC, 0600, &attributes)) < 0; tries++) {
        if (errno != EEXIST || !queue->unlinked || tries > 100)
            return bunshin_error_os("cannot make the message queue %.100s again", name);
        snprintf(name, size, ".bunshin-%d-%d", index, tries); /* its name is another's now */
    }
    TRY(send_all(rebuild, queue, *ret));
    if (fchown(*ret, queue->uid, queue->gid) != 0 || fchmod(*ret, queue->mode) != 0)
        return bunshin_error_os("cannot set the owner and mode of the message queue %.100s", name);
    return NULL;
}

static struct bunshin_error *open_all(struct rebuild *rebuild, int32_t index, int fd) {
    for (int32_t i = 0; i < (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, i);
        if (record->kind != KIND_MQUEUE || record->object != index)
            continue;
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int again = open(path, (record->flags & (O_ACCMODE | O_NONBLOCK)) | O_CLOEXEC);
        if (again < 0)
            return bunshin_error_os("cannot open a message queue again");
        TRY(rebuild_place(rebuild, i, again));
    }
    return NULL;
}

struct bunshin_error *mqueue_rebuild_all(struct rebuild *rebuild) {
    for (int unlinked = 0; unlinked < 2; unlinked++)
        for (int32_t i = 0; i < (int32_t)rebuild->image->table[TABLE_MQUEUE].count; i++) {
            char name[300];
            int fd = -1;
            if (IMAGE_MQUEUE(rebuild->image, i)->unlinked != unlinked)
                continue;
            struct bunshin_error *error = make_queue(rebuild, i, name, sizeof name, &fd);
            if (!error)
                error = open_all(rebuild, i, fd);
            if (unlinked && fd >= 0)
                syscall(SYS_mq_unlink, name);
            if (fd >= 0)
                close(fd);
            TRY(error);
        }
    return NULL;
}
