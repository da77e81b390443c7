/*
 * Sockets of a workspace that shares the host's network. They cannot be in two places: the workspace that was sealed keeps
 * them, the very ones, untouched; every other fork gets stand-ins. A connection is reset in it, a listener listens on
 * another port, a UDP socket has another port and nothing in its queue; the fork's report names each.
 *
 * So that the source keeps them, the sealed pid 1 puts them into a socket of its own making, the carrier, which travels with
 * the snapshot to the pid 1 in which the source goes on, and to no other.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fork/socket.h"

#define CARRIED_AT_ONCE 128
#define NOTES_MOST 64

/* ---- capture ---- */

struct bunshin_error *outside_capture(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    bool tcp = record->type == SOCK_STREAM && (record->protocol == IPPROTO_TCP || record->protocol == IPPROTO_MPTCP);
    bool udp = record->type == SOCK_DGRAM && (record->protocol == IPPROTO_UDP || record->protocol == IPPROTO_UDPLITE);
    if (!tcp && !udp)
        return capture_refuse(holder, "a socket of family %d, type %d, protocol %d on the host's network", record->domain, record->type, record->protocol);
    record->outside = 1;
    capture->outside = true;
    return tcp ? tcp_capture_outside(record, holder->copy) : NULL;
}

static struct bunshin_error *send_some(int to, const int32_t *descriptions, const int *fds, int count) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * CARRIED_AT_ONCE)];
    } control = {0};
    struct iovec area = {(void *)descriptions, sizeof *descriptions * (size_t)count};
    struct msghdr letter = {.msg_iov = &area, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count)};
    control.align = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count)};
    memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * (size_t)count);
    if (sendmsg(to, &letter, MSG_DONTWAIT) < 0)
        return bunshin_error_os("cannot hand over the sockets on the host's network");
    return NULL;
}

struct bunshin_error *outside_load(struct capture *capture, int *ret) {
    int pair[2], fds[CARRIED_AT_ONCE], count = 0;
    int32_t descriptions[CARRIED_AT_ONCE], total = CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description);
    *ret = -1;
    if (!capture->outside)
        return NULL;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return bunshin_error_os("cannot hand over the sockets on the host's network");
    struct bunshin_error *error = NULL;
    for (int32_t i = 0; !error && i <= total; i++) {
        if (count && (i == total || count == CARRIED_AT_ONCE)) {
            error = send_some(pair[0], descriptions, fds, count);
            count = 0;
        }
        const struct image_description *record = i < total ? CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i) : NULL;
        if (!record || record->kind != KIND_SOCKET || !CAPTURE_AT(capture, TABLE_SOCKET, struct image_socket, record->object)->outside)
            continue;
        descriptions[count] = i;
        fds[count++] = described_find(capture, i)->copy;
    }
    close(pair[0]); /* what is in its queue stays, for the other end */
    if (error)
        close(pair[1]);
    else
        *ret = pair[1];
    return error;
}

/* ---- rebuild: the source's own ---- */

static struct bunshin_error *unload(struct rebuild *rebuild) {
    for (;;) {
        int32_t descriptions[CARRIED_AT_ONCE];
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(int) * CARRIED_AT_ONCE)];
        } control;
        struct iovec area = {descriptions, sizeof descriptions};
        struct msghdr letter = {.msg_iov = &area, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
        ssize_t got = recvmsg(rebuild->carrier, &letter, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got <= 0)
            return NULL;
        struct cmsghdr *item = CMSG_FIRSTHDR(&letter);
        size_t count = (size_t)got / sizeof *descriptions;
        int fds[CARRIED_AT_ONCE];
        if (!item || item->cmsg_type != SCM_RIGHTS || item->cmsg_len != CMSG_LEN(sizeof(int) * count))
            return bunshin_error_new(BUNSHIN_ERROR_FORK, EBADMSG, "the sockets on the host's network came damaged");
        memcpy(fds, CMSG_DATA(item), sizeof(int) * count);
        for (size_t i = 0; i < count; i++)
            TRY(rebuild_place(rebuild, descriptions[i], fds[i]));
    }
}

/* ---- rebuild: stand-ins ---- */

static const char *name_of(const struct rebuild *rebuild, const struct span *span, char *text, size_t size) {
    struct endpoint end = endpoint_of(IMAGE_HEAP(rebuild->image, *span), span->size);
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    char address[INET6_ADDRSTRLEN] = "?";
    bool four = !memcmp(end.address, mapped, sizeof mapped);
    inet_ntop(four ? AF_INET : AF_INET6, four ? end.address + 12 : end.address, address, sizeof address);
    snprintf(text, size, four ? "%s:%u" : "[%s]:%u", address, ntohs(end.port));
    return text;
}

/* The same address, and a port that the kernel chooses. */
static struct bunshin_error *bind_elsewhere(const struct rebuild *rebuild, const struct image_socket *record, int fd, unsigned *ret_port) {
    struct sockaddr_storage name = {0};
    struct endpoint end = endpoint_of(IMAGE_HEAP(rebuild->image, record->name), record->name.size);
    socklen_t length = (socklen_t)record->name.size;
    *ret_port = 0;
    if (!end.port)
        return NULL;
    memcpy(&name, IMAGE_HEAP(rebuild->image, record->name), record->name.size < sizeof name ? record->name.size : sizeof name);
    ((struct sockaddr_in *)(void *)&name)->sin_port = 0; /* in the same place in IPv6 */
    if (bind(fd, (struct sockaddr *)&name, length) != 0)
        return bunshin_error_os("cannot give a socket on the host's network another port");
    length = sizeof name;
    (void)getsockname(fd, (struct sockaddr *)&name, &length);
    *ret_port = ntohs(((struct sockaddr_in *)(void *)&name)->sin_port);
    return NULL;
}

/* Loopback, in the family of a socket: whatever of IPv6 the host has switched off. */
static socklen_t loopback_of(const struct image_socket *record, int fd, struct sockaddr_storage *ret) {
    struct endpoint end = {.address = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    if (record->domain == AF_INET6 && socket_int_option(fd, IPPROTO_IPV6, IPV6_V6ONLY))
        end = (struct endpoint){.address = {[15] = 1}};
    return endpoint_to(&end, record->domain, ret);
}

/* Connected, for a moment, to somebody who resets it. */
static struct bunshin_error *reset(const struct image_socket *record, int fd) {
    struct sockaddr_storage name;
    struct linger at_once = {1, 0};
    socklen_t length = loopback_of(record, fd, &name);
    int listener = socket(record->domain, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP), other = -1;
    struct bunshin_error *error = NULL;
    if (listener < 0 || bind(listener, (struct sockaddr *)&name, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&name, &length) != 0 || connect(fd, (struct sockaddr *)&name, length) != 0 ||
        (other = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0 || setsockopt(other, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) != 0)
        error = bunshin_error_os("cannot make a connection that is reset");
    if (other >= 0)
        close(other);
    if (listener >= 0)
        close(listener);
    return error;
}

/* A peer that nobody is: what is sent is answered so. What the source says to its own must not come from two. */
static struct bunshin_error *connect_to_nobody(const struct image_socket *record, int fd) {
    struct sockaddr_storage name;
    socklen_t length = loopback_of(record, fd, &name);
    int other = socket(record->domain, SOCK_DGRAM | SOCK_CLOEXEC, record->protocol);
    struct bunshin_error *error = NULL;
    if (other < 0 || bind(other, (struct sockaddr *)&name, length) != 0 || getsockname(other, (struct sockaddr *)&name, &length) != 0 ||
        connect(fd, (struct sockaddr *)&name, length) != 0)
        error = bunshin_error_os("cannot make a UDP socket that nobody answers");
    if (other >= 0)
        close(other);
    if (!error)
        (void)send(fd, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL);
    return error;
}

static struct bunshin_error *stand_in(struct rebuild *rebuild, int32_t index, const struct image_socket *record, int *notes) {
    const struct image_description *description = IMAGE_DESCRIPTION(rebuild->image, index);
    char here[80], there[80], what[300];
    unsigned port = 0;
    int fd = socket(record->domain, record->type | SOCK_CLOEXEC, record->protocol);
    if (fd < 0)
        return bunshin_error_os("cannot make a socket");
    socket_options_set(rebuild, record, fd, OPTIONS_EARLY);
    struct bunshin_error *error = NULL;
    name_of(rebuild, &record->name, here, sizeof here);
    name_of(rebuild, &record->peer_name, there, sizeof there);
    *what = '\0';
    if (record->type == SOCK_DGRAM && record->peer_name.size) {
        error = connect_to_nobody(record, fd);
        snprintf(what, sizeof what, "a UDP socket to %s is cut off", there);
    } else if (record->type == SOCK_DGRAM || record->state == SOCKET_IDLE) {
        error = bind_elsewhere(rebuild, record, fd, &port);
        if (port)
            snprintf(what, sizeof what, "a socket bound to %s has port %u", here, port);
    } else if (record->state == SOCKET_LISTENING) {
        error = bind_elsewhere(rebuild, record, fd, &port);
        if (!error && listen(fd, record->backlog) != 0)
            error = bunshin_error_os("cannot listen on another port");
        snprintf(what, sizeof what, "a listener on %s listens on port %u", here, port);
    } else if (record->state == SOCKET_CONNECTING) {
        error = tcp_make_refused(record, fd);
        snprintf(what, sizeof what, "a connection that was being made is refused");
    } else {
        error = reset(record, fd);
        snprintf(what, sizeof what, "a connection from %s to %s is reset", here, there);
    }
    socket_options_set(rebuild, record, fd, OPTIONS_LATE);
    if (!error && *what && ++*notes <= NOTES_MOST)
        error = buffer_printf(rebuild->report, "note pid %d, fd %d: %s\n", description->holder, description->holder_fd, what);
    if (error) {
        close(fd);
        return error;
    }
    return rebuild_place(rebuild, index, fd);
}

struct bunshin_error *outside_rebuild_all(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    int notes = 0;
    if (rebuild->carrier >= 0)
        TRY(unload(rebuild));
    for (int32_t i = 0; i < (int32_t)image->table[TABLE_DESCRIPTION].count; i++) {
        const struct image_description *description = IMAGE_DESCRIPTION(image, i);
        if (description->kind == KIND_SOCKET && IMAGE_SOCKET(image, description->object)->outside && !rebuild->made[i])
            TRY(stand_in(rebuild, i, IMAGE_SOCKET(image, description->object), &notes));
    }
    return notes > NOTES_MOST ? buffer_printf(rebuild->report, "note and %d more sockets on the host's network\n", notes - NOTES_MOST) : NULL;
}
