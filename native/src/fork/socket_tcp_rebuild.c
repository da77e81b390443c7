/*
 * TCP, rebuilt. An end of a connection is made in repair mode: there with one step, no packet is sent, and addresses,
 * sequence numbers, windows and what waits to be read are what they were. Then both ends leave repair mode, and what had not
 * got across is sent in the ordinary way. Connections that nobody has accepted yet are made in the ordinary way, in order.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fork/socket.h"

#ifndef TCPOPT_MAXSEG
#define TCPOPT_MAXSEG 2
#define TCPOPT_WINDOW 3
#define TCPOPT_SACK_PERMITTED 4
#define TCPOPT_TIMESTAMP 8
#endif

/* ---- sizes of buffers ---- */

/*
 * What is in a socket's queues may be more than a new socket takes, and no option goes as far as the kernel's own growth
 * did. But the size that a new socket starts with is a setting of the network namespace, and that is ours.
 */
struct sizes {
    int fd[2];         /* tcp_rmem, tcp_wmem; -1: cannot be set */
    char usual[2][64]; /* as found */
    int now[2], most[2];
};

static void sizes_open(const struct rebuild *rebuild, struct sizes *ret) {
    static const char *const names[] = {"tcp_rmem", "tcp_wmem"};
    for (int which = 0; which < 2; which++) {
        int base = rebuild->init->settings.network_fd, low;
        ret->fd[which] = base < 0 ? -1 : openat(base, names[which], O_RDWR | O_CLOEXEC);
        ssize_t got = ret->fd[which] < 0 ? -1 : pread(ret->fd[which], ret->usual[which], sizeof ret->usual[which] - 1, 0);
        ret->usual[which][got > 0 ? got : 0] = '\0';
        if (sscanf(ret->usual[which], "%d %d %d", &low, &ret->now[which], &ret->most[which]) != 3)
            ret->now[which] = ret->most[which] = 1 << 30; /* nothing to be done about it */
    }
}

static void sizes_set(struct sizes *sizes, int which, int64_t size) {
    char text[64];
    if (sizes->fd[which] < 0 || size <= sizes->now[which])
        return;
    int64_t usual = size > 1 << 30 ? 1 << 30 : size;
    int length = snprintf(text, sizeof text, "4096 %lld %lld", (long long)usual, (long long)(usual > sizes->most[which] ? usual : sizes->most[which]));
    if (pwrite(sizes->fd[which], text, (size_t)length, 0) == length)
        sizes->now[which] = (int)usual;
}

static void sizes_reset(struct sizes *sizes) {
    for (int which = 0; which < 2; which++) {
        int low, usual;
        if (sizes->fd[which] < 0 || sscanf(sizes->usual[which], "%d %d", &low, &usual) != 2 || usual == sizes->now[which])
            continue;
        if (pwrite(sizes->fd[which], sizes->usual[which], strlen(sizes->usual[which]), 0) > 0)
            sizes->now[which] = usual;
    }
}

static void sizes_close(struct sizes *sizes) {
    sizes_reset(sizes);
    for (int which = 0; which < 2; which++)
        if (sizes->fd[which] >= 0)
            close(sizes->fd[which]);
}

/* Room for so much, whatever the pieces it is kept in. */
static int64_t room_for(uint64_t bytes, int had) { return bytes ? (int64_t)(bytes + bytes / 2 + 65536 > (uint64_t)had ? bytes + bytes / 2 + 65536 : (uint64_t)had) : had; }

/* ---- one end ---- */

static int new_socket(struct rebuild *rebuild, const struct image_socket *record) {
    int fd = socket(record->domain, SOCK_STREAM | SOCK_CLOEXEC, record->protocol);
    if (fd >= 0)
        socket_options_set(rebuild, record, fd, OPTIONS_EARLY);
    return fd;
}

static bool set_sequence(int fd, int queue, uint32_t number) {
    return setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof queue) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &number, sizeof number) == 0;
}

static bool set_options_of_segments(int fd, const struct tcp_end *end) {
    struct tcp_repair_opt options[4];
    int count = 0;
    if (end->segment)
        options[count++] = (struct tcp_repair_opt){TCPOPT_MAXSEG, end->segment};
    if (end->options & TCPI_OPT_WSCALE)
        options[count++] = (struct tcp_repair_opt){TCPOPT_WINDOW, end->send_scale | (uint32_t)end->receive_scale << 16};
    if (end->options & TCPI_OPT_SACK)
        options[count++] = (struct tcp_repair_opt){TCPOPT_SACK_PERMITTED, 0};
    if (end->options & TCPI_OPT_TIMESTAMPS)
        options[count++] = (struct tcp_repair_opt){TCPOPT_TIMESTAMP, 0};
    return !count || setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, options, (socklen_t)(sizeof *options * (size_t)count)) == 0;
}

/* Makes an end, in repair mode, connected, with what waits to be read. `window`: what the other end lets it send. */
static struct bunshin_error *make_end(struct rebuild *rebuild, struct sizes *sizes, const struct image_socket *record, const struct tcp_end *end,
                                      uint32_t sent_to, uint32_t window, int *ret) {
    const struct sockaddr *here = (const void *)IMAGE_HEAP(rebuild->image, record->name);
    const struct sockaddr *there = (const void *)IMAGE_HEAP(rebuild->image, record->peer_name);
    sizes_set(sizes, 0, room_for(record->queue.size, end->receive_buffer));
    sizes_set(sizes, 1, room_for(record->unsent.size, end->send_buffer));
    int fd = new_socket(rebuild, record);
    sizes_reset(sizes);
    if (fd < 0)
        return bunshin_error_os("cannot make a socket");
    *ret = fd;
    uint32_t received_from = end->received_to - (uint32_t)record->queue.size;
    if (!tcp_repair(fd, 1) || bind(fd, here, (socklen_t)record->name.size) != 0 || !set_sequence(fd, TCP_SEND_QUEUE, sent_to) ||
        !set_sequence(fd, TCP_RECV_QUEUE, received_from) || connect(fd, there, (socklen_t)record->peer_name.size) != 0 ||
        !set_options_of_segments(fd, end))
        return bunshin_error_os("cannot make a connection from port %u to port %u again", ntohs(endpoint_of(here, record->name.size).port),
                                ntohs(endpoint_of(there, record->peer_name.size).port));
    const uint8_t *data = IMAGE_HEAP(rebuild->image, record->queue);
    for (uint64_t done = 0; done < record->queue.size;) {
        uint64_t part = record->queue.size - done < 65536 ? record->queue.size - done : 65536;
        ssize_t put = send(fd, data + done, part, 0); /* in repair mode, to itself */
        if (put <= 0)
            return bunshin_error_os("cannot fill a TCP socket's queue with %llu bytes", (unsigned long long)record->queue.size);
        done += (uint64_t)put;
    }
    /* A FIN takes a number of its own: one that has come must find room again. */
    uint32_t own_window = end->window + (end->fin_received ? 2048 : 0);
    struct tcp_repair_window windows = {.snd_wl1 = end->received_to, .snd_wnd = window, .max_window = window > 65535 ? window : 65535, .rcv_wnd = own_window, .rcv_wup = end->received_to};
    if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &windows, sizeof windows) != 0)
        return bunshin_error_os("cannot set the windows of a connection");
    return NULL;
}

/* The end is alive from here on. */
static struct bunshin_error *finish_end(int fd) {
    int neither = TCP_NO_QUEUE;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &neither, sizeof neither);
    if (!tcp_repair(fd, -1))
        return bunshin_error_os("cannot bring a connection to life");
    return NULL;
}

static void set_late(struct rebuild *rebuild, const struct image_socket *record, const struct tcp_end *end, int fd) {
    /* Larger for the while: as large as it was, where that can be set; else it shrinks as the kernel sees fit. */
    if (record->queue.size && end->receive_buffer > 0 && !(end->locks & 2))
        socket_set_buffer(fd, SO_RCVBUF, end->receive_buffer, end->locks);
    if (record->unsent.size && end->send_buffer > 0 && !(end->locks & 1))
        socket_set_buffer(fd, SO_SNDBUF, end->send_buffer, end->locks);
    socket_options_set(rebuild, record, fd, OPTIONS_LATE);
}

/* ---- connections ---- */

static struct bunshin_error *make_connection(struct rebuild *rebuild, struct sizes *sizes, int32_t index, const struct image_socket *one) {
    const struct image_socket *other = one->peer == IMAGE_NONE ? NULL : IMAGE_SOCKET(rebuild->image, IMAGE_DESCRIPTION(rebuild->image, one->peer)->object);
    struct image_socket mirrored;
    struct tcp_end end[2];
    int fd[2] = {-1, -1};
    memcpy(&end[0], IMAGE_HEAP(rebuild->image, one->more), sizeof end[0]);
    if (other)
        memcpy(&end[1], IMAGE_HEAP(rebuild->image, other->more), sizeof end[1]);
    else {
        mirrored = (struct image_socket){.domain = one->domain, .type = one->type, .protocol = IPPROTO_TCP, .name = one->peer_name, .peer_name = one->name};
        end[1] = (struct tcp_end){.received_to = end[0].sent_to, .window = 65535, .segment = end[0].segment, .options = end[0].options,
                                  .send_scale = end[0].receive_scale, .receive_scale = end[0].send_scale,
                                  .fin_sent = 1, .fin_received = end[0].fin_sent};
    }
    const struct image_socket *records[2] = {one, other ? other : &mirrored};
    struct bunshin_error *error = NULL;
    for (int side = 0; !error && side < 2; side++)
        error = make_end(rebuild, sizes, records[side], &end[side], end[!side].received_to, end[!side].window + (end[!side].fin_received ? 2048 : 0), &fd[side]);
    for (int side = 0; !error && side < 2; side++)
        error = finish_end(fd[side]);
    for (int side = 0; !error && side < 2; side++)
        if (other) /* nobody would read what is sent to one that has gone */
            error = socket_send_all(fd[side], IMAGE_HEAP(rebuild->image, records[side]->unsent), records[side]->unsent.size);
    /* The side that got a FIN last was the later one to send its own: the order is that of the states. */
    for (int side = 0; !error && side < 2; side++)
        if (end[side].fin_sent && (side == 0 || other))
            (void)shutdown(fd[side], SHUT_WR);
    for (int side = 0; side < 2; side++) {
        int32_t description = side == 0 ? index : one->peer;
        if (error || description == IMAGE_NONE) {
            if (fd[side] >= 0)
                close(fd[side]); /* one that has gone says so: with a FIN, as it had */
            continue;
        }
        if (end[side].shut_reading)
            (void)shutdown(fd[side], SHUT_RD);
        set_late(rebuild, records[side], &end[side], fd[side]);
        error = rebuild_place(rebuild, description, fd[side]);
    }
    return error;
}

/* Does not wait for ever where a listener has no room. */
static bool connect_soon(int fd, const struct sockaddr_storage *there, socklen_t length) {
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    if (connect(fd, (const void *)there, length) == 0)
        return true;
    return errno == EINPROGRESS && poll(&wait, 1, 2000) == 1 && (errno = socket_int_option(fd, SOL_SOCKET, SO_ERROR)) == 0;
}

/* A connection's ordinary way: a client that connects, sends what it had sent, and is closed where it was. */
static struct bunshin_error *make_pending(struct rebuild *rebuild, struct sizes *sizes, int listener, const struct tcp_pending *pending) {
    const struct image_socket *client = pending->client == IMAGE_NONE ? NULL : IMAGE_SOCKET(rebuild->image, IMAGE_DESCRIPTION(rebuild->image, pending->client)->object);
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    int four = !memcmp(pending->client_name.address, mapped, sizeof mapped);
    struct image_socket plain = {.domain = four ? AF_INET : AF_INET6, .type = SOCK_STREAM, .protocol = IPPROTO_TCP};
    const struct image_socket *record = client ? client : &plain;
    struct sockaddr_storage here, there;
    struct linger at_once = {1, 0};
    struct endpoint server = client ? endpoint_of(IMAGE_HEAP(rebuild->image, client->peer_name), client->peer_name.size) : pending->server_name;
    sizes_set(sizes, 1, room_for(pending->queue.size + record->unsent.size, 0));
    int fd = new_socket(rebuild, record);
    sizes_reset(sizes);
    struct bunshin_error *error = fd < 0 ? bunshin_error_os("cannot make a socket") : NULL;
    struct room room = room_make(listener, pending->queue.size);
    socklen_t here_length = endpoint_to(&pending->client_name, record->domain, &here), there_length = endpoint_to(&server, record->domain, &there);
    if (!error && (!tcp_repair(fd, 1) || bind(fd, (struct sockaddr *)&here, here_length) != 0 || !tcp_repair(fd, -1) ||
                   fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) != 0 || !connect_soon(fd, &there, there_length)))
        error = bunshin_error_os("cannot connect to port %u again, where nobody has accepted yet", ntohs(server.port));
    room_end(&room);
    if (!error)
        error = socket_send_all(fd, IMAGE_HEAP(rebuild->image, pending->queue), pending->queue.size);
    if (!error && client)
        error = socket_send_all(fd, IMAGE_HEAP(rebuild->image, client->unsent), client->unsent.size);
    if (error || !client) {
        if (!error && pending->client_shut == PENDING_RESET)
            (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (fd >= 0)
            close(fd);
        return error;
    }
    struct tcp_end end;
    memcpy(&end, IMAGE_HEAP(rebuild->image, client->more), sizeof end);
    if (end.fin_sent)
        (void)shutdown(fd, SHUT_WR);
    (void)fcntl(fd, F_SETFL, O_RDWR);
    socket_options_set(rebuild, client, fd, OPTIONS_LATE);
    return rebuild_place(rebuild, pending->client, fd);
}

/*
 * Of listeners that share a port the kernel chooses one for each client. For the while it is told which: a program of one
 * instruction, whose answer is a place in the order in which they began to listen.
 */
static bool choose_listener(const struct rebuild *rebuild, int32_t index, int fd, bool end) {
    if (end)
        return setsockopt(fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &(int){0}, sizeof(int)) == 0;
    const struct image_socket *own = IMAGE_SOCKET(rebuild->image, IMAGE_DESCRIPTION(rebuild->image, index)->object);
    struct endpoint name = endpoint_of(IMAGE_HEAP(rebuild->image, own->name), own->name.size);
    uint32_t place = 0;
    for (int32_t i = 0; i < index; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, i);
        const struct image_socket *other = record->kind == KIND_SOCKET ? IMAGE_SOCKET(rebuild->image, record->object) : NULL;
        if (!other || other->state != SOCKET_LISTENING || other->domain != own->domain)
            continue;
        struct endpoint there = endpoint_of(IMAGE_HEAP(rebuild->image, other->name), other->name.size);
        place += endpoint_same(&name, &there) && socket_int_option(rebuild_fd(rebuild, i), SOL_SOCKET, SO_REUSEPORT);
    }
    struct sock_filter code = BPF_STMT(BPF_RET | BPF_K, place);
    struct sock_fprog program = {1, &code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) == 0;
}

/* ---- single ones ---- */

/*
 * Closed in both directions, or reset: what was received can still be read. The socket gets another end for the moment,
 * which then does what ended the connection; where that one was, nobody can ask any more.
 */
static struct bunshin_error *make_finished(struct rebuild *rebuild, struct sizes *sizes, const struct image_socket *record, int *ret) {
    struct endpoint here = endpoint_of(IMAGE_HEAP(rebuild->image, record->name), record->name.size), there = here;
    static const uint8_t nothing[16];
    if (!memcmp(here.address, nothing, 16) || !here.port)
        here = there = (struct endpoint){.address = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}, .port = here.port};
    if (record->domain == AF_INET6 && socket_int_option(*ret, IPPROTO_IPV6, IPV6_V6ONLY))
        there = here = (struct endpoint){.address = {[15] = 1}, .port = here.port};
    struct sockaddr_storage names[2];
    struct linger at_once = {1, 0};
    int fd[2] = {-1, -1}, neither = TCP_NO_QUEUE;
    struct bunshin_error *error = NULL;
    uint32_t numbers[2] = {1, 1u + (uint32_t)record->queue.size};
    /* First a port for the other end. */
    for (int side = 1; !error && side >= 0; side--) {
        struct endpoint *name = side ? &there : &here;
        if (side)
            name->port = 0;
        socklen_t length = endpoint_to(name, record->domain, &names[side]);
        if (!side)
            sizes_set(sizes, 0, room_for(record->queue.size, 0));
        fd[side] = new_socket(rebuild, record);
        sizes_reset(sizes);
        if (fd[side] < 0 || !tcp_repair(fd[side], 1) || bind(fd[side], (struct sockaddr *)&names[side], length) != 0 ||
            getsockname(fd[side], (struct sockaddr *)&names[side], &length) != 0 || !set_sequence(fd[side], TCP_SEND_QUEUE, numbers[side]) ||
            !set_sequence(fd[side], TCP_RECV_QUEUE, 1))
            error = bunshin_error_os("cannot make a closed connection again");
    }
    for (int side = 0; !error && side < 2; side++) {
        socklen_t length = record->domain == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        struct tcp_end plain = {.options = TCPI_OPT_SACK}; /* something agreed upon: see tcp_capture() */
        if (connect(fd[side], (struct sockaddr *)&names[!side], length) != 0 || !set_options_of_segments(fd[side], &plain))
            error = bunshin_error_os("cannot make a closed connection again");
    }
    const uint8_t *data = IMAGE_HEAP(rebuild->image, record->queue);
    for (uint64_t done = 0; !error && done < record->queue.size;) {
        ssize_t put = send(fd[0], data + done, record->queue.size - done < 65536 ? record->queue.size - done : 65536, 0);
        if (put <= 0)
            error = bunshin_error_os("cannot fill a TCP socket's queue");
        done += put > 0 ? (uint64_t)put : 0;
    }
    for (int side = 0; !error && side < 2; side++) {
        uint32_t received = side ? 1 : numbers[1];
        struct tcp_repair_window windows = {.snd_wl1 = received, .snd_wnd = 60000, .max_window = 65535, .rcv_wnd = 60000, .rcv_wup = received};
        (void)setsockopt(fd[side], IPPROTO_TCP, TCP_REPAIR_WINDOW, &windows, sizeof windows);
        (void)setsockopt(fd[side], IPPROTO_TCP, TCP_REPAIR_QUEUE, &neither, sizeof neither);
        (void)tcp_repair(fd[side], -1);
    }
    if (!error && record->state == SOCKET_RESET)
        (void)setsockopt(fd[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    else if (!error) /* the other end closes first, and so is the one that lingers */
        (void)shutdown(fd[1], SHUT_WR);
    if (!error && record->state != SOCKET_RESET)
        (void)shutdown(fd[0], SHUT_RDWR);
    if (fd[1] >= 0)
        close(fd[1]);
    *ret = fd[0];
    return error;
}

/* A port on which nobody listens, and a connection to it. */
struct bunshin_error *tcp_make_refused(const struct image_socket *record, int fd) {
    struct endpoint nobody = {.address = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    if (record->domain == AF_INET6)
        nobody = (struct endpoint){.address = {[15] = 1}};
    struct sockaddr_storage name;
    socklen_t length = endpoint_to(&nobody, record->domain, &name);
    int other = socket(record->domain, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP), flags = fcntl(fd, F_GETFL);
    struct bunshin_error *error = NULL;
    if (other < 0 || bind(other, (struct sockaddr *)&name, length) != 0 || getsockname(other, (struct sockaddr *)&name, &length) != 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || (connect(fd, (struct sockaddr *)&name, length) != 0 && errno != EINPROGRESS))
        error = bunshin_error_os("cannot have a connection refused again");
    if (record->state == SOCKET_REFUSED_TOLD)
        (void)socket_int_option(fd, SOL_SOCKET, SO_ERROR);
    if (other >= 0)
        close(other);
    return error;
}

/* Everything that has a name of its own, before what only shares one. */
static struct bunshin_error *make_single(struct rebuild *rebuild, int32_t index, const struct image_socket *record) {
    struct sizes sizes = {.fd = {-1, -1}};
    int fd = -1;
    if (record->state == SOCKET_FINISHED || record->state == SOCKET_RESET) {
        if (record->queue.size > 65536)
            sizes_open(rebuild, &sizes);
        struct bunshin_error *error = make_finished(rebuild, &sizes, record, &fd);
        sizes_close(&sizes);
        TRY(error);
    } else {
        if ((fd = new_socket(rebuild, record)) < 0)
            return bunshin_error_os("cannot make a socket");
        TRY(inet_bind(rebuild, record, fd));
        if (record->state == SOCKET_REFUSED || record->state == SOCKET_REFUSED_TOLD)
            TRY(tcp_make_refused(record, fd));
    }
    socket_options_set(rebuild, record, fd, OPTIONS_LATE);
    return rebuild_place(rebuild, index, fd);
}

/* ---- the order ---- */

/*
 * Listeners and what is only bound take their ports before ends of connections share them; all are bound before one
 * listens, as bind() would not share a port on which somebody does.
 */
struct bunshin_error *tcp_rebuild_all(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    int32_t count = (int32_t)image->table[TABLE_DESCRIPTION].count;
    struct sizes sizes;
    sizes_open(rebuild, &sizes);
    struct bunshin_error *error = NULL;
    enum { BIND, LISTEN, CONNECT, PEND, AWAIT, PASSES };
    for (int pass = BIND; pass < PASSES; pass++)
        for (int32_t i = 0; !error && i < count; i++) {
            const struct image_description *description = IMAGE_DESCRIPTION(image, i);
            const struct image_socket *record = description->kind == KIND_SOCKET ? IMAGE_SOCKET(image, description->object) : NULL;
            if (!record || record->domain == AF_UNIX || record->type != SOCK_STREAM)
                continue;
            bool connected = record->state == SOCKET_CONNECTED || record->state == SOCKET_ORPHAN || record->state == SOCKET_PENDING;
            int fd = rebuild_fd(rebuild, i);
            /* The other end that a closed one gets for the moment takes a port that is nobody's: once all have theirs. */
            bool closed = record->state == SOCKET_FINISHED || record->state == SOCKET_RESET;
            if (pass == (closed ? CONNECT : BIND) && !connected)
                error = make_single(rebuild, i, record);
            else if (pass == LISTEN && record->state == SOCKET_LISTENING && listen(fd, record->backlog) != 0)
                error = bunshin_error_os("cannot listen on a port again");
            else if (pass == CONNECT && (record->state == SOCKET_CONNECTED || record->state == SOCKET_ORPHAN) && !rebuild->made[i])
                error = make_connection(rebuild, &sizes, i, record);
            else if (pass == PEND && record->state == SOCKET_LISTENING) {
                const struct tcp_pending *pending = (const void *)IMAGE_HEAP(image, record->more);
                bool shares = record->more.size && socket_int_option(fd, SOL_SOCKET, SO_REUSEPORT) && choose_listener(rebuild, i, fd, false);
                for (size_t j = 0; !error && j < record->more.size / sizeof *pending; j++)
                    error = make_pending(rebuild, &sizes, fd, &pending[j]);
                if (shares)
                    (void)choose_listener(rebuild, i, fd, true);
            } else if (pass == AWAIT && record->state == SOCKET_PENDING && !rebuild->made[i]) {
                struct tcp_pending lonely = {.client = i, .client_name = endpoint_of(IMAGE_HEAP(image, record->name), record->name.size)};
                error = make_pending(rebuild, &sizes, -1, &lonely);
            } else if (pass == AWAIT && record->state == SOCKET_CONNECTING) {
                int flags = fcntl(fd, F_GETFL);
                (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
                if (connect(fd, (const void *)IMAGE_HEAP(image, record->peer_name), (socklen_t)record->peer_name.size) != 0 && errno != EINPROGRESS && errno != ECONNREFUSED)
                    error = bunshin_error_os("cannot begin to connect again");
                (void)fcntl(fd, F_SETFL, flags);
            }
        }
    sizes_close(&sizes);
    return error;
}
