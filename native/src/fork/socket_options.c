/*
 * The options of internet sockets. What has its default is not kept: a rebuild then costs nothing for it. Multicast groups
 * are no option that could be read: each group of the namespace is tried.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fork/socket.h"

/* Newer than some headers. */
#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#define SNDBUF_LOCKED 1
#define RCVBUF_LOCKED 2

#define NEVER (-4711) /* no default: kept always */

struct known {
    int16_t level, name;
    int32_t usual;
};

static const struct known known[] = {
    {SOL_SOCKET, SO_REUSEADDR, 0},
    {SOL_SOCKET, SO_REUSEPORT, 0},
    {SOL_SOCKET, SO_KEEPALIVE, 0},
    {SOL_SOCKET, SO_BROADCAST, 0},
    {SOL_SOCKET, SO_OOBINLINE, 0},
    {SOL_SOCKET, SO_DONTROUTE, 0},
    {SOL_SOCKET, SO_NO_CHECK, 0},
    {SOL_SOCKET, SO_RCVLOWAT, 1},
    {SOL_SOCKET, SO_LINGER, 0},
    {SOL_SOCKET, SO_RCVTIMEO, 0},
    {SOL_SOCKET, SO_SNDTIMEO, 0},
    {SOL_SOCKET, SO_PRIORITY, 0},
    {SOL_SOCKET, SO_MARK, 0},
    {SOL_SOCKET, SO_BINDTODEVICE, 0},
    {SOL_SOCKET, SO_TIMESTAMP, 0},
    {SOL_SOCKET, SO_TIMESTAMPNS, 0},
    {SOL_SOCKET, SO_TIMESTAMPING, 0},
    {SOL_SOCKET, SO_RXQ_OVFL, 0},
    {SOL_SOCKET, SO_BUSY_POLL, 0},
    {SOL_SOCKET, SO_SELECT_ERR_QUEUE, 0},
    {SOL_SOCKET, SO_ZEROCOPY, 0},
    {SOL_SOCKET, SO_PEEK_OFF, -1},
    {IPPROTO_IP, IP_TOS, 0},
    {IPPROTO_IP, IP_TTL, 64},
    {IPPROTO_IP, IP_RECVERR, 0},
    {IPPROTO_IP, IP_PKTINFO, 0},
    {IPPROTO_IP, IP_RECVTTL, 0},
    {IPPROTO_IP, IP_RECVTOS, 0},
    {IPPROTO_IP, IP_RECVOPTS, 0},
    {IPPROTO_IP, IP_RETOPTS, 0},
    {IPPROTO_IP, IP_RECVORIGDSTADDR, 0},
    {IPPROTO_IP, IP_RECVFRAGSIZE, 0},
    {IPPROTO_IP, IP_CHECKSUM, 0},
    {IPPROTO_IP, IP_FREEBIND, 0},
    {IPPROTO_IP, IP_TRANSPARENT, 0},
    {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0},
    {IPPROTO_IP, IP_MINTTL, 0},
    {IPPROTO_IP, IP_MTU_DISCOVER, 1},
    {IPPROTO_IP, IP_MULTICAST_TTL, 1},
    {IPPROTO_IP, IP_MULTICAST_LOOP, 1},
    {IPPROTO_IP, IP_MULTICAST_ALL, 1},
    {IPPROTO_IP, IP_MULTICAST_IF, 0},
    {IPPROTO_IP, IP_UNICAST_IF, 0},
    {IPPROTO_IP, IP_LOCAL_PORT_RANGE, 0},
    {IPPROTO_IP, IP_OPTIONS, 0},
    {IPPROTO_IPV6, IPV6_V6ONLY, 0},
    {IPPROTO_IPV6, IPV6_UNICAST_HOPS, 64},
    {IPPROTO_IPV6, IPV6_TCLASS, 0},
    {IPPROTO_IPV6, IPV6_RECVERR, 0},
    {IPPROTO_IPV6, IPV6_RECVPKTINFO, 0},
    {IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 0},
    {IPPROTO_IPV6, IPV6_RECVTCLASS, 0},
    {IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 0},
    {IPPROTO_IPV6, IPV6_RECVPATHMTU, 0},
    {IPPROTO_IPV6, IPV6_RECVFRAGSIZE, 0},
    {IPPROTO_IPV6, IPV6_DONTFRAG, 0},
    {IPPROTO_IPV6, IPV6_FREEBIND, 0},
    {IPPROTO_IPV6, IPV6_TRANSPARENT, 0},
    {IPPROTO_IPV6, IPV6_MINHOPCOUNT, 0},
    {IPPROTO_IPV6, IPV6_MTU_DISCOVER, 1},
    {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1},
    {IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1},
    {IPPROTO_IPV6, IPV6_MULTICAST_ALL, 1},
    {IPPROTO_IPV6, IPV6_MULTICAST_IF, 0},
    {IPPROTO_IPV6, IPV6_UNICAST_IF, 0},
    {IPPROTO_TCP, TCP_NODELAY, 0},
    {IPPROTO_TCP, TCP_CORK, 0},
    {IPPROTO_TCP, TCP_KEEPIDLE, 7200},
    {IPPROTO_TCP, TCP_KEEPINTVL, 75},
    {IPPROTO_TCP, TCP_KEEPCNT, 9},
    {IPPROTO_TCP, TCP_SYNCNT, 6},
    {IPPROTO_TCP, TCP_LINGER2, 60},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, 0},
    {IPPROTO_TCP, TCP_QUICKACK, 1},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, 0},
    {IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 0},
    {IPPROTO_TCP, TCP_FASTOPEN, 0},
    {IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 0},
    {IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 0},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0},
    {IPPROTO_TCP, TCP_SAVE_SYN, 0},
    {IPPROTO_TCP, TCP_INQ, 0},
    {IPPROTO_TCP, TCP_TX_DELAY, 0},
    {IPPROTO_TCP, TCP_CONGESTION, NEVER},
    {IPPROTO_UDP, UDP_CORK, 0},
    {IPPROTO_UDP, UDP_NO_CHECK6_TX, 0},
    {IPPROTO_UDP, UDP_NO_CHECK6_RX, 0},
    {IPPROTO_UDP, UDP_SEGMENT, 0},
    {IPPROTO_UDP, UDP_GRO, 0},
    {IPPROTO_UDPLITE, 10 /* UDPLITE_SEND_CSCOV */, 0},
    {IPPROTO_UDPLITE, 11 /* UDPLITE_RECV_CSCOV */, 0},
};

static bool is_usual(const struct known *option, const uint8_t *value, socklen_t length) {
    if (length <= sizeof(int32_t)) {
        int32_t number = 0; /* some answer a byte when that is what they were asked for */
        memcpy(&number, value, length);
        return number == option->usual || (option->usual == 0 && length == 0);
    }
    if (option->usual != 0)
        return false;
    for (socklen_t i = 0; i < length; i++)
        if (value[i])
            return false;
    return true;
}

static bool applies(const struct known *option, const struct image_socket *record) {
    if (option->level == IPPROTO_TCP)
        return record->type == SOCK_STREAM;
    if (option->level == IPPROTO_UDP || option->level == IPPROTO_UDPLITE)
        return record->type == SOCK_DGRAM && (option->level == IPPROTO_UDP || record->protocol == IPPROTO_UDPLITE);
    if (option->level == IPPROTO_IPV6)
        return record->domain == AF_INET6;
    return true; /* IPv6 sockets have IPv4's too, for addresses that are mapped */
}

static struct bunshin_error *add_option(struct buffer *list, int level, int name, const void *value, size_t length) {
    struct image_option option = {.level = level, .name = name, .length = (int32_t)length};
    if (length > sizeof option.value)
        return NULL;
    memcpy(option.value, value, length);
    return buffer_append(list, &option, sizeof option);
}

/* ---- multicast ---- */

static struct bunshin_error *try_group(int fd, int level, unsigned interface, const void *address, int family, struct buffer *ret) {
    struct {
        struct group_filter filter;
        struct sockaddr_storage more[63];
    } state = {.filter = {.gf_interface = interface, .gf_numsrc = 64}};
    if (family == AF_INET) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        memcpy(&four.sin_addr, address, 4);
        memcpy(&state.filter.gf_group, &four, sizeof four);
    } else {
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        memcpy(&six.sin6_addr, address, 16);
        memcpy(&state.filter.gf_group, &six, sizeof six);
    }
    socklen_t length = sizeof state;
    if (getsockopt(fd, level, MCAST_MSFILTER, &state, &length) != 0)
        return NULL; /* not a member */
    uint32_t kept = (uint32_t)GROUP_FILTER_SIZE(state.filter.gf_numsrc > 64 ? 64 : state.filter.gf_numsrc);
    uint32_t head[2] = {(uint32_t)level, kept};
    TRY(buffer_append(ret, head, sizeof head));
    return buffer_append(ret, &state, kept);
}

/* The groups a UDP socket has joined: of those that the namespace has joined for anybody. */
static struct bunshin_error *read_groups(struct capture *capture, int fd, int domain, struct buffer *ret) {
    struct buffer text = {0};
    unsigned interface = 0;
    struct bunshin_error *error = NULL;
    if (procfs_read(capture->init->proc, "self/net/igmp", &text))
        for (char *line = strtok((char *)text.data, "\n"); !error && line; line = strtok(NULL, "\n")) {
            uint32_t group;
            if (line[0] != '\t')
                interface = (unsigned)strtoul(line, NULL, 10);
            else if (sscanf(line, " %x", &group) == 1 && group != 0x010000e0) /* all hosts: nobody joins that */
                error = try_group(fd, IPPROTO_IP, interface, &group, AF_INET, ret);
        }
    buffer_deinit(&text);
    if (!error && domain == AF_INET6 && procfs_read(capture->init->proc, "self/net/igmp6", &text))
        for (char *line = strtok((char *)text.data, "\n"); !error && line; line = strtok(NULL, "\n")) {
            char digits[40];
            uint8_t address[16];
            if (sscanf(line, "%u %*s %32[0-9a-f]", &interface, digits) != 2 || strlen(digits) != 32)
                continue;
            for (int i = 0; i < 16; i++)
                (void)sscanf(digits + 2 * i, "%2hhx", &address[i]);
            error = try_group(fd, IPPROTO_IPV6, interface, address, AF_INET6, ret);
        }
    buffer_deinit(&text);
    return error;
}

static void join_groups(const struct rebuild *rebuild, const struct image_socket *record, int fd) {
    const uint8_t *at = IMAGE_HEAP(rebuild->image, record->more), *end = at + record->more.size;
    while (at + 8 < end) {
        uint32_t head[2];
        struct group_req request = {0};
        struct group_filter filter;
        memcpy(head, at, sizeof head);
        memcpy(&filter, at + 8, GROUP_FILTER_SIZE(0));
        request.gr_interface = filter.gf_interface;
        memcpy(&request.gr_group, &filter.gf_group, sizeof request.gr_group);
        (void)setsockopt(fd, (int)head[0], MCAST_JOIN_GROUP, &request, sizeof request);
        if (filter.gf_numsrc || filter.gf_fmode != MCAST_EXCLUDE)
            (void)setsockopt(fd, (int)head[0], MCAST_MSFILTER, at + 8, head[1]);
        at += 8 + head[1];
    }
}

/* ---- the whole ---- */

struct bunshin_error *socket_options_capture(const struct holder *holder, const struct image_socket *record, struct buffer *ret) {
    int fd = holder->copy, locks = socket_int_option(fd, SOL_SOCKET, SO_BUF_LOCK);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint8_t value[64] = {0};
        socklen_t length = sizeof value;
        if (known[i].level != SOL_SOCKET)
            length = known[i].name == IP_OPTIONS && known[i].level == IPPROTO_IP ? 40 : known[i].name == TCP_CONGESTION ? 16 : 4;
        if (!applies(&known[i], record) || getsockopt(fd, known[i].level, known[i].name, value, &length) != 0 ||
            is_usual(&known[i], value, length))
            continue;
        TRY(add_option(ret, known[i].level, known[i].name, value, length));
    }
    /* A size that the program did not set is the kernel's to choose, and to change: setting it would end that. */
    for (int which = 0; which < 2; which++)
        if (locks & (which ? RCVBUF_LOCKED : SNDBUF_LOCKED)) {
            int name = which ? SO_RCVBUF : SO_SNDBUF, size = socket_int_option(fd, SOL_SOCKET, name) / 2; /* it reports twice what was asked for */
            TRY(add_option(ret, SOL_SOCKET, name, &size, sizeof size));
        }
    socklen_t filter = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, NULL, &filter) == 0 && filter)
        return capture_refuse(holder, "a socket with a packet filter");
    if (record->type == SOCK_STREAM) {
        char name[16] = "";
        socklen_t length = sizeof name;
        if (getsockopt(fd, IPPROTO_TCP, TCP_ULP, name, &length) == 0 && length && *name && strncmp(name, "mptcp", 5) != 0)
            return capture_refuse(holder, "a TCP socket with the protocol %.10s in the kernel", name);
    }
    return NULL;
}

struct bunshin_error *socket_groups_capture(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    struct buffer groups = {0};
    struct bunshin_error *error = read_groups(capture, holder->copy, record->domain, &groups);
    if (!error && groups.size)
        error = capture_heap(capture, groups.data, groups.size, &record->more);
    buffer_deinit(&groups);
    return error;
}

/* Options that come last: see enum option_stage. */
static bool is_late(const struct image_option *option) {
    if (option->level == SOL_SOCKET)
        return option->name == SO_SNDBUF || option->name == SO_RCVBUF || option->name == SO_REUSEADDR || option->name == SO_BINDTODEVICE ||
               option->name == SO_RCVLOWAT || option->name == SO_PEEK_OFF || option->name == SO_LINGER;
    return (option->level == IPPROTO_UDP && option->name == UDP_CORK) || (option->level == IPPROTO_TCP && option->name == TCP_QUICKACK);
}

void socket_options_set(const struct rebuild *rebuild, const struct image_socket *record, int fd, enum option_stage stage) {
    const struct image_option *option = (const void *)IMAGE_HEAP(rebuild->image, record->options);
    for (size_t i = 0; i < record->options.size / sizeof *option; i++) {
        bool both = option[i].level == SOL_SOCKET && (option[i].name == SO_REUSEADDR || option[i].name == SO_BINDTODEVICE);
        if (both || is_late(&option[i]) == (stage == OPTIONS_LATE))
            (void)setsockopt(fd, option[i].level, option[i].name, option[i].value, (socklen_t)option[i].length);
    }
    if (stage == OPTIONS_EARLY && record->type == SOCK_DGRAM && record->more.size)
        join_groups(rebuild, record, fd);
}

void socket_set_buffer(int fd, int name, int size, int locks) {
    size /= 2;
    if (setsockopt(fd, SOL_SOCKET, name, &size, sizeof size) == 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locks, sizeof locks);
}
