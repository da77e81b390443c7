/*
 * TCP, captured. Both ends of a connection are in the workspace; each is read on its own, in repair mode, which shows where
 * its streams stand and what is not confirmed yet. Sending sides are read before receiving ones: what was confirmed before
 * is then among what has been received, whatever the kernel delivers in between.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
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

enum tcp_state { ESTABLISHED = 1, SYN_SENT, SYN_RECV, FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, CLOSING };

/* Off is -1: 0 would send the other end something. */
bool tcp_repair(int fd, int value) { return setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &value, sizeof value) == 0; }

static struct tcp_info info_of(int fd) {
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    (void)getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
    return info;
}

/* ---- one end ---- */

/* Looks at exactly so many bytes of what can be read: a byte more would take a pending error. */
static struct bunshin_error *peek(struct capture *capture, int fd, size_t size, struct span *ret, size_t *ret_got) {
    *ret_got = 0;
    *ret = (struct span){0};
    if (!size)
        return NULL;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return bunshin_error_no_memory();
    int offset = -1, zero = 0;
    socklen_t length = sizeof offset;
    bool moved = getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &length) == 0 && offset >= 0;
    if (moved)
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &zero, sizeof zero);
    ssize_t got = recv(fd, bytes, size, MSG_PEEK | MSG_DONTWAIT);
    if (moved)
        (void)setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset);
    *ret_got = got > 0 ? (size_t)got : 0;
    struct bunshin_error *error = capture_heap(capture, bytes, *ret_got, ret);
    free(bytes);
    return error;
}

void tcp_read_state(int fd, unsigned state, struct tcp_end *ret) {
    struct tcp_info info = info_of(fd);
    ret->fin_sent = state == FIN_WAIT1 || state == FIN_WAIT2 || state == CLOSING || state == LAST_ACK;
    ret->fin_received = state == CLOSE_WAIT || state == LAST_ACK || state == CLOSING;
    ret->options = info.tcpi_options & (TCPI_OPT_TIMESTAMPS | TCPI_OPT_SACK | TCPI_OPT_WSCALE);
    ret->send_scale = info.tcpi_snd_wscale;
    ret->receive_scale = info.tcpi_rcv_wscale;
    ret->locks = socket_int_option(fd, SOL_SOCKET, SO_BUF_LOCK);
}

static uint32_t sequence(int fd, int queue) {
    (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof queue);
    return (uint32_t)socket_int_option(fd, IPPROTO_TCP, TCP_QUEUE_SEQ);
}

/* Ends repair mode, which goes on as before but forgets SO_REUSEADDR. */
static void leave(int fd, int reuse) {
    int neither = TCP_NO_QUEUE;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &neither, sizeof neither);
    tcp_repair(fd, -1);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
}

struct bunshin_error *tcp_read_sending(struct capture *capture, int32_t description, int fd, struct tcp_end *end, struct span *ret) {
    int waiting = 0, reuse = socket_int_option(fd, SOL_SOCKET, SO_REUSEADDR);
    size_t got = 0;
    (void)ioctl(fd, SIOCOUTQ, &waiting);
    if (!tcp_repair(fd, 1))
        return inet_refuse(capture, description, "a TCP connection that cannot be looked into");
    end->sent_to = sequence(fd, TCP_SEND_QUEUE) - end->fin_sent;
    end->segment = (uint32_t)socket_int_option(fd, IPPROTO_TCP, TCP_MAXSEG);
    struct bunshin_error *error = waiting > 0 ? peek(capture, fd, (size_t)waiting, ret, &got) : NULL;
    leave(fd, reuse);
    end->send_buffer = socket_int_option(fd, SOL_SOCKET, SO_SNDBUF);
    return error;
}

struct bunshin_error *tcp_read_receiving(struct capture *capture, int32_t description, int fd, struct tcp_end *end, struct span *ret) {
    int reuse = socket_int_option(fd, SOL_SOCKET, SO_REUSEADDR);
    for (int tries = 0;; tries++) {
        int waiting = 0;
        size_t got;
        struct tcp_repair_window window = {0};
        socklen_t length = sizeof window;
        if (!tcp_repair(fd, 1))
            return inet_refuse(capture, description, "a TCP connection that cannot be looked into");
        uint32_t received = sequence(fd, TCP_RECV_QUEUE);
        (void)getsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &window, &length);
        leave(fd, reuse);
        unsigned state = info_of(fd).tcpi_state;
        end->fin_received = state == CLOSE_WAIT || state == LAST_ACK || state == CLOSING;
        (void)ioctl(fd, FIONREAD, &waiting);
        TRY(peek(capture, fd, (size_t)waiting, ret, &got));
        (void)tcp_repair(fd, 1);
        uint32_t after = sequence(fd, TCP_RECV_QUEUE);
        leave(fd, reuse);
        if (after == received && got == (size_t)waiting) {
            end->received_to = received - end->fin_received;
            end->window = window.rcv_wup + window.rcv_wnd - received;
            if (end->window > 1u << 30)
                end->window = 0;
            break;
        }
        if (tries == 20)
            return inet_refuse(capture, description, "a TCP connection whose data does not stand still (%d bytes, %zu read)", waiting, got);
    }
    end->receive_buffer = socket_int_option(fd, SOL_SOCKET, SO_RCVBUF);
    return NULL;
}

/* ---- what the kernel lists ---- */

struct listed { /* of /proc/net/tcp and tcp6 */
    struct endpoint here, there;
    unsigned state;
    uint64_t inode;
};

static struct bunshin_error *list_sockets(struct capture *capture, struct buffer *ret) {
    static const char *const names[] = {"self/net/tcp", "self/net/tcp6"};
    struct buffer text = {0};
    struct bunshin_error *error = NULL;
    for (int six = 0; !error && six < 2; six++) {
        if (!procfs_read(capture->init->proc, names[six], &text))
            continue;
        for (char *line = strtok((char *)text.data, "\n"); !error && line; line = strtok(NULL, "\n")) {
            char address[2][33];
            unsigned port[2], state;
            unsigned long inode = 0;
            if (sscanf(line, " %*d: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", address[0], &port[0], address[1],
                       &port[1], &state, &inode) < 5)
                continue;
            struct listed entry = {.state = state, .inode = inode};
            for (int side = 0; side < 2; side++) {
                struct endpoint *end = side ? &entry.there : &entry.here;
                uint8_t *at = end->address;
                if (!six) {
                    at[10] = at[11] = 0xff;
                    at += 12;
                }
                for (const char *digits = address[side]; *digits; digits += 8, at += 4) {
                    uint32_t word;
                    (void)sscanf(digits, "%8x", &word);
                    memcpy(at, &word, sizeof word);
                }
                end->port = htons((uint16_t)port[side]);
            }
            error = buffer_append(ret, &entry, sizeof entry);
        }
        buffer_deinit(&text);
    }
    return error;
}

static const struct listed *find_listed(const struct buffer *list, const struct endpoint *here, const struct endpoint *there) {
    const struct listed *entry = (const void *)list->data;
    for (size_t i = 0; i < list->size / sizeof *entry; i++)
        if (endpoint_same(&entry[i].here, here) && endpoint_same(&entry[i].there, there))
            return &entry[i];
    return NULL;
}

/* ---- capture, descriptor by descriptor ---- */

/* The address that a connection is being made to: getpeername() does not tell yet. */
static struct bunshin_error *read_destination(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    struct buffer list = {0};
    struct stat info;
    struct bunshin_error *error = fstat(holder->copy, &info) == 0 ? list_sockets(capture, &list) : bunshin_error_os("cannot look at a socket");
    const struct listed *entry = (const void *)list.data;
    for (size_t i = 0; !error && i < list.size / sizeof *entry; i++)
        if (entry[i].inode == info.st_ino) {
            struct sockaddr_storage address;
            socklen_t length = endpoint_to(&entry[i].there, record->domain, &address);
            error = capture_heap(capture, &address, length, &record->peer_name);
        }
    buffer_deinit(&list);
    return error || record->peer_name.size ? error : capture_refuse(holder, "a TCP connection that is being made to nobody knows whom");
}

struct bunshin_error *tcp_capture(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    struct tcp_info info = info_of(holder->copy);
    struct tcp_end end = {0};
    struct pollfd ask = {.fd = holder->copy, .events = POLLIN | POLLPRI | POLLRDHUP};
    if (record->state == SOCKET_LISTENING) {
        record->backlog = (int32_t)info.tcpi_sacked;
        return NULL;
    }
    if (poll(&ask, 1, 0) < 0)
        return bunshin_error_os("cannot look at a TCP socket");
    if (ask.revents & POLLPRI && info.tcpi_state != SYN_SENT)
        return capture_refuse(holder, "a TCP connection with an urgent byte under way");
    switch (info.tcpi_state) {
    case CLOSE: {
        int waiting = 0;
        size_t got;
        if (!(ask.revents & POLLRDHUP))
            return NULL; /* never connected */
        record->state = ask.revents & POLLERR ? SOCKET_RESET : SOCKET_FINISHED;
        /* One that never was a connection has nothing confirmed, nothing received, and nothing agreed upon. */
        if (!info.tcpi_bytes_acked && !info.tcpi_bytes_received && !(info.tcpi_options & (TCPI_OPT_TIMESTAMPS | TCPI_OPT_SACK | TCPI_OPT_WSCALE))) {
            record->state = ask.revents & POLLERR ? SOCKET_REFUSED : SOCKET_REFUSED_TOLD;
            return NULL;
        }
        (void)ioctl(holder->copy, FIONREAD, &waiting);
        return peek(capture, holder->copy, (size_t)waiting, &record->queue, &got);
    }
    case SYN_SENT:
        record->state = SOCKET_CONNECTING;
        return read_destination(capture, holder, record);
    case ESTABLISHED:
    case FIN_WAIT1:
    case FIN_WAIT2:
    case CLOSE_WAIT:
    case LAST_ACK:
    case CLOSING:
        break;
    default:
        return capture_refuse(holder, "a TCP connection in state %u", info.tcpi_state);
    }
    if (ask.revents & POLLERR)
        return capture_refuse(holder, "a TCP connection with an error not read yet");
    record->state = SOCKET_CONNECTED; /* its streams are read when all are known */
    tcp_read_state(holder->copy, info.tcpi_state, &end);
    end.shut_reading = ask.revents & POLLRDHUP && !end.fin_received;
    return capture_heap(capture, &end, sizeof end, &record->more);
}

struct bunshin_error *tcp_capture_outside(struct image_socket *record, int fd) {
    struct tcp_info info = info_of(fd);
    if (record->state == SOCKET_LISTENING)
        record->backlog = (int32_t)info.tcpi_sacked;
    else if (info.tcpi_state == SYN_SENT)
        record->state = SOCKET_CONNECTING;
    else if (info.tcpi_state != CLOSE)
        record->state = SOCKET_CONNECTED;
    else {
        struct pollfd ask = {.fd = fd, .events = POLLRDHUP};
        if (poll(&ask, 1, 0) < 0)
            return bunshin_error_os("cannot look at a TCP socket");
        record->state = ask.revents & POLLRDHUP ? SOCKET_CONNECTED : SOCKET_IDLE;
    }
    return NULL;
}

/* ---- capture, once all are known ---- */

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
static struct bunshin_error *let_rest_arrive(struct capture *capture, int32_t description, int fd) {
    int low = socket_int_option(fd, SOL_SOCKET, SO_RCVLOWAT), much = 1 << 28;
    int reuse = socket_int_option(fd, SOL_SOCKET, SO_REUSEADDR), size = socket_int_option(fd, SOL_SOCKET, SO_RCVBUF);
    int locks = socket_int_option(fd, SOL_SOCKET, SO_BUF_LOCK);
    if (locks & 2)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &much, sizeof much);
    else
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &much, sizeof much);
    unsigned state = 0;
    bool open = true;
    for (int tries = 0; open && tries < 300; tries++) {
        if (tries % 20 == 0 && tcp_repair(fd, 1)) { /* leaving repair mode tells the other end the window */
            tcp_repair(fd, 0);
            (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
        }
        state = info_of(fd).tcpi_state;
        open = state == ESTABLISHED || state == FIN_WAIT1 || state == FIN_WAIT2;
        if (open && tries)
            usleep(1000);
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    if (locks & 2)
        socket_set_buffer(fd, SO_RCVBUF, size, locks);
    if (open)
        return inet_refuse(capture, description, "a TCP connection whose other end was closed with data for which there is no room here");
    return NULL;
}

/* What a client has sent that nobody has accepted yet. */
static struct bunshin_error *read_accepted(struct capture *capture, struct pending *pending) {
    unsigned state = info_of(pending->accepted).tcpi_state;
    struct span queue = {0};
    struct pollfd ask = {.fd = pending->accepted, .events = POLLPRI};
    int waiting = 0;
    size_t got;
    if (poll(&ask, 1, 0) == 1 && ask.revents & POLLPRI)
        return inet_refuse(capture, pending->listener_description, "a TCP listener with a connection with an urgent byte, not accepted yet");
    if (pending->client < 0 && state == ESTABLISHED) {
        TRY(let_rest_arrive(capture, pending->listener_description, pending->accepted));
        state = info_of(pending->accepted).tcpi_state;
    }
    if (state == CLOSE) {
        pending->reset = true;
        (void)ioctl(pending->accepted, FIONREAD, &waiting);
        TRY(peek(capture, pending->accepted, (size_t)waiting, &queue, &got));
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
        TRY(list_sockets(capture, list));
    const struct listed *other = find_listed(list, &known->there, &known->here);
    if (other && other->state == SYN_RECV) { /* its listener waits for data, or for room */
        socket->state = SOCKET_PENDING;
        return NULL;
    }
    socket->state = SOCKET_ORPHAN;
    if (other && (other->state == ESTABLISHED || other->state == CLOSE_WAIT))
        return inet_refuse(capture, known->description, "a TCP connection whose other end nobody in the workspace holds");
    if (!other || (other->state != FIN_WAIT1 && other->state != LAST_ACK && other->state != CLOSING))
        return NULL;
    TRY(let_rest_arrive(capture, known->description, known->fd));
    if (info_of(known->fd).tcpi_state != CLOSE)
        return NULL;
    struct span queue;
    int waiting = 0;
    size_t got;
    (void)ioctl(known->fd, FIONREAD, &waiting);
    TRY(peek(capture, known->fd, (size_t)waiting, &queue, &got));
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
