/* Pipes and FIFOs, with what is in them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/described.h"
#include "fork/rebuild.h"

/*
 * All pipes of a user, here and in every other workspace, share one account. Beyond fs.pipe-user-pages-soft a new pipe holds two pages, or
 * one, and must not grow, also where the old one was made in better times.
 */
static struct bunshin_error *no_room(const char *what, uint64_t size, int pipe) {
    char text[16] = "?";
    int fd = open("/proc/sys/fs/pipe-user-pages-soft", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (got > 0)
        text[strcspn(text, "\n")] = '\0';
    return bunshin_error_new(BUNSHIN_ERROR_FORK, ENOBUFS,
                             "cannot %s a pipe with %llu bytes: a new pipe has room for %d, since this user's pipes hold more than "
                             "fs.pipe-user-pages-soft (%s pages)",
                             what, (unsigned long long)size, fcntl(pipe, F_GETPIPE_SZ), text);
}

/* ---- capture ---- */

/*
 * Looks at a pipe's content without taking it: its buffers are shared with a second pipe, and read from there. A pipe of
 * packets (O_DIRECT) gives one packet a read; they are kept apart.
 */
static struct bunshin_error *peek(struct capture *capture, int source, struct image_pipe *record) {
    int waiting = 0, copy[2];
    char path[32];
    if (ioctl(source, FIONREAD, &waiting) != 0 || waiting == 0)
        return NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", source);
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* the copy may be a write end */
    if (reader < 0)
        return bunshin_error_os("cannot look into a pipe");
    if (pipe2(copy, O_CLOEXEC | O_NONBLOCK) != 0) {
        close(reader);
        return bunshin_error_os("cannot look into a pipe");
    }
    (void)fcntl(copy[1], F_SETPIPE_SZ, record->capacity);
    struct buffer content = {0};
    struct bunshin_error *error = NULL;
    ssize_t shared = tee(reader, copy[1], (size_t)waiting, SPLICE_F_NONBLOCK);
    uint8_t *part = malloc((size_t)waiting);
    size_t got = 0;
    if (!part)
        error = bunshin_error_no_memory();
    while (!error && shared > 0 && got < (size_t)shared) {
        ssize_t size = read(copy[0], part, (size_t)waiting);
        if (size <= 0)
            break;
        uint64_t length = (uint64_t)size;
        if (record->packets)
            error = buffer_append(&content, &length, sizeof length);
        if (!error)
            error = buffer_append(&content, part, (size_t)size);
        got += (size_t)size;
    }
    if (!error && got != (size_t)waiting && fcntl(copy[1], F_GETPIPE_SZ) < record->capacity)
        error = no_room("look into", (uint64_t)waiting, copy[1]);
    if (!error && got != (size_t)waiting)
        error = bunshin_error_new(BUNSHIN_ERROR_FORK, EIO, "cannot look into a pipe: %zu of %d bytes", got, waiting);
    if (!error)
        error = capture_heap(capture, content.data, content.size, &record->content);
    free(part);
    buffer_deinit(&content);
    close(copy[0]);
    close(copy[1]);
    close(reader);
    return error;
}

struct bunshin_error *pipe_capture(struct capture *capture, const struct holder *holder, int32_t self, struct image_description *ret) {
    (void)self;
    struct stat info;
    if (fstat(holder->copy, &info) != 0)
        return bunshin_error_os("cannot look at a pipe");
    ret->kind = KIND_PIPE;
    uint64_t inode = (uint64_t)info.st_ino ^ (uint64_t)info.st_dev << 40;
    int32_t count = CAPTURE_COUNT(capture, TABLE_PIPE, struct image_pipe);
    for (int32_t i = 0; i < count; i++)
        if (CAPTURE_AT(capture, TABLE_PIPE, struct image_pipe, i)->inode == inode) {
            struct image_pipe *known = CAPTURE_AT(capture, TABLE_PIPE, struct image_pipe, i);
            ret->object = i;
            if (known->packets || !(ret->flags & O_DIRECT))
                return NULL;
            known->packets = 1; /* only the end that writes shows it: looked at anew, with borders */
            return peek(capture, holder->copy, known);
        }
    struct image_pipe record = {.inode = inode, .capacity = fcntl(holder->copy, F_GETPIPE_SZ), .packets = (ret->flags & O_DIRECT) != 0};
    struct stat named;
    if (*holder->link == '/' && stat(holder->link, &named) == 0 && named.st_ino == info.st_ino) {
        record.named = 1;
        TRY(capture_text(capture, holder->link, &ret->path));
    }
    if (!(ret->flags & O_PATH))
        TRY(peek(capture, holder->copy, &record));
    return capture_add(capture, TABLE_PIPE, &record, sizeof record, &ret->object);
}

/* ---- rebuild ---- */

static struct bunshin_error *open_ends(struct rebuild *rebuild, const struct image_pipe *pipe, const char *path, int ret[2]) {
    if (path) {
        /* Where it lay on a tmpfs of ours, it has to be made first. */
        if (mkfifo(path, 0622) != 0 && errno != EEXIST)
            return bunshin_error_os("cannot make the FIFO %.300s", path);
        ret[0] = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        ret[1] = ret[0] < 0 ? -1 : open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (ret[1] < 0)
            return bunshin_error_os("cannot open the FIFO %.300s", path);
    } else if (pipe2(ret, O_CLOEXEC) != 0)
        return bunshin_error_os("cannot make a pipe");
    (void)fcntl(ret[1], F_SETPIPE_SZ, pipe->capacity);
    const uint8_t *at = IMAGE_HEAP(rebuild->image, pipe->content), *end = at + pipe->content.size;
    fcntl(ret[1], F_SETFL, O_NONBLOCK | (pipe->packets ? O_DIRECT : 0));
    while (at < end) {
        uint64_t size = (uint64_t)(end - at);
        if (pipe->packets) {
            memcpy(&size, at, sizeof size);
            at += sizeof size;
        }
        ssize_t put = write(ret[1], at, size);
        if (put < 0 && errno == EAGAIN && fcntl(ret[1], F_GETPIPE_SZ) < pipe->capacity)
            return no_room("fill", pipe->content.size, ret[1]);
        if (put <= 0 || (pipe->packets && (uint64_t)put != size))
            return bunshin_error_os("cannot fill a pipe with %llu bytes", (unsigned long long)pipe->content.size);
        at += put;
    }
    return NULL;
}

struct bunshin_error *pipe_rebuild_all(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    int32_t descriptions = (int32_t)image->table[TABLE_DESCRIPTION].count;
    for (int32_t p = 0; p < (int32_t)image->table[TABLE_PIPE].count; p++) {
        const struct image_pipe *pipe = IMAGE_PIPE(image, p);
        const char *path = NULL;
        for (int32_t i = 0; pipe->named && !path && i < descriptions; i++)
            if (IMAGE_DESCRIPTION(image, i)->kind == KIND_PIPE && IMAGE_DESCRIPTION(image, i)->object == p &&
                IMAGE_DESCRIPTION(image, i)->path.size)
                path = (const char *)IMAGE_HEAP(image, IMAGE_DESCRIPTION(image, i)->path);
        int ends[2] = {-1, -1};
        bool taken[2] = {false, false};
        struct bunshin_error *error = open_ends(rebuild, pipe, path, ends);
        for (int32_t i = 0; !error && i < descriptions; i++) {
            const struct image_description *record = IMAGE_DESCRIPTION(image, i);
            if (record->kind != KIND_PIPE || record->object != p)
                continue;
            /* The ends themselves for the first of each kind, so that even their flags are those that pipe() gives. */
            char again[32];
            int accesses = record->flags & O_ACCMODE, writes = accesses == O_WRONLY, fd;
            snprintf(again, sizeof again, "/proc/self/fd/%d", ends[writes]);
            if (!path && !taken[writes] && accesses != O_RDWR && !(record->flags & O_PATH)) {
                fd = fcntl(ends[writes], F_DUPFD_CLOEXEC, 3);
                taken[writes] = true;
            } else
                fd = open(again, (record->flags & (O_ACCMODE | O_PATH)) | O_NONBLOCK | O_CLOEXEC);
            error = fd < 0 ? bunshin_error_os("cannot open an end of a pipe") : rebuild_place(rebuild, i, fd);
        }
        if (ends[0] >= 0)
            close(ends[0]);
        if (ends[1] >= 0)
            close(ends[1]);
        TRY(error);
    }
    return NULL;
}
