/* Sockets: options, what waits in their queues, and the order in which they are made again. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fork/socket.h"

/* ---- capture: options and queues ---- */

static const int options[][2] = {
    {SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_REUSEPORT}, {SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_BROADCAST},
    {SOL_SOCKET, SO_PASSCRED},  {SOL_SOCKET, SO_OOBINLINE}, {SOL_SOCKET, SO_RCVLOWAT},  {SOL_SOCKET, SO_LINGER},
    {SOL_SOCKET, SO_RCVTIMEO},  {SOL_SOCKET, SO_SNDTIMEO},  {SOL_SOCKET, SO_PRIORITY},  {SOL_SOCKET, SO_SNDBUF},
    {SOL_SOCKET, SO_RCVBUF},
};
int socket_int_option(int fd, int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    (void)getsockopt(fd, level, name, &value, &length);
    return value;
}

static struct bunshin_error *read_options(int fd, const int list[][2], size_t count, struct buffer *ret) {
    int locked = socket_int_option(fd, SOL_SOCKET, SO_BUF_LOCK);
    for (size_t i = 0; i < count; i++) {
        struct image_option option = {.level = list[i][0], .name = list[i][1]};
        socklen_t length = sizeof option.value;
        /* A size that the program did not set is the kernel's to choose, and to change: setting it would end that. */
        if (option.level == SOL_SOCKET && option.name == SO_SNDBUF && !(locked & 1))
            continue;
        if (option.level == SOL_SOCKET && option.name == SO_RCVBUF && !(locked & 2))
            continue;
        if (getsockopt(fd, option.level, option.name, option.value, &length) != 0)
            continue;
        option.length = (int32_t)length;
        if (option.name == SO_SNDBUF || option.name == SO_RCVBUF)
            if (option.level == SOL_SOCKET) { /* the kernel reports twice what was asked for */
                int size;
                memcpy(&size, option.value, sizeof size);
                size /= 2;
                memcpy(option.value, &size, sizeof size);
            }
        TRY(buffer_append(ret, &option, sizeof option));
    }
    return NULL;
}

struct bunshin_error *socket_peek(struct capture *capture, const struct holder *holder, int type, uint32_t waiting, struct span *ret) {
    int before = -1, zero = 0;
    socklen_t length = sizeof before;
    struct buffer queue = {0};
    struct bunshin_error *error = NULL;
    size_t room = waiting > 65536 ? waiting + 65536 : 1 << 18;
    uint8_t *part = malloc(room);
    if (!part)
        return bunshin_error_no_memory();
    (void)getsockopt(holder->copy, SOL_SOCKET, SO_PEEK_OFF, &before, &length);
    bool messages = type != SOCK_STREAM;
    /* With an offset, one look goes on where the last one ended. TCP has it only on newer kernels: one look shows all. */
    bool moves = setsockopt(holder->copy, SOL_SOCKET, SO_PEEK_OFF, &zero, sizeof zero) == 0;
    if (!moves && messages)
        error = bunshin_error_os("cannot look into a socket's queue");
    for (bool again = true; !error && again; again = moves) {
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(int) * 253) + CMSG_SPACE(64)];
        } control;
        struct iovec area = {part, room};
        struct msghdr letter = {.msg_iov = &area, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
        ssize_t got = recvmsg(holder->copy, &letter, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINVAL))
            break;
        if (got < 0) {
            error = bunshin_error_os("cannot look into a socket's queue");
            break;
        }
        for (struct cmsghdr *item = CMSG_FIRSTHDR(&letter); item; item = CMSG_NXTHDR(&letter, item))
            if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS) {
                int passed[253];
                size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                memcpy(passed, CMSG_DATA(item), count * sizeof(int));
                for (size_t i = 0; i < count; i++)
                    close(passed[i]);
                error = capture_refuse(holder, "a unix socket with descriptors in its queue");
            }
        if (got == 0 && (!messages || queue.size > 1 << 20))
            break;
        uint64_t size = (uint64_t)got;
        if (!error)
            error = buffer_append(&queue, &size, sizeof size);
        if (!error)
            error = buffer_append(&queue, part, size);
        if (got == 0 && type != SOCK_DGRAM)
            break;
    }
    if (moves)
        (void)setsockopt(holder->copy, SOL_SOCKET, SO_PEEK_OFF, &before, sizeof before);
    free(part);
    if (!error)
        error = capture_heap(capture, queue.data, queue.size, ret);
    buffer_deinit(&queue);
    return error;
}

struct bunshin_error *socket_capture(struct capture *capture, const struct holder *holder, int32_t self, struct image_description *ret) {
    struct image_socket record = {.peer = IMAGE_NONE, .listener = IMAGE_NONE};
    int fd = holder->copy;
    record.domain = socket_int_option(fd, SOL_SOCKET, SO_DOMAIN);
    record.type = socket_int_option(fd, SOL_SOCKET, SO_TYPE);
    record.protocol = socket_int_option(fd, SOL_SOCKET, SO_PROTOCOL);
    record.state = socket_int_option(fd, SOL_SOCKET, SO_ACCEPTCONN) ? SOCKET_LISTENING : SOCKET_IDLE;
    (void)self;
    if (!holder->process)
        return capture_refuse(holder, "a socket of pid 1");
    if (record.domain != AF_UNIX && record.domain != AF_INET && record.domain != AF_INET6)
        return capture_refuse(holder, "a socket of family %d", record.domain);
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        TRY(capture_heap(capture, &address, length, &record.name));
    length = sizeof address;
    memset(&address, 0, sizeof address);
    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0)
        TRY(capture_heap(capture, &address, length, &record.peer_name));
    struct buffer list = {0};
    bool inet = record.domain == AF_INET || record.domain == AF_INET6;
    struct bunshin_error *error = inet ? socket_options_capture(holder, &record, &list)
                                       : read_options(fd, options, sizeof options / sizeof *options, &list);
    if (!error)
        error = capture_heap(capture, list.data, list.size, &record.options);
    buffer_deinit(&list);
    if (!error)
        error = inet ? socket_capture_inet(capture, holder, &record) : socket_capture_unix(capture, holder, &record);
    ret->kind = KIND_SOCKET;
    return error ? error : capture_add(capture, TABLE_SOCKET, &record, sizeof record, &ret->object);
}

/* After every descriptor is known: ends that belong together. */
struct bunshin_error *socket_connect(struct capture *capture) {
    int32_t count = CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description);
    for (int32_t i = 0; i < count; i++) {
        const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i);
        if (record->kind != KIND_SOCKET)
            continue;
        struct image_socket *socket = CAPTURE_AT(capture, TABLE_SOCKET, struct image_socket, record->object);
        if (socket->state == SOCKET_CONNECTED && socket->domain == AF_UNIX)
            TRY(socket_connect_unix(capture, record, socket));
    }
    return tcp_connect_all(capture);
}

/* ---- rebuild ---- */

static void set_options(struct rebuild *rebuild, const struct image_socket *record, int fd) {
    const struct image_option *option = (const void *)IMAGE_HEAP(rebuild->image, record->options);
    for (size_t i = 0; i < record->options.size / sizeof *option; i++)
        (void)setsockopt(fd, option[i].level, option[i].name, option[i].value, (socklen_t)option[i].length);
}

#define FILL_PATIENCE_MS 2000

/* Buffers grow as what is sent arrives: a queue that is full for the moment is waited for. */
struct bunshin_error *socket_send_all(int from, const uint8_t *data, uint64_t size) {
    int flags = fcntl(from, F_GETFL);
    struct bunshin_error *error = NULL;
    fcntl(from, F_SETFL, flags | O_NONBLOCK);
    for (uint64_t done = 0; !error && done < size;) {
        ssize_t put = send(from, data + done, size - done, MSG_NOSIGNAL);
        struct pollfd wait = {.fd = from, .events = POLLOUT};
        if (put < 0 && errno == EAGAIN && poll(&wait, 1, FILL_PATIENCE_MS) == 1)
            continue;
        if (put < 0)
            error = bunshin_error_os("cannot fill a socket's queue with %llu bytes", (unsigned long long)size);
        else
            done += (uint64_t)put;
    }
    fcntl(from, F_SETFL, flags);
    return error;
}

/* Sends what was waiting, from the other end: message by message. */
static struct bunshin_error *fill_queue(struct rebuild *rebuild, const struct image_socket *record, int from) {
    const uint8_t *at = IMAGE_HEAP(rebuild->image, record->queue), *end = at + record->queue.size;
    while (at + sizeof(uint64_t) <= end) {
        uint64_t size;
        memcpy(&size, at, sizeof size);
        at += sizeof size;
        if (!size && send(from, at, 0, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            return bunshin_error_os("cannot send an empty message");
        TRY(socket_send_all(from, at, size));
        at += size;
    }
    return NULL;
}

static struct bunshin_error *rebuild_single(struct rebuild *rebuild, int32_t index, const struct image_socket *record) {
    int fd = socket(record->domain, record->type | SOCK_CLOEXEC, record->protocol);
    if (fd < 0)
        return bunshin_error_os("cannot make a socket");
    set_options(rebuild, record, fd);
    struct bunshin_error *error = socket_bind_unix(rebuild, record, fd);
    if (!error && record->state == SOCKET_LISTENING && listen(fd, record->backlog) != 0)
        error = bunshin_error_os("cannot listen");
    if (error) {
        close(fd);
        return error;
    }
    return rebuild_place(rebuild, index, fd);
}

static struct bunshin_error *rebuild_pair(struct rebuild *rebuild, int32_t index, const struct image_socket *one) {
    bool orphan = one->state == SOCKET_ORPHAN;
    const struct image_socket *other = orphan ? NULL : IMAGE_SOCKET(rebuild->image, IMAGE_DESCRIPTION(rebuild->image, one->peer)->object);
    int ends[2] = {-1, -1};
    TRY(socket_pair_unix(rebuild, one, other, ends));
    set_options(rebuild, one, ends[0]);
    if (other)
        set_options(rebuild, other, ends[1]);
    TRY(fill_queue(rebuild, one, ends[1]));
    if (other) {
        TRY(fill_queue(rebuild, other, ends[0]));
        TRY(socket_send_all(ends[1], IMAGE_HEAP(rebuild->image, other->unsent), other->unsent.size));
    }
    TRY(socket_send_all(ends[0], IMAGE_HEAP(rebuild->image, one->unsent), one->unsent.size));
    for (int side = 0; side < 2; side++) {
        const struct image_socket *record = side ? other : one;
        if (record && record->shut)
            (void)shutdown(ends[side], record->shut == 3 ? SHUT_RDWR : record->shut == 1 ? SHUT_RD : SHUT_WR);
    }
    struct bunshin_error *error = rebuild_place(rebuild, index, ends[0]);
    if (orphan)
        close(ends[1]);
    else if (!error)
        error = rebuild_place(rebuild, one->peer, ends[1]);
    return error;
}

struct bunshin_error *socket_rebuild_all(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    int32_t count = (int32_t)image->table[TABLE_DESCRIPTION].count;
    TRY(inet_rebuild_all(rebuild));
    /* Datagram sockets that are connected one way need the other to be there: singles first, then pairs, then those. */
    for (int pass = 0; pass < 3; pass++)
        for (int32_t i = 0; i < count; i++) {
            const struct image_description *record = IMAGE_DESCRIPTION(image, i);
            if (record->kind != KIND_SOCKET || rebuild->made[i])
                continue;
            const struct image_socket *one = IMAGE_SOCKET(image, record->object);
            bool pair = one->state == SOCKET_CONNECTED || one->state == SOCKET_ORPHAN;
            const struct image_socket *other =
                one->state == SOCKET_CONNECTED ? IMAGE_SOCKET(image, IMAGE_DESCRIPTION(image, one->peer)->object) : NULL;
            bool mutual = pair && (!other || (other->state == SOCKET_CONNECTED && other->peer == i));
            if (pass == 0 && !pair)
                TRY(rebuild_single(rebuild, i, one));
            else if (pass == 1 && mutual)
                TRY(rebuild_pair(rebuild, i, one));
            else if (pass == 2) {
                TRY(rebuild_single(rebuild, i, one));
                if (other && connect(rebuild_fd(rebuild, i), (const void *)IMAGE_HEAP(image, other->name), (socklen_t)other->name.size) != 0)
                    return bunshin_error_os("cannot connect a datagram socket again");
            }
        }
    /* A single datagram socket's queue: sent to it by name. */
    for (int32_t i = 0; i < count; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(image, i);
        const struct image_socket *one = record->kind == KIND_SOCKET ? IMAGE_SOCKET(image, record->object) : NULL;
        if (!one || one->domain != AF_UNIX || one->state != SOCKET_IDLE || !one->queue.size)
            continue;
        int from = socket(AF_UNIX, one->type | SOCK_CLOEXEC, 0);
        struct bunshin_error *error = NULL;
        if (from < 0 || connect(from, (const void *)IMAGE_HEAP(image, one->name), (socklen_t)one->name.size) != 0)
            error = bunshin_error_os("cannot fill a datagram socket's queue");
        if (!error)
            error = fill_queue(rebuild, one, from);
        if (from >= 0)
            close(from);
        TRY(error);
    }
    return NULL;
}
