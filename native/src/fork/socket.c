/* Sockets: what all families have in common. Each has files of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "fork/socket.h"

/* ---- capture ---- */

static const int options[][2] = {
    {SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_REUSEPORT}, {SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_BROADCAST},
    {SOL_SOCKET, SO_PASSCRED},  {SOL_SOCKET, SO_OOBINLINE}, {SOL_SOCKET, SO_RCVLOWAT},  {SOL_SOCKET, SO_LINGER},
    {SOL_SOCKET, SO_RCVTIMEO},  {SOL_SOCKET, SO_SNDTIMEO},  {SOL_SOCKET, SO_PRIORITY},  {SOL_SOCKET, SO_SNDBUF},
    {SOL_SOCKET, SO_RCVBUF},
};
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
static const int unix_options[][2] = {
    {SOL_SOCKET, SO_PASSSEC},   {SOL_SOCKET, SO_PASSPIDFD},   {SOL_SOCKET, SO_PASSRIGHTS},
    {SOL_SOCKET, SO_TIMESTAMP}, {SOL_SOCKET, SO_TIMESTAMPNS}, {SOL_SOCKET, SO_PEEK_OFF},
};
static const int netlink_options[][2] = {
    {SOL_NETLINK, NETLINK_PKTINFO},         {SOL_NETLINK, NETLINK_BROADCAST_ERROR}, {SOL_NETLINK, NETLINK_NO_ENOBUFS},
    {SOL_NETLINK, NETLINK_LISTEN_ALL_NSID}, {SOL_NETLINK, NETLINK_CAP_ACK},         {SOL_NETLINK, NETLINK_EXT_ACK},
    {SOL_NETLINK, NETLINK_GET_STRICT_CHK},
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
        int first;
        memcpy(&first, option.value, sizeof first);
        if ((option.name == SO_TIMESTAMP || option.name == SO_TIMESTAMPNS) && option.level == SOL_SOCKET && !first)
            continue; /* switching one off switches off the other */
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

static struct bunshin_error *refuse_family(const struct holder *holder, int family) {
    static const struct {
        int family;
        const char *name;
    } known[] = {{AF_PACKET, "a packet socket"},
                 {AF_ALG, "a socket of the kernel's cryptography (AF_ALG)"},
                 {AF_VSOCK, "a socket to a virtual machine's host (AF_VSOCK)"},
                 {AF_BLUETOOTH, "a Bluetooth socket"},
                 {AF_CAN, "a CAN bus socket"},
                 {AF_XDP, "an XDP socket"},
                 {AF_TIPC, "a TIPC socket"},
                 {AF_RDS, "an RDS socket"},
                 {AF_KCM, "a KCM socket"},
                 {AF_QIPCRTR, "a QIPCRTR socket"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].family == family)
            return capture_refuse(holder, "%s", known[i].name);
    return capture_refuse(holder, "a socket of family %d", family);
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
    if (record.domain != AF_UNIX && record.domain != AF_INET && record.domain != AF_INET6 && record.domain != AF_NETLINK)
        return refuse_family(holder, record.domain);
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    const socklen_t most = record.domain == AF_UNIX ? sizeof(struct sockaddr_un) : sizeof address; /* a full path is shown with a NUL more */
    if (getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        TRY(capture_heap(capture, &address, length < most ? length : most, &record.name));
    length = sizeof address;
    memset(&address, 0, sizeof address);
    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0)
        TRY(capture_heap(capture, &address, length < most ? length : most, &record.peer_name));
    struct buffer list = {0};
    bool inet = record.domain == AF_INET || record.domain == AF_INET6;
    struct bunshin_error *error = inet ? socket_options_capture(holder, &record, &list)
                                       : read_options(fd, options, sizeof options / sizeof *options, &list);
    bool netlink = record.domain == AF_NETLINK;
    if (!error && record.domain == AF_UNIX)
        error = read_options(fd, unix_options, sizeof unix_options / sizeof *unix_options, &list);
    if (!error && netlink)
        error = read_options(fd, netlink_options, sizeof netlink_options / sizeof *netlink_options, &list);
    if (!error)
        error = capture_heap(capture, list.data, list.size, &record.options);
    buffer_deinit(&list);
    if (!error)
        error = inet      ? socket_capture_inet(capture, holder, &record)
                : netlink ? socket_capture_netlink(capture, holder, &record)
                          : socket_capture_unix(capture, holder, &record);
    ret->kind = KIND_SOCKET;
    return error ? error : capture_add(capture, TABLE_SOCKET, &record, sizeof record, &ret->object);
}

void socket_copy_options(int from, int to) {
    struct buffer list = {0};
    struct bunshin_error *error = read_options(from, options, sizeof options / sizeof *options, &list);
    if (!error)
        error = read_options(from, unix_options, sizeof unix_options / sizeof *unix_options, &list);
    const struct image_option *option = (const void *)list.data;
    for (size_t i = 0; i < list.size / sizeof *option; i++)
        (void)setsockopt(to, option[i].level, option[i].name, option[i].value, (socklen_t)option[i].length);
    buffer_deinit(&list);
    bunshin_error_destroy(error);
}

/* After every descriptor is known: ends that belong together. */
struct bunshin_error *socket_connect(struct capture *capture) {
    if (capture->have_unix_peers)
        TRY(socket_connect_unix(capture));
    return tcp_connect_all(capture);
}

/* ---- rebuild ---- */

void socket_set_options(struct rebuild *rebuild, const struct image_socket *record, int fd) {
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

struct bunshin_error *socket_rebuild_all(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    TRY(inet_rebuild_all(rebuild));
    for (int32_t i = 0; i < (int32_t)image->table[TABLE_DESCRIPTION].count; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(image, i);
        const struct image_socket *socket = record->kind == KIND_SOCKET ? IMAGE_SOCKET(image, record->object) : NULL;
        if (socket && socket->domain == AF_NETLINK)
            TRY(socket_rebuild_netlink(rebuild, i, socket));
        if (socket && socket->domain == AF_UNIX)
            rebuild->one_table = true; /* see socket_rebuild_later() */
    }
    return NULL;
}
