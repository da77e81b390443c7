/*
 * Unix sockets: pairs, listeners, connections. Which ends belong together is asked of the kernel over netlink, inside the
 * workspace's own network namespace.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
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

/* ---- capture: what the kernel tells of unix sockets ---- */

struct unix_info {
    uint32_t inode, peer, state, waiting, backlog;
    uint8_t shut;
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
        .request = {.sdiag_family = AF_UNIX, .udiag_states = ~0u, .udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN},
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
                at += (attribute.nla_len + 3u) & ~3u;
            }
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

struct bunshin_error *socket_capture_unix(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    struct stat info;
    TRY(read_unix_sockets(capture));
    if (fstat(holder->copy, &info) != 0)
        return bunshin_error_os("cannot look at a socket");
    const struct unix_info *known = find_unix(capture, info.st_ino);
    if (!known)
        return capture_refuse(holder, "a unix socket of another network namespace");
    record->backlog = (int32_t)known->backlog;
    record->inode = known->inode;
    record->shut = known->shut;
    if (record->state == SOCKET_LISTENING) {
        if (known->waiting)
            return capture_refuse(holder, "a unix listener with %u connections not accepted yet", known->waiting);
    } else {
        record->peer = (int32_t)known->peer; /* an inode for now; socket_connect() finds its description */
        bool connected = known->state == 1 /* TCP_ESTABLISHED */;
        record->state = known->peer ? SOCKET_CONNECTED : connected ? SOCKET_ORPHAN : SOCKET_IDLE;
        TRY(socket_peek(capture, holder, record->type, known->waiting, &record->queue));
    }
    const struct sockaddr_un *name = (const void *)(capture->table[TABLE_HEAP].data + record->name.offset);
    if (record->name.size > offsetof(struct sockaddr_un, sun_path) && name->sun_path[0]) {
        record->named = 1;
        struct stat file;
        if (stat(name->sun_path, &file) == 0 && S_ISSOCK(file.st_mode)) {
            record->mode = file.st_mode & 07777;
            record->uid = file.st_uid;
            record->gid = file.st_gid;
        } else
            record->named = 2; /* its file is gone */
    }
    return NULL;
}

/* A peer is an inode until every descriptor is known; then it becomes a description. */
struct bunshin_error *socket_connect_unix(struct capture *capture, const struct image_description *record, struct image_socket *socket) {
    int32_t peer = IMAGE_NONE;
    for (size_t i = 0; i < capture->described_count; i++)
        if (capture->described[i].copy >= 0 && capture->described[i].inode == (uint64_t)(uint32_t)socket->peer) {
            const struct image_description *other =
                CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, capture->described[i].description);
            if (other->kind == KIND_SOCKET)
                peer = capture->described[i].description;
        }
    if (peer == IMAGE_NONE) {
        const struct frozen_process *process = freeze_find(capture->frozen, record->holder);
        return bunshin_error_unsupported(record->holder, process ? process->stat.comm : "?", record->holder_fd,
                                         "a unix socket whose other end nobody in the workspace holds");
    }
    socket->peer = peer;
    return NULL;
}

/* ---- rebuild ---- */

struct bunshin_error *socket_bind_unix(struct rebuild *rebuild, const struct image_socket *record, int fd) {
    const struct sockaddr_un *address = (const void *)IMAGE_HEAP(rebuild->image, record->name);
    socklen_t length = (socklen_t)record->name.size;
    if (length <= offsetof(struct sockaddr_un, sun_path))
        return NULL;
    if (record->named)
        unlink(address->sun_path); /* the file of the sealed socket: this one takes its place */
    if (bind(fd, (const struct sockaddr *)address, length) != 0)
        return bunshin_error_os("cannot bind a unix socket to %.100s", record->named ? address->sun_path : "its abstract name");
    if (record->named == 1 &&
        (chmod(address->sun_path, record->mode) != 0 || lchown(address->sun_path, record->uid, record->gid) != 0))
        return bunshin_error_os("cannot set the mode of %.100s", address->sun_path);
    if (record->named == 2)
        unlink(address->sun_path);
    return NULL;
}

static bool has_name(const struct image_socket *socket) {
    return socket && socket->name.size > offsetof(struct sockaddr_un, sun_path);
}

/* Whether a socket has the name of a listener: then it is an end that was accepted there. */
static bool is_accepted(const struct rebuild *rebuild, const struct image_socket *socket) {
    for (size_t i = 0; i < rebuild->image->table[TABLE_SOCKET].count; i++) {
        const struct image_socket *other = IMAGE_SOCKET(rebuild->image, i);
        if (other->state == SOCKET_LISTENING && other->domain == AF_UNIX && other->name.size == socket->name.size &&
            !memcmp(IMAGE_HEAP(rebuild->image, other->name), IMAGE_HEAP(rebuild->image, socket->name), socket->name.size))
            return true;
    }
    return false;
}

/* Which of two connected ends is the server's. A client may have bound a name of its own. */
static bool serves(const struct rebuild *rebuild, const struct image_socket *one, const struct image_socket *other) {
    if (!has_name(one) || !has_name(other))
        return has_name(one);
    if (is_accepted(rebuild, one) != is_accepted(rebuild, other))
        return is_accepted(rebuild, one);
    return one->inode > other->inode; /* the listener is gone: the accepted end was made after the client's */
}

/*
 * A connection: through a listener of the right name where one end has a name, so that both ends see the addresses they
 * saw before; else a plain pair.
 */
struct bunshin_error *socket_pair_unix(struct rebuild *rebuild, const struct image_socket *one, const struct image_socket *other, int ret[2]) {
    if ((!has_name(one) && !has_name(other)) || one->type == SOCK_DGRAM) {
        if (socketpair(AF_UNIX, one->type | SOCK_CLOEXEC, 0, ret) != 0)
            return bunshin_error_os("cannot make a socket pair");
        return NULL;
    }
    bool one_serves = serves(rebuild, one, other);
    const struct image_socket *server = one_serves ? one : other, *client = one_serves ? other : one;
    const struct sockaddr_un *name = (const void *)IMAGE_HEAP(rebuild->image, server->name);
    int listener = socket(AF_UNIX, one->type | SOCK_CLOEXEC, 0), ends[2] = {-1, -1};
    struct bunshin_error *error = NULL;
    /* The real listener may hold the name: its file steps aside for the moment. */
    char aside[140] = "";
    if (server->named) {
        snprintf(aside, sizeof aside, "%s.bunshin", name->sun_path);
        if (rename(name->sun_path, aside) != 0)
            aside[0] = '\0';
    }
    bool bound = bind(listener, (const struct sockaddr *)name, (socklen_t)server->name.size) == 0;
    if (!bound && !server->named) { /* an abstract name whose listener lives: connect through that one, below */
        close(listener);
        if (socketpair(AF_UNIX, one->type | SOCK_CLOEXEC, 0, ret) != 0)
            return bunshin_error_os("cannot make a socket pair");
        return NULL;
    }
    if (!bound || listen(listener, 1) != 0)
        error = bunshin_error_os("cannot make a connection to %.100s again", name->sun_path);
    if (!error && (ends[0] = socket(AF_UNIX, one->type | SOCK_CLOEXEC, 0)) < 0)
        error = bunshin_error_os("cannot make a socket");
    if (!error && client)
        error = socket_bind_unix(rebuild, client, ends[0]);
    if (!error && connect(ends[0], (const struct sockaddr *)name, (socklen_t)server->name.size) != 0)
        error = bunshin_error_os("cannot connect to %.100s again", name->sun_path);
    if (!error && (ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
        error = bunshin_error_os("cannot accept a connection again");
    close(listener);
    if (server->named) {
        unlink(name->sun_path);
        if (*aside)
            (void)rename(aside, name->sun_path);
    }
    ret[one_serves] = ends[0];
    ret[!one_serves] = ends[1];
    return error;
}

