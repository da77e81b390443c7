#define _GNU_SOURCE
#include "common/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct wire_header {
    uint32_t verb;
    uint32_t in_memfd;
    int64_t argument[6];
    uint64_t payload_size;
};

static struct bunshin_error *payload_to_memfd(const struct wire *message, int *ret) {
    int memfd = memfd_create("bunshin-message", MFD_CLOEXEC);
    if (memfd < 0)
        return bunshin_error_os("cannot make a memfd for a message of %llu bytes", (unsigned long long)message->payload_size);
    for (size_t done = 0; done < message->payload_size;) {
        ssize_t put = write(memfd, message->payload + done, message->payload_size - done);
        if (put < 0) {
            struct bunshin_error *error = bunshin_error_os("cannot write a message of %llu bytes", (unsigned long long)message->payload_size);
            close(memfd);
            return error;
        }
        done += (size_t)put;
    }
    *ret = memfd;
    return NULL;
}

struct bunshin_error *wire_send(int socket, const struct wire *message) {
    struct wire_header header = {.verb = message->verb, .payload_size = message->payload_size};
    memcpy(header.argument, message->argument, sizeof header.argument);
    int memfd = -1;
    if (message->payload_size > WIRE_INLINE_MAX) {
        TRY(payload_to_memfd(message, &memfd));
        header.in_memfd = 1;
    }
    struct iovec parts[2] = {{&header, sizeof header},
                             {(void *)message->payload, memfd < 0 ? message->payload_size : 0}};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * (WIRE_FDS_MAX + 1))];
    } control;
    struct msghdr letter = {.msg_iov = parts, .msg_iovlen = 2};
    uint32_t fd_count = message->fd_count + (memfd >= 0);
    if (fd_count) {
        letter.msg_control = control.bytes;
        letter.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *part = CMSG_FIRSTHDR(&letter);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(part), message->fd, sizeof(int) * message->fd_count);
        if (memfd >= 0)
            memcpy(CMSG_DATA(part) + sizeof(int) * message->fd_count, &memfd, sizeof memfd);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &letter, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    struct bunshin_error *error = sent < 0 ? bunshin_error_os("cannot send a message") : NULL;
    if (memfd >= 0)
        close(memfd);
    return error;
}

static struct bunshin_error *payload_from_memfd(struct wire *message, uint64_t size) {
    int memfd = message->fd[--message->fd_count];
    struct bunshin_error *error = NULL;
    size_t offset;
    error = buffer_extend(&message->storage, size, &offset);
    for (size_t done = 0; !error && done < size;) {
        ssize_t got = pread(memfd, message->storage.data + offset + done, size - done, (off_t)done);
        if (got <= 0)
            error = bunshin_error_os("cannot read a message of %llu bytes", (unsigned long long)size);
        else
            done += (size_t)got;
    }
    close(memfd);
    return error;
}

struct bunshin_error *wire_receive(int socket, int timeout_ms, struct wire *ret, bool *ret_open) {
    *ret = (struct wire){0};
    *ret_open = true;
    if (timeout_ms >= 0) {
        struct pollfd wait = {.fd = socket, .events = POLLIN};
        int ready;
        do
            ready = poll(&wait, 1, timeout_ms);
        while (ready < 0 && errno == EINTR);
        if (ready == 0)
            return bunshin_error_new(BUNSHIN_ERROR_TIMEOUT, ETIMEDOUT, "no answer within %d ms", timeout_ms);
    }
    struct wire_header header;
    TRY(buffer_extend(&ret->storage, WIRE_INLINE_MAX + 1, NULL));
    struct iovec parts[2] = {{&header, sizeof header}, {ret->storage.data, WIRE_INLINE_MAX}};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * (WIRE_FDS_MAX + 1))];
    } control;
    struct msghdr letter = {
        .msg_iov = parts, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof control};
    ssize_t got;
    do
        got = recvmsg(socket, &letter, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno != ECONNRESET) {
        buffer_deinit(&ret->storage);
        return bunshin_error_os("cannot receive a message");
    }
    if (got <= 0) {
        buffer_deinit(&ret->storage);
        *ret_open = false;
        return NULL;
    }
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&letter); part; part = CMSG_NXTHDR(&letter, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
            ret->fd_count = (uint32_t)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            if (ret->fd_count > WIRE_FDS_MAX)
                ret->fd_count = WIRE_FDS_MAX;
            memcpy(ret->fd, CMSG_DATA(part), sizeof(int) * ret->fd_count);
        }
    if (letter.msg_flags & MSG_CTRUNC) {
        wire_deinit(ret);
        return bunshin_error_new(BUNSHIN_ERROR_OS, EMFILE, "cannot take the descriptors of a message: Too many open files");
    }
    if ((size_t)got < sizeof header || letter.msg_flags & MSG_TRUNC) {
        wire_deinit(ret);
        return bunshin_error_new(BUNSHIN_ERROR_OS, EBADMSG, "a message came damaged");
    }
    ret->verb = header.verb;
    memcpy(ret->argument, header.argument, sizeof header.argument);
    ret->payload_size = header.payload_size;
    if (header.in_memfd && ret->fd_count) {
        ret->storage.size = 0;
        struct bunshin_error *error = payload_from_memfd(ret, header.payload_size);
        if (error) {
            wire_deinit(ret);
            return error;
        }
    } else {
        ret->storage.size = (size_t)got - sizeof header;
        if (ret->payload_size != ret->storage.size)
            ret->payload_size = ret->storage.size;
    }
    ret->payload = ret->storage.data;
    return NULL;
}

void wire_deinit(struct wire *message) {
    for (uint32_t i = 0; i < message->fd_count; i++)
        if (message->fd[i] >= 0)
            close(message->fd[i]);
    message->fd_count = 0;
    buffer_deinit(&message->storage);
}

void wire_answer(int socket, struct bunshin_error *error) {
    struct wire message = {.verb = error ? WIRE_ERROR : WIRE_OK};
    if (error) {
        message.argument[0] = error->code;
        message.argument[1] = error->errnum;
        message.argument[2] = error->pid;
        message.argument[3] = error->fd;
        message.payload = (const uint8_t *)error->message;
        message.payload_size = strlen(error->message);
    }
    if (socket >= 0)
        bunshin_error_destroy(wire_send(socket, &message));
    bunshin_error_destroy(error);
}

struct bunshin_error *wire_error(const struct wire *message) {
    if (message->verb != WIRE_ERROR)
        return NULL;
    struct bunshin_error *error = bunshin_error_new((enum bunshin_error_code)message->argument[0], (int)message->argument[1],
                                                    "%.*s", (int)message->payload_size, (const char *)message->payload);
    if (error != bunshin_error_no_memory()) {
        error->pid = (int32_t)message->argument[2];
        error->fd = (int32_t)message->argument[3];
    }
    return error;
}
