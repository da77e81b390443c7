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

/* Off is -1: 0 would send the other end something. */
bool tcp_repair(int fd, int value) { return setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &value, sizeof value) == 0; }

static struct tcp_info info_of(int fd) {
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    (void)getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
    return info;
}

unsigned tcp_state_of(int fd) { return info_of(fd).tcpi_state; }

/* ---- one end ---- */

/* Looks at exactly so many bytes of what can be read: a byte more would take a pending error. */
struct bunshin_error *tcp_peek(struct capture *capture, int fd, size_t size, struct span *ret, size_t *ret_got) {
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
    ret->fin_sent = state == STATE_FIN_WAIT1 || state == STATE_FIN_WAIT2 || state == STATE_CLOSING || state == STATE_LAST_ACK;
    ret->fin_received = state == STATE_CLOSE_WAIT || state == STATE_LAST_ACK || state == STATE_CLOSING;
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
    struct bunshin_error *error = waiting > 0 ? tcp_peek(capture, fd, (size_t)waiting, ret, &got) : NULL;
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
        end->fin_received = state == STATE_CLOSE_WAIT || state == STATE_LAST_ACK || state == STATE_CLOSING;
        (void)ioctl(fd, FIONREAD, &waiting);
        TRY(tcp_peek(capture, fd, (size_t)waiting, ret, &got));
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

struct bunshin_error *tcp_list(struct capture *capture, struct buffer *ret) {
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

/* ---- capture, descriptor by descriptor ---- */

/* The address that a connection is being made to: getpeername() does not tell yet. */
static struct bunshin_error *read_destination(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    struct buffer list = {0};
    struct stat info;
    struct bunshin_error *error = fstat(holder->copy, &info) == 0 ? tcp_list(capture, &list) : bunshin_error_os("cannot look at a socket");
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
    if (ask.revents & POLLPRI && info.tcpi_state != STATE_SYN_SENT)
        return capture_refuse(holder, "a TCP connection with an urgent byte under way");
    switch (info.tcpi_state) {
    case STATE_CLOSE: {
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
        return tcp_peek(capture, holder->copy, (size_t)waiting, &record->queue, &got);
    }
    case STATE_SYN_SENT:
        record->state = SOCKET_CONNECTING;
        return read_destination(capture, holder, record);
    case STATE_ESTABLISHED:
    case STATE_FIN_WAIT1:
    case STATE_FIN_WAIT2:
    case STATE_CLOSE_WAIT:
    case STATE_LAST_ACK:
    case STATE_CLOSING:
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
    else if (info.tcpi_state == STATE_SYN_SENT)
        record->state = SOCKET_CONNECTING;
    else if (info.tcpi_state != STATE_CLOSE)
        record->state = SOCKET_CONNECTED;
    else {
        struct pollfd ask = {.fd = fd, .events = POLLRDHUP};
        if (poll(&ask, 1, 0) < 0)
            return bunshin_error_os("cannot look at a TCP socket");
        record->state = ask.revents & POLLRDHUP ? SOCKET_CONNECTED : SOCKET_IDLE;
    }
    return NULL;
}
