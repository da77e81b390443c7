/*
 * What the files about sockets share: socket.c (options, the order); socket_unix.h says which are about unix sockets;
 * socket_netlink.c; and of the internet's, socket_inet.c (addresses, the order), socket_options.c, socket_udp.c, socket_tcp.c,
 * socket_tcp_connect.c and socket_tcp_rebuild.c (connections), socket_pending.c (those that nobody has accepted yet),
 * socket_outside.c (the host's network).
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
    /* of unix sockets alone */
    SOCKET_UNACCEPTED, /* connected, as it sees it; the listener has not accepted it yet */
};

int socket_int_option(int fd, int level, int name);
/* Between unix sockets. */
void socket_copy_options(int from, int to);

struct bunshin_error *socket_capture_unix(struct capture *capture, const struct holder *holder, struct image_socket *record) MUST_CHECK;
struct bunshin_error *socket_capture_inet(struct capture *capture, const struct holder *holder, struct image_socket *record) MUST_CHECK;
struct bunshin_error *socket_capture_netlink(struct capture *capture, const struct holder *holder, struct image_socket *record) MUST_CHECK;
struct bunshin_error *socket_connect_unix(struct capture *capture) MUST_CHECK;

struct bunshin_error *socket_rebuild_netlink(struct rebuild *rebuild, int32_t index, const struct image_socket *record) MUST_CHECK;
/* Options of a socket that is not the internet's: see socket_options.c for those. */
void socket_set_options(struct rebuild *rebuild, const struct image_socket *record, int fd);

/* Sends all of it, waiting for buffers that grow as what is sent arrives. */
struct bunshin_error *socket_send_all(int from, const uint8_t *data, uint64_t size) MUST_CHECK;

#include "fork/socket_inet.h"

#endif
