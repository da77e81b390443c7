/*
 * Sockets: unix pairs, listeners and connections with what is queued in them; TCP listeners; UDP. Which unix ends belong
 * together is asked of the kernel over netlink, inside the workspace's own network namespace.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/described.h"
#include "fork/rebuild.h"

enum socket_state { SOCKET_IDLE, SOCKET_LISTENING, SOCKET_CONNECTED, SOCKET_ORPHAN /* connected once, the peer has gone */ };

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

/* ---- capture: options and queues ---- */

static const int options[][2] = {
    {SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_REUSEPORT}, {SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_BROADCAST},
    {SOL_SOCKET, SO_PASSCRED},  {SOL_SOCKET, SO_OOBINLINE}, {SOL_SOCKET, SO_RCVLOWAT},  {SOL_SOCKET, SO_LINGER},
    {SOL_SOCKET, SO_RCVTIMEO},  {SOL_SOCKET, SO_SNDTIMEO},  {SOL_SOCKET, SO_PRIORITY},  {SOL_SOCKET, SO_SNDBUF},
    {SOL_SOCKET, SO_RCVBUF},
};
static const int inet_options[][2] = {
    {IPPROTO_TCP, TCP_NODELAY},   {IPPROTO_TCP, TCP_DEFER_ACCEPT}, {IPPROTO_TCP, TCP_KEEPIDLE},
    {IPPROTO_TCP, TCP_KEEPINTVL}, {IPPROTO_TCP, TCP_KEEPCNT},      {IPPROTO_TCP, TCP_USER_TIMEOUT},
    {IPPROTO_IP, IP_TOS},         {IPPROTO_IP, IP_TTL},            {IPPROTO_IPV6, IPV6_V6ONLY},
};

static struct bunshin_error *read_options(int fd, const int list[][2], size_t count, bool inet, int domain, int protocol,
                                          struct buffer *ret) {
    for (size_t i = 0; i < count; i++) {
        struct image_option option = {.level = list[i][0], .name = list[i][1]};
        if (inet && ((option.level == IPPROTO_TCP && protocol != IPPROTO_TCP) || (option.level == IPPROTO_IPV6 && domain != AF_INET6) ||
                     (option.level == IPPROTO_IP && domain != AF_INET)))
            continue;
        socklen_t length = sizeof option.value;
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

static struct bunshin_error *peek_queue(struct capture *capture, const struct holder *holder, int type, uint32_t waiting, struct span *ret) {
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
    if (setsockopt(holder->copy, SOL_SOCKET, SO_PEEK_OFF, &zero, sizeof zero) != 0)
        error = bunshin_error_os("cannot look into a socket's queue");
    while (!error) {
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
        if (got == 0)
            break;
    }
    (void)setsockopt(holder->copy, SOL_SOCKET, SO_PEEK_OFF, &before, sizeof before);
    free(part);
    if (!error)
        error = capture_heap(capture, queue.data, queue.size, ret);
    buffer_deinit(&queue);
    return error;
}

/* ---- capture: by family ---- */

static int int_option(int fd, int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    (void)getsockopt(fd, level, name, &value, &length);
    return value;
}

static struct bunshin_error *capture_unix(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    struct stat info;
    TRY(read_unix_sockets(capture));
    if (fstat(holder->copy, &info) != 0)
        return bunshin_error_os("cannot look at a socket");
    const struct unix_info *known = find_unix(capture, info.st_ino);
    if (!known)
        return capture_refuse(holder, "a unix socket of another network namespace");
    record->backlog = (int32_t)known->backlog;
    record->shut = known->shut;
    if (record->state == SOCKET_LISTENING) {
        if (known->waiting)
            return capture_refuse(holder, "a unix listener with %u connections not accepted yet", known->waiting);
    } else {
        record->peer = (int32_t)known->peer; /* an inode for now; socket_connect() finds its description */
        bool connected = known->state == 1 /* TCP_ESTABLISHED */;
        record->state = known->peer ? SOCKET_CONNECTED : connected ? SOCKET_ORPHAN : SOCKET_IDLE;
        TRY(peek_queue(capture, holder, record->type, known->waiting, &record->queue));
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

static struct bunshin_error *capture_inet(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    (void)capture;
    if (capture->init->settings.network_host)
        return capture_refuse(holder, "a socket on the host's network");
    if (record->type == SOCK_STREAM && record->protocol == IPPROTO_TCP) {
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
        if (info.tcpi_state != TCP_CLOSE)
            return capture_refuse(holder, "a TCP connection (state %u)", info.tcpi_state);
        return NULL;
    }
    if (record->type == SOCK_DGRAM && record->protocol == IPPROTO_UDP) {
        int waiting = 0;
        if (ioctl(holder->copy, FIONREAD, &waiting) == 0 && waiting > 0)
            return capture_refuse(holder, "a UDP socket with datagrams not read yet");
        return NULL;
    }
    return capture_refuse(holder, "a socket of family %d, type %d, protocol %d", record->domain, record->type, record->protocol);
}

struct bunshin_error *socket_capture(struct capture *capture, const struct holder *holder, int32_t self, struct image_description *ret) {
    struct image_socket record = {.peer = IMAGE_NONE, .listener = IMAGE_NONE};
    int fd = holder->copy;
    record.domain = int_option(fd, SOL_SOCKET, SO_DOMAIN);
    record.type = int_option(fd, SOL_SOCKET, SO_TYPE);
    record.protocol = int_option(fd, SOL_SOCKET, SO_PROTOCOL);
    record.state = int_option(fd, SOL_SOCKET, SO_ACCEPTCONN) ? SOCKET_LISTENING : SOCKET_IDLE;
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
    bool inet = record.domain != AF_UNIX;
    struct bunshin_error *error = read_options(fd, options, sizeof options / sizeof *options, false, record.domain, record.protocol, &list);
    if (!error && inet)
        error = read_options(fd, inet_options, sizeof inet_options / sizeof *inet_options, true, record.domain, record.protocol, &list);
    if (!error)
        error = capture_heap(capture, list.data, list.size, &record.options);
    buffer_deinit(&list);
    if (!error)
        error = inet ? capture_inet(capture, holder, &record) : capture_unix(capture, holder, &record);
    ret->kind = KIND_SOCKET;
    return error ? error : capture_add(capture, TABLE_SOCKET, &record, sizeof record, &ret->object);
}

/* Peers were inodes; now that every descriptor is known they become descriptions. */
struct bunshin_error *socket_connect(struct capture *capture) {
    int32_t count = CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description);
    for (int32_t i = 0; i < count; i++) {
        const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i);
        if (record->kind != KIND_SOCKET)
            continue;
        struct image_socket *socket = CAPTURE_AT(capture, TABLE_SOCKET, struct image_socket, record->object);
        if (socket->domain != AF_UNIX || socket->state != SOCKET_CONNECTED)
            continue;
        int32_t peer = IMAGE_NONE;
        for (size_t j = 0; j < capture->described_count; j++)
            if (capture->described[j].copy >= 0 && capture->described[j].inode == (uint64_t)(uint32_t)socket->peer) {
                const struct image_description *other =
                    CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, capture->described[j].description);
                if (other->kind == KIND_SOCKET)
                    peer = capture->described[j].description;
            }
        if (peer == IMAGE_NONE) {
            const struct frozen_process *process = freeze_find(capture->frozen, record->holder);
            return bunshin_error_unsupported(record->holder, process ? process->stat.comm : "?", record->holder_fd,
                                             "a unix socket whose other end nobody in the workspace holds");
        }
        socket->peer = peer;
    }
    return NULL;
}

/* ---- rebuild ---- */

static void set_options(struct rebuild *rebuild, const struct image_socket *record, int fd) {
    const struct image_option *option = (const void *)IMAGE_HEAP(rebuild->image, record->options);
    for (size_t i = 0; i < record->options.size / sizeof *option; i++)
        (void)setsockopt(fd, option[i].level, option[i].name, option[i].value, (socklen_t)option[i].length);
}

static struct bunshin_error *bind_name(struct rebuild *rebuild, const struct image_socket *record, int fd) {
    const struct sockaddr *address = (const void *)IMAGE_HEAP(rebuild->image, record->name);
    socklen_t length = (socklen_t)record->name.size;
    if (record->domain == AF_UNIX) {
        if (length <= offsetof(struct sockaddr_un, sun_path))
            return NULL;
        const char *path = ((const struct sockaddr_un *)address)->sun_path;
        if (record->named)
            unlink(path); /* the file of the sealed socket: this one takes its place */
        if (bind(fd, address, length) != 0)
            return bunshin_error_os("cannot bind a unix socket to %.100s", record->named ? path : "its abstract name");
        if (record->named == 1 && (chmod(path, record->mode) != 0 || lchown(path, record->uid, record->gid) != 0))
            return bunshin_error_os("cannot set the mode of %.100s", path);
        if (record->named == 2)
            unlink(path);
        return NULL;
    }
    uint16_t port = ((const struct sockaddr_in *)address)->sin_port; /* the same place in sockaddr_in6 */
    if (length < sizeof(struct sockaddr_in) || !port)
        return NULL;
    if (bind(fd, address, length) != 0)
        return bunshin_error_os("cannot bind a socket to port %u", ntohs(port));
    return NULL;
}

/* Sends what was waiting, from the other end. */
static struct bunshin_error *fill_queue(struct rebuild *rebuild, const struct image_socket *record, int from) {
    const uint8_t *at = IMAGE_HEAP(rebuild->image, record->queue), *end = at + record->queue.size;
    int flags = fcntl(from, F_GETFL);
    fcntl(from, F_SETFL, flags | O_NONBLOCK);
    while (at + sizeof(uint64_t) <= end) {
        uint64_t size;
        memcpy(&size, at, sizeof size);
        at += sizeof size;
        for (uint64_t done = 0; done < size || !size;) {
            ssize_t put = send(from, at + done, size - done, MSG_NOSIGNAL);
            if (put < 0)
                return bunshin_error_os("cannot fill a socket's queue with %llu bytes", (unsigned long long)size);
            done += (uint64_t)put;
            if (!size)
                break;
        }
        at += size;
    }
    fcntl(from, F_SETFL, flags);
    return NULL;
}

static struct bunshin_error *rebuild_single(struct rebuild *rebuild, int32_t index, const struct image_socket *record) {
    int fd = socket(record->domain, record->type | SOCK_CLOEXEC, record->protocol);
    if (fd < 0)
        return bunshin_error_os("cannot make a socket");
    set_options(rebuild, record, fd);
    struct bunshin_error *error = bind_name(rebuild, record, fd);
    if (!error && record->state == SOCKET_LISTENING && listen(fd, record->backlog) != 0)
        error = bunshin_error_os("cannot listen");
    if (!error && record->domain != AF_UNIX && record->type == SOCK_DGRAM && record->peer_name.size &&
        connect(fd, (const void *)IMAGE_HEAP(rebuild->image, record->peer_name), (socklen_t)record->peer_name.size) != 0)
        error = bunshin_error_os("cannot connect a UDP socket");
    if (error) {
        close(fd);
        return error;
    }
    return rebuild_place(rebuild, index, fd);
}

/*
 * A connection: through a listener of the right name where one end has a name, so that both ends see the addresses they
 * saw before; else a plain pair.
 */
static struct bunshin_error *make_pair(struct rebuild *rebuild, const struct image_socket *one, const struct image_socket *other,
                                       int ret[2]) {
    bool named = one->name.size > offsetof(struct sockaddr_un, sun_path) || (other && other->name.size > offsetof(struct sockaddr_un, sun_path));
    if (!named || one->type == SOCK_DGRAM) {
        if (socketpair(AF_UNIX, one->type | SOCK_CLOEXEC, 0, ret) != 0)
            return bunshin_error_os("cannot make a socket pair");
        return NULL;
    }
    bool one_serves = one->name.size > offsetof(struct sockaddr_un, sun_path);
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
        error = bind_name(rebuild, client, ends[0]);
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

static struct bunshin_error *rebuild_pair(struct rebuild *rebuild, int32_t index, const struct image_socket *one) {
    bool orphan = one->state == SOCKET_ORPHAN;
    const struct image_socket *other = orphan ? NULL : IMAGE_SOCKET(rebuild->image, IMAGE_DESCRIPTION(rebuild->image, one->peer)->object);
    int ends[2] = {-1, -1};
    TRY(make_pair(rebuild, one, other, ends));
    set_options(rebuild, one, ends[0]);
    if (other)
        set_options(rebuild, other, ends[1]);
    TRY(fill_queue(rebuild, one, ends[1]));
    if (other)
        TRY(fill_queue(rebuild, other, ends[0]));
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
