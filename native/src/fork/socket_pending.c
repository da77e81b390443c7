/*
 * Connections that a listener has not accepted yet. No descriptor shows them, so a seal accepts them itself, in order, to
 * look into them. Nobody else can notice as long as everything is frozen; after a seal that went well the frozen listener
 * is never asked again. After one that was given up they are put back: the accepted end is dropped without a word, and its
 * client, the very socket, connects once more and sends again what it had sent.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fork/socket.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif

static struct pending *list; /* of the seal at hand; pid 1 has one at a time */
static size_t count;

struct pending *pending_list(size_t *ret_count) {
    *ret_count = count;
    return list;
}

struct bunshin_error *pending_take(int32_t description, int listener) {
    struct pollfd ask = {.fd = listener, .events = POLLIN};
    while (poll(&ask, 1, 0) == 1 && ask.revents & POLLIN) {
        struct sockaddr_storage address = {0};
        socklen_t length = sizeof address;
        struct pending *grown = realloc(list, (count + 1) * sizeof *grown);
        if (!grown)
            return bunshin_error_no_memory();
        list = grown;
        int accepted = accept4(listener, (struct sockaddr *)&address, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (accepted < 0)
            return bunshin_error_os("cannot look at a connection that is not accepted yet");
        list[count++] = (struct pending){.listener = fcntl(listener, F_DUPFD_CLOEXEC, 3),
                                         .accepted = accepted,
                                         .listener_description = description,
                                         .client_description = IMAGE_NONE,
                                         .client = -1,
                                         .client_name = endpoint_of(&address, length)};
        struct sockaddr_storage own = {0};
        length = sizeof own;
        if (getsockname(accepted, (struct sockaddr *)&own, &length) != 0)
            return bunshin_error_os("cannot look at a connection that is not accepted yet");
        list[count - 1].name = endpoint_of(&own, length);
    }
    return NULL;
}

struct room room_make(int listener, uint64_t bytes) {
    struct room room = {-1, 0, 0};
    if (bytes < 32768)
        return room;
    room = (struct room){listener, socket_int_option(listener, SOL_SOCKET, SO_RCVBUF), socket_int_option(listener, SOL_SOCKET, SO_BUF_LOCK)};
    /* That so much is wanted at once makes the kernel grow the buffer, further than its size could be set. */
    int low = socket_int_option(listener, SOL_SOCKET, SO_RCVLOWAT), much = bytes > 1 << 27 ? 1 << 28 : (int)bytes * 2;
    (void)setsockopt(listener, SOL_SOCKET, SO_BUF_LOCK, &(int){0}, sizeof(int));
    (void)setsockopt(listener, SOL_SOCKET, SO_RCVLOWAT, &much, sizeof much);
    (void)setsockopt(listener, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    return room;
}

void room_end(const struct room *room) {
    if (room->fd >= 0)
        socket_set_buffer(room->fd, SO_RCVBUF, room->size, room->locks);
}

/* ---- putting back ---- */

/* Everything that the client has sent and that is not confirmed is sent once more, after what was. */
static void reconnect(struct pending *pending) {
    int fd = pending->client, reuse = 0, flags = 0, queue = TCP_SEND_QUEUE, waiting = 0;
    uint8_t *unsent = NULL;
    ssize_t left = 0;
    bool temporary = fd < 0;
    struct sockaddr_storage own = {0}, there = {0}, nobody = {.ss_family = AF_UNSPEC};
    socklen_t own_length = sizeof own, there_length = 0;
    struct linger at_once = {1, 0};
    uint32_t sent_to = 0;
    if (temporary) {
        /* What is left of the client goes with the accepted end: it is told a reset. */
        (void)setsockopt(pending->accepted, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
        int domain = memcmp(pending->client_name.address, mapped, sizeof mapped) ? AF_INET6 : AF_INET;
        close(pending->accepted);
        fd = socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
        own_length = endpoint_to(&pending->client_name, domain, &own);
        there_length = endpoint_to(&pending->name, domain, &there);
        (void)tcp_repair(fd, 1);
    } else {
        int domain = socket_int_option(fd, SOL_SOCKET, SO_DOMAIN);
        there_length = endpoint_to(&pending->name, domain, &there);
        reuse = socket_int_option(fd, SOL_SOCKET, SO_REUSEADDR);
        (void)getsockname(fd, (struct sockaddr *)&own, &own_length);
        (void)ioctl(fd, TIOCOUTQ, &waiting);
        (void)tcp_repair(fd, 1);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof queue);
        sent_to = (uint32_t)socket_int_option(fd, IPPROTO_TCP, TCP_QUEUE_SEQ) - (pending->end.fin_received ? 1 : 0);
        unsent = malloc((size_t)waiting + 1);
        left = unsent && waiting > 0 ? recv(fd, unsent, (size_t)waiting, MSG_PEEK | MSG_DONTWAIT) : 0;
        (void)tcp_repair(pending->accepted, 1);
        close(pending->accepted); /* in repair: without a word */
        (void)connect(fd, (struct sockaddr *)&nobody, sizeof nobody);
        (void)socket_int_option(fd, SOL_SOCKET, SO_ERROR); /* what was cut off here is ours */
        flags = fcntl(fd, F_GETFL);
        (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    }
    (void)bind(fd, (struct sockaddr *)&own, own_length); /* refused where it still has its port: the program had chosen it */
    (void)tcp_repair(fd, -1);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    struct room room = room_make(pending->listener, pending->size);
    (void)connect(fd, (struct sockaddr *)&there, there_length);
    room_end(&room);
    bunshin_error_destroy(socket_send_all(fd, pending->data, pending->size));
    if (pending->reset)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ssize_t more = temporary ? 0 : (ssize_t)(sent_to - pending->end.received_to); /* the rest has been received */
    if (more > 0 && more <= left)
        bunshin_error_destroy(socket_send_all(fd, unsent + (left - more), (uint64_t)more));
    if (pending->end.fin_received && !temporary)
        (void)shutdown(fd, SHUT_WR);
    if (!temporary)
        (void)fcntl(fd, F_SETFL, flags);
    close(fd);
    free(unsent);
}

static void forget(bool put_back) {
    for (size_t i = 0; i < count; i++) {
        if (put_back)
            reconnect(&list[i]);
        close(list[i].listener);
        free(list[i].data);
    }
    free(list);
    list = NULL;
    count = 0;
}

void pending_put_back(void) { forget(true); }
