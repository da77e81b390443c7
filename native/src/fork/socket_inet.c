/*
 * TCP and UDP inside the workspace. A connection has both its ends here: it is rebuilt as a connection, between the same
 * addresses, and what each end had not read yet, or not got across yet, is sent again by the other.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <linux/sockios.h>
#include <unistd.h>

#include "fork/socket.h"

/* A new connection's buffers take this much at once; the kernel lets nobody but the host's root make them larger. */
#define UNDER_WAY_MOST (1u << 20)

/* ---- capture ---- */

static bool is_connected_state(unsigned state) {
    return state == TCP_ESTABLISHED || state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 || state == TCP_CLOSE_WAIT ||
           state == TCP_LAST_ACK || state == TCP_CLOSING;
}

/*
 * Bytes that were written and not yet confirmed, and where both streams stand. Repair mode shows them; leaving it goes on
 * as before, but forgets SO_REUSEADDR.
 */
static struct bunshin_error *read_streams(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    int fd = holder->copy, waiting = 0, on = 1, off = -1 /* without a probe */, reuse = socket_int_option(fd, SOL_SOCKET, SO_REUSEADDR);
    int sending = TCP_SEND_QUEUE, receiving = TCP_RECV_QUEUE, neither = TCP_NO_QUEUE;
    (void)ioctl(fd, SIOCOUTQ, &waiting);
    if (record->queue.size + (uint64_t)waiting > UNDER_WAY_MOST)
        return capture_refuse(holder, "a TCP connection with %d bytes under way, more than can be sent again at once", waiting);
    uint8_t *bytes = malloc((size_t)waiting + 1);
    if (!bytes)
        return bunshin_error_no_memory();
    ssize_t got = -1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) == 0) {
        if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &receiving, sizeof receiving) == 0) {
            record->received_to = (uint32_t)socket_int_option(fd, IPPROTO_TCP, TCP_QUEUE_SEQ);
            (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &sending, sizeof sending);
            record->sent_to = (uint32_t)socket_int_option(fd, IPPROTO_TCP, TCP_QUEUE_SEQ);
            got = waiting > 0 ? recv(fd, bytes, (size_t)waiting, MSG_PEEK | MSG_DONTWAIT) : 0;
        }
        (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &neither, sizeof neither);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof off);
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    }
    struct bunshin_error *error = got >= 0 ? capture_heap(capture, bytes, (size_t)got, &record->unsent)
                                           : capture_refuse(holder, "a TCP connection that cannot be looked into");
    free(bytes);
    return error;
}

static struct bunshin_error *capture_tcp(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    if (getsockopt(holder->copy, IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
        return bunshin_error_os("cannot look at a TCP socket");
    if (record->state == SOCKET_LISTENING) {
        if (info.tcpi_unacked)
            return capture_refuse(holder, "a TCP listener with %u connections not accepted yet", info.tcpi_unacked);
        record->backlog = (int32_t)info.tcpi_sacked;
        return NULL;
    }
    if (info.tcpi_state == TCP_CLOSE)
        return NULL;
    if (!is_connected_state(info.tcpi_state))
        return capture_refuse(holder, "a TCP connection that is being made (state %u)", info.tcpi_state);
    /* Which directions are closed: ours once we have sent a FIN, the other's once we have got one. */
    if (info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_CLOSE_WAIT)
        record->shut = 2;
    record->state = SOCKET_CONNECTED;
    int waiting = 0;
    (void)ioctl(holder->copy, FIONREAD, &waiting);
    TRY(socket_peek(capture, holder, SOCK_STREAM, (uint32_t)waiting, &record->queue));
    return read_streams(capture, holder, record);
}

struct bunshin_error *socket_capture_inet(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    if (capture->init->settings.network_host)
        return capture_refuse(holder, "a socket on the host's network");
    if (record->type == SOCK_STREAM && record->protocol == IPPROTO_TCP)
        return capture_tcp(capture, holder, record);
    if (record->type == SOCK_DGRAM && record->protocol == IPPROTO_UDP) {
        int waiting = 0;
        if (ioctl(holder->copy, FIONREAD, &waiting) == 0 && waiting > 0)
            return capture_refuse(holder, "a UDP socket with datagrams not read yet");
        return NULL;
    }
    return capture_refuse(holder, "a socket of family %d, type %d, protocol %d", record->domain, record->type, record->protocol);
}

static bool same_address(const struct capture *capture, const struct span *one, const struct span *other) {
    const uint8_t *heap = capture->table[TABLE_HEAP].data;
    return one->size && one->size == other->size && !memcmp(heap + one->offset, heap + other->offset, one->size);
}

/* The other end of a connection is the socket with the same two addresses, the other way round. */
struct bunshin_error *socket_connect_inet(struct capture *capture, int32_t index, struct image_socket *socket) {
    (void)index;
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description); i++) {
        const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i);
        if (record->kind != KIND_SOCKET)
            continue;
        const struct image_socket *other = CAPTURE_AT(capture, TABLE_SOCKET, struct image_socket, record->object);
        if (other->state == SOCKET_CONNECTED && other->type == SOCK_STREAM && same_address(capture, &socket->name, &other->peer_name) &&
            same_address(capture, &socket->peer_name, &other->name)) {
            socket->peer = i;
            /* What the other end has received already, and only not confirmed, is in its queue: not to be sent twice. */
            uint32_t under_way = socket->sent_to - other->received_to;
            if (socket->unsent.size > under_way) {
                socket->unsent.offset += socket->unsent.size - under_way;
                socket->unsent.size = under_way;
            }
            return NULL;
        }
    }
    socket->state = SOCKET_ORPHAN; /* closed there already: what it had sent is still read here */
    return NULL;
}

/* ---- rebuild ---- */

static uint16_t port_of(const void *address) { return ((const struct sockaddr_in *)address)->sin_port; /* the same place in IPv6 */ }

struct bunshin_error *socket_bind_inet(struct rebuild *rebuild, const struct image_socket *record, int fd) {
    const struct sockaddr *address = (const void *)IMAGE_HEAP(rebuild->image, record->name);
    if (record->name.size < sizeof(struct sockaddr_in) || !port_of(address))
        return NULL;
    if (bind(fd, address, (socklen_t)record->name.size) != 0)
        return bunshin_error_os("cannot bind a socket to port %u", ntohs(port_of(address)));
    return NULL;
}

/* The workspace's own listener on a port, if there is one: it has been made before, and nobody else runs yet. */
static int find_listener(const struct rebuild *rebuild, int domain, uint16_t port) {
    for (int32_t i = 0; i < (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, i);
        if (record->kind != KIND_SOCKET || !rebuild->made[i])
            continue;
        const struct image_socket *socket = IMAGE_SOCKET(rebuild->image, record->object);
        if (socket->state == SOCKET_LISTENING && socket->domain == domain && socket->type == SOCK_STREAM &&
            port_of(IMAGE_HEAP(rebuild->image, socket->name)) == port)
            return rebuild_fd(rebuild, i);
    }
    return -1;
}

struct bunshin_error *socket_pair_inet(struct rebuild *rebuild, const struct image_socket *one, int ret[2]) {
    const struct sockaddr *here = (const void *)IMAGE_HEAP(rebuild->image, one->name);
    const struct sockaddr *there = (const void *)IMAGE_HEAP(rebuild->image, one->peer_name);
    socklen_t length = (socklen_t)one->name.size;
    /* The side whose port is listened on was the server; it does not matter where there is none any more. */
    bool one_serves = find_listener(rebuild, one->domain, port_of(here)) >= 0;
    const struct sockaddr *server = one_serves ? here : there, *client = one_serves ? there : here;
    int listener = find_listener(rebuild, one->domain, port_of(server)), own = -1, on = 1, ends[2] = {-1, -1};
    struct bunshin_error *error = NULL;
    if (listener < 0) {
        own = listener = socket(one->domain, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
        if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 || bind(listener, server, length) != 0 ||
            listen(listener, 1) != 0)
            error = bunshin_error_os("cannot make a connection to port %u again", ntohs(port_of(server)));
    }
    if (!error && ((ends[0] = socket(one->domain, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP)) < 0 ||
                   setsockopt(ends[0], SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 || bind(ends[0], client, length) != 0 ||
                   connect(ends[0], server, length) != 0))
        error = bunshin_error_os("cannot make a connection from port %u to port %u again", ntohs(port_of(client)), ntohs(port_of(server)));
    int flags = error ? 0 : fcntl(listener, F_GETFL);
    if (!error) {
        fcntl(listener, F_SETFL, flags & ~O_NONBLOCK);
        if ((ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
            error = bunshin_error_os("cannot accept a connection again");
        fcntl(listener, F_SETFL, flags);
    }
    if (own >= 0)
        close(own);
    ret[one_serves] = ends[0];
    ret[!one_serves] = ends[1];
    return error;
}
