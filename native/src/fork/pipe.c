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

/* ---- capture ---- */

/* Looks at a pipe's content without taking it: its buffers are shared with a second pipe, and read from there. */
static struct bunshin_error *peek(struct capture *capture, int source, int capacity, struct span *ret) {
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
    (void)fcntl(copy[1], F_SETPIPE_SZ, capacity);
    struct bunshin_error *error = NULL;
    uint8_t *content = malloc((size_t)waiting);
    ssize_t shared = tee(reader, copy[1], (size_t)waiting, SPLICE_F_NONBLOCK);
    size_t got = 0;
    while (content && shared > 0 && got < (size_t)shared) {
        ssize_t part = read(copy[0], content + got, (size_t)shared - got);
        if (part <= 0)
            break;
        got += (size_t)part;
    }
    if (!content)
        error = bunshin_error_no_memory();
    else if (got != (size_t)waiting)
        error = bunshin_error_new(BUNSHIN_ERROR_FORK, EIO, "cannot look into a pipe: %zu of %d bytes", got, waiting);
    else
        error = capture_heap(capture, content, got, ret);
    free(content);
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
            ret->object = i;
            return NULL;
        }
    struct image_pipe record = {.inode = inode, .capacity = fcntl(holder->copy, F_GETPIPE_SZ)};
    struct stat named;
    if (*holder->link == '/' && stat(holder->link, &named) == 0 && named.st_ino == info.st_ino) {
        record.named = 1;
        TRY(capture_text(capture, holder->link, &ret->path));
    }
    if (!(ret->flags & O_PATH))
        TRY(peek(capture, holder->copy, record.capacity, &record.content));
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
    const uint8_t *content = IMAGE_HEAP(rebuild->image, pipe->content);
    fcntl(ret[1], F_SETFL, O_NONBLOCK);
    for (size_t done = 0; done < pipe->content.size;) {
        ssize_t put = write(ret[1], content + done, pipe->content.size - done);
        if (put <= 0)
            return bunshin_error_os("cannot fill a pipe with %llu bytes", (unsigned long long)pipe->content.size);
        done += (size_t)put;
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
        struct bunshin_error *error = open_ends(rebuild, pipe, path, ends);
        for (int32_t i = 0; !error && i < descriptions; i++) {
            const struct image_description *record = IMAGE_DESCRIPTION(image, i);
            if (record->kind != KIND_PIPE || record->object != p)
                continue;
            char again[32];
            snprintf(again, sizeof again, "/proc/self/fd/%d", ends[(record->flags & O_ACCMODE) == O_WRONLY]);
            int fd = open(again, (record->flags & (O_ACCMODE | O_PATH)) | O_NONBLOCK | O_CLOEXEC);
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
