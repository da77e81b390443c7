/*
 * TCP, captured: what belongs together, once every descriptor is known. Ends of one connection, clients of those that nobody
 * has accepted yet, ends whose other end was closed; and what is in their streams.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <fcntl.h>
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

static const struct listed *find_listed(const struct buffer *list, const struct endpoint *here, const struct endpoint *there) {
    const struct listed *entry = (const void *)list->data;
    for (size_t i = 0; i < list->size / sizeof *entry; i++)
        if (endpoint_same(&entry[i].here, here) && endpoint_same(&entry[i].there, there))
            return &entry[i];
    return NULL;
}

struct known_end {
    int32_t description;
    int fd;
    struct endpoint here, there;
    struct known_end *peer;
    struct pending *pending; /* in whose place it is the client */
};

static struct image_socket *socket_at(struct capture *capture, int32_t description) {
    const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, description);
    return CAPTURE_AT(capture, TABLE_SOCKET, struct image_socket, record->object);
}

/* Records in the heap move when it grows: they are copied out, and put back. */
static struct tcp_end end_at(const struct capture *capture, const struct image_socket *socket) {
    struct tcp_end end;
    memcpy(&end, capture->table[TABLE_HEAP].data + socket->more.offset, sizeof end);
    return end;
}

static void put_end(struct capture *capture, const struct image_socket *socket, const struct tcp_end *end) {
    memcpy(capture->table[TABLE_HEAP].data + socket->more.offset, end, sizeof *end);
}

/*
 * A peer that was closed while some of its data had no room here: nobody can read that from it. But room can be made: a
 * larger window, and the kernel brings the rest over.
 */
/* How far a receive buffer may grow is a setting of the network namespace, and that is ours. Returns a descriptor, or -1. */
static int raise_most(const struct init *init, char usual[64]) {
    char text[64];
    int low, start, base = init->settings.network_fd, fd = base < 0 ? -1 : openat(base, "tcp_rmem", O_RDWR | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : pread(fd, usual, 63, 0);
    usual[got > 0 ? got : 0] = '\0';
    if (got > 0 && sscanf(usual, "%d %d", &low, &start) == 2) {
        int length = snprintf(text, sizeof text, "%d %d %d", low, start, 1 << 30);
        if (pwrite(fd, text, (size_t)length, 0) == length)
            return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static struct bunshin_error *let_rest_arrive(struct capture *capture, int32_t description, int fd) {
    int low = socket_int_option(fd, SOL_SOCKET, SO_RCVLOWAT), much = 1 << 28;
    int reuse = socket_int_option(fd, SOL_SOCKET, SO_REUSEADDR), size = socket_int_option(fd, SOL_SOCKET, SO_RCVBUF);
    int locks = socket_int_option(fd, SOL_SOCKET, SO_BUF_LOCK);
    char usual[64];
    int most = raise_most(capture->init, usual);
    if (locks & 2)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &much, sizeof much);
    else
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &much, sizeof much);
    unsigned state = 0;
    bool open = true;
    for (int tries = 0; open && tries < 2000; tries++) {
        if (tries % 20 == 0 && tcp_repair(fd, 1)) { /* leaving repair mode tells the other end the window */
            tcp_repair(fd, 0);
            (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
        }
        /* Whoever reads tells the other end of the room there is now, even without taking anything: else that asks by itself,
         * less and less often. */
        char byte;
        (void)!recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        state = tcp_state_of(fd);
        open = state == STATE_ESTABLISHED || state == STATE_FIN_WAIT1 || state == STATE_FIN_WAIT2;
        if (open && tries)
            usleep(1000);
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    if (most >= 0) {
        (void)!pwrite(most, usual, strlen(usual), 0);
        close(most);
    }
    if (locks & 2)
        socket_set_buffer(fd, SO_RCVBUF, size, locks);
    if (open)
        return inet_refuse(capture, description, "a TCP connection whose other end was closed with data for which there is no room here");
    return NULL;
}

/* What a client has sent that nobody has accepted yet. */
static struct bunshin_error *read_accepted(struct capture *capture, struct pending *pending) {
    unsigned state = tcp_state_of(pending->accepted);
    struct span queue = {0};
    struct pollfd ask = {.fd = pending->accepted, .events = POLLPRI};
    int waiting = 0;
    size_t got;
    if (poll(&ask, 1, 0) == 1 && ask.revents & POLLPRI)
        return inet_refuse(capture, pending->listener_description, "a TCP listener with a connection with an urgent byte, not accepted yet");
    if (pending->client < 0 && state == STATE_ESTABLISHED) {
        TRY(let_rest_arrive(capture, pending->listener_description, pending->accepted));
        state = tcp_state_of(pending->accepted);
    }
    if (state == STATE_CLOSE) {
        pending->reset = true;
        (void)ioctl(pending->accepted, FIONREAD, &waiting);
        TRY(tcp_peek(capture, pending->accepted, (size_t)waiting, &queue, &got));
    } else {
        tcp_read_state(pending->accepted, state, &pending->end);
        TRY(tcp_read_receiving(capture, pending->listener_description, pending->accepted, &pending->end, &queue));
    }
    if (!(pending->data = malloc(queue.size + 1)))
        return bunshin_error_no_memory();
    memcpy(pending->data, capture->table[TABLE_HEAP].data + queue.offset, queue.size);
    pending->size = queue.size;
    return NULL;
}

/* An end whose other end no descriptor shows: closed there, or not accepted there yet. */
static struct bunshin_error *find_lonely(struct capture *capture, struct known_end *known, struct buffer *list) {
    struct image_socket *socket = socket_at(capture, known->description);
    if (!list->size)
        TRY(tcp_list(capture, list));
    const struct listed *other = find_listed(list, &known->there, &known->here);
    if (other && other->state == STATE_SYN_RECV) { /* its listener waits for data, or for room */
        socket->state = SOCKET_PENDING;
        return NULL;
    }
    socket->state = SOCKET_ORPHAN;
    if (other && (other->state == STATE_ESTABLISHED || other->state == STATE_CLOSE_WAIT))
        return inet_refuse(capture, known->description, "a TCP connection whose other end nobody in the workspace holds");
    if (!other || (other->state != STATE_FIN_WAIT1 && other->state != STATE_LAST_ACK && other->state != STATE_CLOSING))
        return NULL;
    TRY(let_rest_arrive(capture, known->description, known->fd));
    if (tcp_state_of(known->fd) != STATE_CLOSE)
        return NULL;
    struct span queue;
    int waiting = 0;
    size_t got;
    (void)ioctl(known->fd, FIONREAD, &waiting);
    TRY(tcp_peek(capture, known->fd, (size_t)waiting, &queue, &got));
    socket = socket_at(capture, known->description);
    socket->state = SOCKET_FINISHED;
    socket->queue = queue;
    return NULL;
}

/* What the other end has received already, and only not confirmed, is in its queue: not to be sent twice. */
static struct bunshin_error *trim(struct capture *capture, int32_t description, uint32_t sent_to, uint32_t received_to) {
    struct image_socket *socket = socket_at(capture, description);
    uint32_t under_way = sent_to - received_to;
    if (under_way > socket->unsent.size)
        return inet_refuse(capture, description, "a TCP connection whose ends do not agree (%u bytes under way, %llu known)", under_way,
                           (unsigned long long)socket->unsent.size);
    socket->unsent.offset += socket->unsent.size - under_way;
    socket->unsent.size = under_way;
    return NULL;
}

static struct bunshin_error *write_pending(struct capture *capture, struct known_end *ends, size_t count) {
    size_t taken;
    struct pending *pending = pending_list(&taken);
    for (size_t from = 0, to; from < taken; from = to) {
        struct buffer list = {0};
        struct bunshin_error *error = NULL;
        for (to = from; !error && to < taken && pending[to].listener_description == pending[from].listener_description; to++) {
            struct tcp_pending record = {.client = pending[to].client_description, .client_name = pending[to].client_name, .server_name = pending[to].name, .client_shut = pending[to].reset ? PENDING_RESET : pending[to].end.fin_received ? PENDING_SHUT : 0};
            error = capture_heap(capture, pending[to].data, pending[to].size, &record.queue);
            if (!error)
                error = buffer_append(&list, &record, sizeof record);
        }
        struct span place = {0};
        if (!error)
            error = capture_heap(capture, list.data, list.size, &place);
        buffer_deinit(&list);
        TRY(error);
        socket_at(capture, pending[from].listener_description)->more = place;
    }
    for (size_t i = 0; i < count; i++)
        if (ends[i].pending)
            TRY(trim(capture, ends[i].description, end_at(capture, socket_at(capture, ends[i].description)).sent_to, ends[i].pending->end.received_to));
    return NULL;
}

/* Before anything may fail: who is put back must be known with its client. */
static void match_pending(struct known_end *ends, size_t count) {
    size_t taken;
    struct pending *pending = pending_list(&taken);
    for (size_t i = 0; taken && i < count; i++)
        for (size_t j = 0; j < taken && !ends[i].pending; j++)
            if (endpoint_same(&ends[i].here, &pending[j].client_name) && endpoint_same(&ends[i].there, &pending[j].name)) {
                ends[i].pending = &pending[j];
                pending[j].client_description = ends[i].description;
                pending[j].client = fcntl(ends[i].fd, F_DUPFD_CLOEXEC, 3);
            }
}

static struct bunshin_error *connect_ends(struct capture *capture, struct known_end *ends, size_t count) {
    struct buffer list = {0};
    struct bunshin_error *error = NULL;
    size_t taken;
    struct pending *pending = pending_list(&taken);
    for (size_t i = 0; !error && i < taken; i++)
        error = read_accepted(capture, &pending[i]);
    for (size_t i = 0; !error && i < count; i++) {
        for (size_t j = 0; j < count && !ends[i].peer; j++)
            if (endpoint_same(&ends[i].here, &ends[j].there) && endpoint_same(&ends[i].there, &ends[j].here))
                ends[i].peer = &ends[j];
        if (ends[i].peer == &ends[i])
            return buffer_deinit(&list), inet_refuse(capture, ends[i].description, "a TCP socket that is connected to itself");
        struct image_socket *socket = socket_at(capture, ends[i].description);
        socket->peer = ends[i].peer ? ends[i].peer->description : IMAGE_NONE;
        if (ends[i].pending)
            socket->state = SOCKET_PENDING;
        else if (!ends[i].peer)
            error = find_lonely(capture, &ends[i], &list);
    }
    buffer_deinit(&list);
    for (size_t i = 0; !error && i < count; i++) {
        struct image_socket *socket = socket_at(capture, ends[i].description);
        if (socket->state == SOCKET_FINISHED)
            continue;
        struct tcp_end end = end_at(capture, socket);
        struct span queue;
        error = tcp_read_receiving(capture, ends[i].description, ends[i].fd, &end, &queue);
        socket = socket_at(capture, ends[i].description);
        put_end(capture, socket, &end);
        socket->queue = queue;
    }
    for (size_t i = 0; !error && i < count; i++)
        if (ends[i].peer)
            error = trim(capture, ends[i].description, end_at(capture, socket_at(capture, ends[i].description)).sent_to,
                         end_at(capture, socket_at(capture, ends[i].peer->description)).received_to);
    return error ? error : write_pending(capture, ends, count);
}

struct bunshin_error *tcp_connect_all(struct capture *capture) {
    if (capture->init->settings.network_host)
        return NULL; /* the others are outside */
    size_t count = 0;
    bool listens = false;
    int32_t descriptions = CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description);
    struct known_end *ends = NULL;
    struct bunshin_error *error = NULL;
    for (int32_t i = 0; !error && i < descriptions; i++) {
        const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i);
        if (record->kind != KIND_SOCKET)
            continue;
        struct image_socket *socket = socket_at(capture, i);
        const struct described *described = socket->domain != AF_UNIX && socket->type == SOCK_STREAM ? described_find(capture, i) : NULL;
        if (!described || (socket->domain != AF_INET && socket->domain != AF_INET6))
            continue;
        listens |= socket->state == SOCKET_LISTENING;
        if (socket->state != SOCKET_CONNECTED)
            continue;
        struct known_end *grown = count & (count - 1) ? ends : realloc(ends, (count ? count * 2 : 1) * sizeof *grown); /* at powers of two */
        if (!grown) {
            error = bunshin_error_no_memory();
            break;
        }
        ends = grown;
        const uint8_t *heap = capture->table[TABLE_HEAP].data;
        ends[count++] = (struct known_end){.description = i, .fd = described->copy, .here = endpoint_of(heap + socket->name.offset, socket->name.size),
                                           .there = endpoint_of(heap + socket->peer_name.offset, socket->peer_name.size)};
        struct tcp_end end = end_at(capture, socket);
        struct span unsent = {0};
        error = tcp_read_sending(capture, i, described->copy, &end, &unsent);
        socket = socket_at(capture, i);
        socket->unsent = unsent;
        put_end(capture, socket, &end);
    }
    for (int32_t i = 0; !error && listens && i < descriptions; i++) {
        const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i);
        const struct image_socket *socket = record->kind == KIND_SOCKET ? socket_at(capture, i) : NULL;
        const struct described *described = socket && socket->state == SOCKET_LISTENING && socket->domain != AF_UNIX ? described_find(capture, i) : NULL;
        if (described)
            error = pending_take(i, described->copy);
    }
    size_t taken;
    (void)pending_list(&taken);
    match_pending(ends, count);
    if (!error && (count || taken))
        error = connect_ends(capture, ends, count);
    free(ends);
    return error;
}
