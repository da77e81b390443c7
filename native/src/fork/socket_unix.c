/*
 * Unix sockets: what the kernel tells of them, and which ends belong together. That is asked over netlink, inside the
 * workspace's own network namespace.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
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
#include "fork/socket_unix.h"

/* ---- capture: what the kernel tells of unix sockets ---- */

struct unix_info {
    uint32_t inode, peer, state, waiting, backlog;
    uint8_t shut;
    struct span clients; /* of a listener: inodes of who has connected and is not accepted, in order; 0 where that is closed */
};

static struct bunshin_error *read_unix_sockets(struct capture *capture) {
    if (capture->have_unix_peers)
        return NULL;
    capture->have_unix_peers = true;
    int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    struct {
        struct nlmsghdr header;
        struct unix_diag_req request;
    } ask = {
        .header = {.nlmsg_len = sizeof ask, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .request = {.sdiag_family = AF_UNIX, .udiag_states = ~0u, .udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN | UDIAG_SHOW_ICONS},
    };
    struct bunshin_error *error = NULL;
    if (netlink < 0 || send(netlink, &ask, sizeof ask, 0) != sizeof ask)
        error = bunshin_error_os("cannot ask for unix sockets (is unix_diag there?)");
    static uint8_t answer[32768];
    bool done = false;
    while (!error && !done) {
        ssize_t got = recv(netlink, answer, sizeof answer, 0);
        if (got <= 0) {
            error = bunshin_error_os("cannot read the list of unix sockets");
            break;
        }
        unsigned left = (unsigned)got;
        for (struct nlmsghdr *message = (void *)answer; !error && NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
            if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) {
                if (message->nlmsg_type == NLMSG_ERROR)
                    error = bunshin_error_new(BUNSHIN_ERROR_OS, ENOENT, "the kernel does not list unix sockets (no unix_diag)");
                done = true;
                break;
            }
            const struct unix_diag_msg *found = NLMSG_DATA(message);
            struct unix_info info = {.inode = found->udiag_ino, .state = found->udiag_state};
            const uint8_t *at = (const uint8_t *)(found + 1), *end = (const uint8_t *)message + message->nlmsg_len;
            while (at + sizeof(struct nlattr) <= end) {
                struct nlattr attribute;
                memcpy(&attribute, at, sizeof attribute);
                if (attribute.nla_len < sizeof attribute)
                    break;
                const uint8_t *value = at + sizeof attribute;
                if (attribute.nla_type == UNIX_DIAG_PEER)
                    memcpy(&info.peer, value, 4);
                else if (attribute.nla_type == UNIX_DIAG_RQLEN) {
                    memcpy(&info.waiting, value, 4);
                    memcpy(&info.backlog, value + 4, 4);
                } else if (attribute.nla_type == UNIX_DIAG_SHUTDOWN)
                    info.shut = *value;
                else if (attribute.nla_type == UNIX_DIAG_ICONS && !error)
                    error = capture_heap(capture, value, attribute.nla_len - sizeof attribute, &info.clients);
                at += (attribute.nla_len + 3u) & ~3u;
            }
            if (!error)
                error = buffer_append(&capture->unix_peers, &info, sizeof info);
        }
    }
    if (netlink >= 0)
        close(netlink);
    return error;
}

static const struct unix_info *find_unix(const struct capture *capture, uint64_t inode) {
    const struct unix_info *list = (const void *)capture->unix_peers.data;
    for (size_t i = 0; i < capture->unix_peers.size / sizeof *list; i++)
        if (list[i].inode == inode)
            return &list[i];
    return NULL;
}

/* ---- capture ---- */

struct bunshin_error *unix_credentials_capture(struct capture *capture, int fd, struct image_credentials *ret) {
    struct ucred peer = {0};
    socklen_t length = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0)
        return NULL; /* nobody is said to be there */
    gid_t groups[1024];
    *ret = (struct image_credentials){.pid = peer.pid, .uid = peer.uid, .gid = peer.gid};
    length = sizeof groups;
    return getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length) == 0 ? capture_heap(capture, groups, length, &ret->groups) : NULL;
}

/* What waits, and an error that waits: asking for that one would take it away, so only its presence is looked at. */
static struct bunshin_error *read_waiting(struct capture *capture, const struct holder *holder, uint32_t bytes, struct image_socket *record) {
    struct pollfd state = {.fd = holder->copy, .events = POLLIN};
    if (poll(&state, 1, 0) < 0)
        return bunshin_error_os("cannot look at a unix socket");
    bool stream = record->type == SOCK_STREAM, waiting = stream || record->type == SOCK_SEQPACKET ? bytes > 0 : state.revents & POLLIN;
    if (state.revents & POLLERR) {
        record->error = ECONNRESET; /* the only one there is */
        if (record->state != SOCKET_ORPHAN || record->type == SOCK_DGRAM || (waiting && !stream))
            return capture_refuse(holder, "a unix socket that was reset and has not been told so yet");
    }
    int sent = 0;
    if (ioctl(holder->copy, SIOCOUTQ, &sent) == 0)
        record->sent_memory = (uint64_t)sent;
    if (!waiting && !(record->type == SOCK_SEQPACKET && state.revents & POLLIN && !(record->shut & 1)))
        return NULL;
    return unix_queue_capture(capture, holder, record->type, bytes, &record->queue);
}

struct bunshin_error *socket_capture_unix(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    struct stat info;
    TRY(read_unix_sockets(capture));
    if (fstat(holder->copy, &info) != 0)
        return bunshin_error_os("cannot look at a socket");
    const struct unix_info *found = find_unix(capture, info.st_ino);
    if (!found)
        return capture_refuse(holder, "a unix socket of another network namespace");
    struct unix_info known = *found; /* the list may grow no more, but what lies behind it may */
    record->backlog = (int32_t)known.backlog;
    record->inode = known.inode;
    record->shut = known.shut;
    TRY(unix_credentials_capture(capture, holder->copy, &record->credentials));
    TRY(unix_name_capture(capture, holder, record));
    const struct sockaddr_un *name = (const void *)(capture->table[TABLE_HEAP].data + record->name.offset);
    if (record->name.size > offsetof(struct sockaddr_un, sun_path) && !name->sun_path[0] && capture->init->settings.network_host)
        return capture_refuse(holder, "an abstract unix socket on the host's network, where a name is there once");
    if (record->state == SOCKET_LISTENING) {
        record->pending = known.clients;
        return NULL;
    }
    record->peer = (int32_t)known.peer; /* an inode for now; socket_connect_unix() finds its description */
    /* A datagram socket that somebody has connected to looks connected itself. */
    bool connected = record->type == SOCK_DGRAM ? record->peer_name.size > 0 : known.state == 1 /* TCP_ESTABLISHED */;
    record->state = known.peer ? SOCKET_CONNECTED : connected ? SOCKET_ORPHAN : SOCKET_IDLE;
    return read_waiting(capture, holder, known.waiting, record);
}

/* ---- capture, after every descriptor is known: ends that belong together ---- */

struct described *unix_find_inode(struct capture *capture, uint32_t inode) {
    for (size_t i = 0; i < capture->described_count; i++) {
        struct described *described = &capture->described[i];
        if (described->copy >= 0 && described->inode == inode &&
            CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, described->description)->kind == KIND_SOCKET)
            return described;
    }
    return NULL;
}

struct image_socket *unix_socket_of(struct capture *capture, int32_t description) {
    const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, description);
    struct image_socket *socket = record->kind == KIND_SOCKET ? CAPTURE_AT(capture, TABLE_SOCKET, struct image_socket, record->object) : NULL;
    return socket && socket->domain == AF_UNIX ? socket : NULL;
}

struct bunshin_error *unix_refuse(struct capture *capture, int32_t description, const char *reason) {
    const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, description);
    const struct frozen_process *process = freeze_find(capture->frozen, record->holder);
    return bunshin_error_unsupported(record->holder, process ? process->stat.comm : "?", record->holder_fd, "%s", reason);
}

struct bunshin_error *socket_connect_unix(struct capture *capture) {
    int32_t count = CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description);
    for (int32_t i = 0; i < count; i++) {
        struct image_socket *socket = unix_socket_of(capture, i);
        if (!socket || socket->state != SOCKET_CONNECTED)
            continue;
        const struct described *peer = unix_find_inode(capture, (uint32_t)socket->peer);
        if (!peer || !unix_socket_of(capture, peer->description))
            return unix_refuse(capture, i, "a unix socket whose other end nobody in the workspace holds");
        socket->peer = peer->description;
    }
    for (int32_t i = 0; i < count; i++) {
        const struct image_socket *socket = unix_socket_of(capture, i);
        if (socket && socket->state == SOCKET_ORPHAN && socket->type != SOCK_DGRAM && socket->shut != 3)
            return unix_refuse(capture, i, "a unix socket whose other end nobody in the workspace holds");
    }
    return NULL;
}
