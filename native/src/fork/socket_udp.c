/*
 * UDP. What waits in a queue is sent again, datagram by datagram, from sockets with the addresses it came from: while each
 * socket has no port but one that the kernel chose for the moment, so that nobody else can get what is meant for it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fork/socket.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#define MEMINFO_DROPS 8
#define DATAGRAM_MOST 65536

struct datagram { /* in a queue; its bytes follow, up to a multiple of 8 */
    uint32_t size, segment; /* segment: of several that came as one (UDP_GRO), 0 */
    struct endpoint source, destination;
    uint8_t traffic, hops;
    uint8_t pad[2];
};

/* ---- capture ---- */

/* What the kernel tells with each datagram, for as long as we look. */
static const int told[][2] = {
    {IPPROTO_IP, IP_PKTINFO},         {IPPROTO_IP, IP_RECVTOS},         {IPPROTO_IP, IP_RECVTTL},
    {IPPROTO_IPV6, IPV6_RECVPKTINFO}, {IPPROTO_IPV6, IPV6_RECVTCLASS}, {IPPROTO_IPV6, IPV6_RECVHOPLIMIT},
};
#define TOLD_COUNT (sizeof told / sizeof *told)

static void read_control(struct msghdr *letter, struct datagram *ret) {
    for (struct cmsghdr *item = CMSG_FIRSTHDR(letter); item; item = CMSG_NXTHDR(letter, item)) {
        int number = 0;
        memcpy(&number, CMSG_DATA(item), item->cmsg_len - CMSG_LEN(0) < sizeof number ? item->cmsg_len - CMSG_LEN(0) : sizeof number);
        if (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(item), sizeof info);
            struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = info.ipi_addr};
            ret->destination = endpoint_of(&four, sizeof four);
        } else if (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(item), sizeof info);
            memcpy(ret->destination.address, &info.ipi6_addr, 16);
        } else if ((item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_TOS) || (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_TCLASS))
            ret->traffic = (uint8_t)number;
        else if ((item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_TTL) || (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_HOPLIMIT))
            ret->hops = (uint8_t)number;
        else if (item->cmsg_level == IPPROTO_UDP && item->cmsg_type == UDP_GRO)
            ret->segment = (uint32_t)number;
    }
}

static struct bunshin_error *look(const struct holder *holder, struct buffer *ret, uint32_t *ret_empty) {
    uint8_t *bytes = malloc(DATAGRAM_MOST);
    if (!bytes)
        return bunshin_error_no_memory();
    struct bunshin_error *error = NULL;
    for (;;) {
        union {
            struct cmsghdr align;
            char bytes[512];
        } control;
        struct sockaddr_storage source = {0};
        struct iovec area = {bytes, DATAGRAM_MOST};
        struct msghdr letter = {.msg_iov = &area, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control, .msg_name = &source, .msg_namelen = sizeof source};
        ssize_t got = recvmsg(holder->copy, &letter, MSG_PEEK | MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (got < 0) {
            error = bunshin_error_os("cannot look into a UDP socket's queue");
            break;
        }
        struct datagram datagram = {.size = (uint32_t)got, .source = endpoint_of(&source, letter.msg_namelen)};
        read_control(&letter, &datagram);
        *ret_empty += !got;
        error = buffer_append(ret, &datagram, sizeof datagram);
        if (!error)
            error = buffer_append(ret, bytes, (size_t)got);
        if (!error && ret->size % 8)
            error = buffer_extend(ret, 8 - ret->size % 8, NULL);
        if (error)
            break;
    }
    free(bytes);
    return error;
}

/*
 * An empty datagram can be seen by an offset only once, ever: the kernel marks it. What a seal saw that was then given up
 * is kept for the next one, which sees less; it holds as long as the queue has not changed.
 */
static struct seen {
    uint64_t inode;
    uint32_t memory, empty;
    struct buffer queue;
} *seen;
static size_t seen_count;

static struct bunshin_error *mind_empty_ones(int fd, uint32_t empty, struct buffer *queue) {
    struct stat info;
    uint32_t memory[9] = {0};
    socklen_t length = sizeof memory;
    if ((!empty && !seen_count) || fstat(fd, &info) != 0 || getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &length) != 0)
        return NULL;
    struct seen *entry = NULL;
    for (size_t i = 0; i < seen_count && !entry; i++)
        if (seen[i].inode == info.st_ino)
            entry = &seen[i];
    if (entry && entry->memory == memory[0] && entry->empty > empty) {
        queue->size = 0;
        return buffer_append(queue, entry->queue.data, entry->queue.size);
    }
    if (!empty)
        return NULL;
    if (!entry) {
        struct seen *grown = realloc(seen, (seen_count + 1) * sizeof *grown);
        if (!grown)
            return bunshin_error_no_memory();
        seen = grown;
        entry = &seen[seen_count++];
        *entry = (struct seen){.inode = info.st_ino};
    }
    entry->memory = memory[0];
    entry->empty = empty;
    entry->queue.size = 0;
    return buffer_append(&entry->queue, queue->data, queue->size);
}

struct bunshin_error *udp_capture(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    int fd = holder->copy, waiting = 0, before[TOLD_COUNT], offset = -1, zero = 0, on = 1;
    socklen_t length = sizeof offset;
    /* On the loopback nothing is under way: what a sender still answers for is a datagram that is being put together. */
    if (ioctl(fd, SIOCOUTQ, &waiting) == 0 && waiting > 0)
        return capture_refuse(holder, "a UDP socket with a datagram that is corked");
    TRY(socket_groups_capture(capture, holder, record));
    struct pollfd ask = {.fd = fd, .events = POLLIN};
    if (poll(&ask, 1, 0) < 0)
        return bunshin_error_os("cannot look at a UDP socket");
    /* An error that the program has not been told yet: on the loopback, that nobody has the port. */
    if (ask.revents & POLLERR) {
        if (socket_int_option(fd, IPPROTO_IP, IP_RECVERR) || (record->domain == AF_INET6 && socket_int_option(fd, IPPROTO_IPV6, IPV6_RECVERR)))
            return capture_refuse(holder, "a UDP socket with messages in its error queue");
        record->state = SOCKET_REFUSED;
    }
    record->shut = ask.revents & POLLRDHUP ? 1 : 0;
    if (!(ask.revents & POLLIN))
        return NULL;
    (void)getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &length);
    for (size_t i = 0; i < TOLD_COUNT; i++)
        if (told[i][0] == IPPROTO_IP || record->domain == AF_INET6) {
            before[i] = socket_int_option(fd, told[i][0], told[i][1]);
            if (!before[i])
                (void)setsockopt(fd, told[i][0], told[i][1], &on, sizeof on);
        }
    struct buffer queue = {0};
    uint32_t empty = 0;
    struct bunshin_error *error = NULL;
    if (record->state == SOCKET_REFUSED)
        error = capture_refuse(holder, "a UDP socket with both datagrams and an error not read yet");
    else if (setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &zero, sizeof zero) != 0)
        error = bunshin_error_os("cannot look into a UDP socket's queue");
    else {
        error = look(holder, &queue, &empty);
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset);
    }
    for (size_t i = 0; i < TOLD_COUNT; i++)
        if ((told[i][0] == IPPROTO_IP || record->domain == AF_INET6) && !before[i])
            (void)setsockopt(fd, told[i][0], told[i][1], &before[i], sizeof before[i]);
    if (!error)
        error = mind_empty_ones(fd, empty, &queue);
    if (!error)
        error = capture_heap(capture, queue.data, queue.size, &record->queue);
    buffer_deinit(&queue);
    return error;
}

/* ---- rebuild ---- */

/* A socket that sends as if it were who had sent before; *kept is it, and for whom, from one datagram to the next. */
static struct bunshin_error *sender_as(const struct image_socket *record, const struct datagram *datagram, int *kept, struct endpoint *kept_as) {
    if (*kept >= 0 && endpoint_same(kept_as, &datagram->source))
        return NULL;
    if (*kept >= 0)
        close(*kept);
    struct sockaddr_storage address;
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    int domain = memcmp(datagram->source.address, mapped, sizeof mapped) ? AF_INET6 : AF_INET, on = 1;
    socklen_t length = endpoint_to(&datagram->source, domain, &address);
    *kept = socket(domain, SOCK_DGRAM | SOCK_CLOEXEC, record->protocol);
    if (*kept < 0)
        return bunshin_error_os("cannot make a socket");
    *kept_as = datagram->source;
    /* An address that is not ours (any more) can be sent from all the same. */
    if (domain == AF_INET)
        (void)setsockopt(*kept, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof on);
    else
        (void)setsockopt(*kept, IPPROTO_IPV6, IPV6_TRANSPARENT, &on, sizeof on);
    (void)setsockopt(*kept, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    if (bind(*kept, (struct sockaddr *)&address, length) != 0)
        return bunshin_error_os("cannot send a datagram again from port %u", ntohs(datagram->source.port));
    return NULL;
}

static struct bunshin_error *send_again(int from, const struct datagram *datagram, const uint8_t *bytes, uint16_t port) {
    struct endpoint to = datagram->destination;
    struct sockaddr_storage address;
    int domain = socket_int_option(from, SOL_SOCKET, SO_DOMAIN), traffic = datagram->traffic, hops = datagram->hops, loopback = 1;
    to.port = port;
    socklen_t length = endpoint_to(&to, domain, &address);
    int level = domain == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    (void)setsockopt(from, level, domain == AF_INET ? IP_TOS : IPV6_TCLASS, &traffic, sizeof traffic);
    if (hops) {
        (void)setsockopt(from, level, domain == AF_INET ? IP_TTL : IPV6_UNICAST_HOPS, &hops, sizeof hops);
        (void)setsockopt(from, level, domain == AF_INET ? IP_MULTICAST_TTL : IPV6_MULTICAST_HOPS, &hops, sizeof hops);
    }
    if (domain == AF_INET && (to.address[12] & 0xf0) == 0xe0) {
        struct ip_mreqn interface = {.imr_ifindex = loopback};
        (void)setsockopt(from, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface);
    } else if (domain == AF_INET6)
        (void)setsockopt(from, IPPROTO_IPV6, IPV6_MULTICAST_IF, &loopback, sizeof loopback);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
    } control = {0};
    struct iovec area = {(void *)bytes, datagram->size};
    struct msghdr letter = {.msg_iov = &area, .msg_iovlen = 1, .msg_name = &address, .msg_namelen = length};
    if (datagram->segment && datagram->segment < datagram->size) {
        uint16_t segment = (uint16_t)datagram->segment;
        letter.msg_control = control.bytes;
        letter.msg_controllen = sizeof control;
        control.align = (struct cmsghdr){.cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT, .cmsg_len = CMSG_LEN(sizeof segment)};
        memcpy(CMSG_DATA(&control.align), &segment, sizeof segment);
    }
    if (sendmsg(from, &letter, 0) != (ssize_t)datagram->size)
        return bunshin_error_os("cannot send a datagram of %u bytes again", datagram->size);
    return NULL;
}

/* Whether something in the queue came from a port: then nobody else may have it while that is sent again. */
static bool is_source(const struct rebuild *rebuild, const struct image_socket *record, uint16_t port) {
    const uint8_t *at = IMAGE_HEAP(rebuild->image, record->queue), *end = at + record->queue.size;
    struct datagram datagram;
    for (; at + sizeof datagram <= end; at += sizeof datagram + ((datagram.size + 7) & ~7u)) {
        memcpy(&datagram, at, sizeof datagram);
        if (datagram.source.port == port)
            return true;
    }
    return false;
}

/* Gives a new socket its queue, through a port that it has for the moment. */
static struct bunshin_error *fill(struct rebuild *rebuild, const struct image_socket *record, int fd) {
    const uint8_t *at = IMAGE_HEAP(rebuild->image, record->queue), *end = at + record->queue.size;
    struct sockaddr_storage sink_name = {0}, own = {0}, nobody = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof sink_name;
    struct endpoint loopback = {.address = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}}, kept_as;
    int sink = -1, kept = -1, size = socket_int_option(fd, SOL_SOCKET, SO_RCVBUF), locks = socket_int_option(fd, SOL_SOCKET, SO_BUF_LOCK);
    if (record->domain == AF_INET6) /* this one works for sockets of IPv6 alone, too */
        loopback = (struct endpoint){.address = {[15] = 1}};
    struct bunshin_error *error = NULL;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){1 << 28}, sizeof(int)); /* as large as it gets: nothing may be dropped */
    socklen_t sink_length = endpoint_to(&loopback, record->domain, &sink_name);
    uint16_t port = 0;
    for (int tries = 0; !error && !port; tries++) {
        struct sockaddr_storage bound = {0};
        length = sizeof bound;
        sink = socket(record->domain, SOCK_DGRAM | SOCK_CLOEXEC, record->protocol);
        if (tries == 100 || sink < 0 || bind(sink, (struct sockaddr *)&sink_name, sink_length) != 0 ||
            getsockname(sink, (struct sockaddr *)&bound, &length) != 0 || sendto(fd, "", 0, 0, (struct sockaddr *)&bound, length) != 0 ||
            getsockname(fd, (struct sockaddr *)&own, &length) != 0) {
            error = bunshin_error_os("cannot give a UDP socket a port");
            break;
        }
        port = endpoint_of(&own, length).port;
        if (!is_source(rebuild, record, port) && !is_source(rebuild, record, endpoint_of(&bound, length).port))
            break;
        close(sink);
        (void)connect(fd, (struct sockaddr *)&nobody, sizeof nobody);
        sink = -1;
        port = 0;
    }
    while (!error && at + sizeof(struct datagram) <= end) {
        struct datagram datagram;
        memcpy(&datagram, at, sizeof datagram);
        at += sizeof datagram;
        error = sender_as(record, &datagram, &kept, &kept_as);
        if (!error)
            error = send_again(kept, &datagram, at, port);
        at += (datagram.size + 7) & ~7u;
    }
    uint32_t memory[9] = {0};
    length = sizeof memory;
    if (!error && getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &length) == 0 && memory[MEMINFO_DROPS])
        error = bunshin_error_new(BUNSHIN_ERROR_FORK, ENOBUFS, "cannot fill a UDP socket's queue: %u datagrams were dropped", memory[MEMINFO_DROPS]);
    /* The port that nobody asked for goes with this. */
    if (!error && connect(fd, (struct sockaddr *)&nobody, sizeof nobody) != 0)
        error = bunshin_error_os("cannot take a UDP socket's port away");
    socket_set_buffer(fd, SO_RCVBUF, size, locks);
    if (sink >= 0)
        close(sink);
    if (kept >= 0)
        close(kept);
    return error;
}

/* An error is what the answer of a machine brings that has nobody at a port: this sends the answer. */
static struct bunshin_error *refuse_again(const struct image_socket *record, int fd) {
    /* The port must be nobody's for the moment, and is: sockets are bound after this. */
    if (send(fd, "", 0, MSG_DONTWAIT) < 0 && errno != ECONNREFUSED)
        return bunshin_error_os("cannot have a UDP socket refused again");
    (void)record;
    return NULL;
}

static struct bunshin_error *bind_and_connect(struct rebuild *rebuild, const struct image_socket *record, int fd) {
    TRY(inet_bind(rebuild, record, fd));
    if (record->peer_name.size && connect(fd, (const void *)IMAGE_HEAP(rebuild->image, record->peer_name), (socklen_t)record->peer_name.size) != 0)
        return bunshin_error_os("cannot connect a UDP socket");
    if (record->state == SOCKET_REFUSED)
        TRY(refuse_again(record, fd));
    socket_options_set(rebuild, record, fd, OPTIONS_LATE);
    if (record->shut)
        (void)shutdown(fd, SHUT_RD);
    return NULL;
}

struct bunshin_error *udp_rebuild_all(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    int32_t count = (int32_t)image->table[TABLE_DESCRIPTION].count;
    /* All queues are filled before any port is taken; then those that were refused, before anybody has the port. */
    for (int pass = 0; pass < 3; pass++)
        for (int32_t i = 0; i < count; i++) {
            const struct image_description *record = IMAGE_DESCRIPTION(image, i);
            const struct image_socket *socket_record = record->kind == KIND_SOCKET ? IMAGE_SOCKET(image, record->object) : NULL;
            if (!socket_record || socket_record->domain == AF_UNIX || socket_record->type != SOCK_DGRAM)
                continue;
            if (pass == 0) {
                int fd = socket(socket_record->domain, SOCK_DGRAM | SOCK_CLOEXEC, socket_record->protocol);
                if (fd < 0)
                    return bunshin_error_os("cannot make a socket");
                socket_options_set(rebuild, socket_record, fd, OPTIONS_EARLY);
                struct bunshin_error *error = socket_record->queue.size ? fill(rebuild, socket_record, fd) : NULL;
                if (error) {
                    close(fd);
                    return error;
                }
                TRY(rebuild_place(rebuild, i, fd));
            } else if ((socket_record->state == SOCKET_REFUSED) == (pass == 1))
                TRY(bind_and_connect(rebuild, socket_record, rebuild_fd(rebuild, i)));
        }
    return NULL;
}
