/*
 * What the files about sockets share: socket.c (options, queues, the order), socket_unix.c; and of the internet's,
 * socket_inet.c (addresses, the order), socket_options.c, socket_udp.c, socket_tcp.c and socket_tcp_rebuild.c (connections),
 * socket_pending.c (connections that nobody has accepted yet).
 */
#ifndef BUNSHIN_FORK_SOCKET_H
#define BUNSHIN_FORK_SOCKET_H

#include "fork/capture.h"
#include "fork/described.h"
#include "fork/rebuild.h"

enum socket_state {
    SOCKET_IDLE,
    SOCKET_LISTENING,
    SOCKET_CONNECTED,
    SOCKET_ORPHAN, /* connected once, the peer has gone */
    /* of TCP alone */
    SOCKET_CONNECTING, /* a SYN is under way */
    SOCKET_PENDING,    /* connected, as it sees it; the listener has not accepted it yet */
    SOCKET_FINISHED,   /* closed in both directions */
    SOCKET_RESET,      /* closed by the other end, which the program has not been told yet */
    SOCKET_REFUSED,    /* could not connect, which the program has not been told yet */
    SOCKET_REFUSED_TOLD,
};

int socket_int_option(int fd, int level, int name);
/* Looks at what waits in a socket's queue without taking it. `waiting`: bytes, as far as known. */
struct bunshin_error *socket_peek(struct capture *capture, const struct holder *holder, int type, uint32_t waiting, struct span *ret) MUST_CHECK;

struct bunshin_error *socket_capture_unix(struct capture *capture, const struct holder *holder, struct image_socket *record) MUST_CHECK;
struct bunshin_error *socket_capture_inet(struct capture *capture, const struct holder *holder, struct image_socket *record) MUST_CHECK;
struct bunshin_error *socket_connect_unix(struct capture *capture, const struct image_description *record, struct image_socket *socket) MUST_CHECK;

/* Binds a new socket to the address of a sealed one; nothing to do where that had none. */
struct bunshin_error *socket_bind_unix(struct rebuild *rebuild, const struct image_socket *record, int fd) MUST_CHECK;
/* Two connected ends; `other` is NULL where the peer has gone. */
struct bunshin_error *socket_pair_unix(struct rebuild *rebuild, const struct image_socket *one, const struct image_socket *other, int ret[2]) MUST_CHECK;
/* Sends all of it, waiting for buffers that grow as what is sent arrives. */
struct bunshin_error *socket_send_all(int from, const uint8_t *data, uint64_t size) MUST_CHECK;

#include "fork/socket_inet.h"

#endif
