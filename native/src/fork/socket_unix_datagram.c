/*
 * Unix datagram sockets. Each message in a queue shows who sent it by name, so each is sent again by the socket of that name,
 * or by one made for the moment where that has gone. Connections of datagrams are made when queues are full: a connected
 * socket takes from its peer alone. One that a socketpair() made had its peer from the start; so it has again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork/socket.h"
#include "fork/socket_unix.h"

static const struct image_socket *datagram_at(const struct rebuild *rebuild, int32_t index) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    const struct image_socket *socket = record->kind == KIND_SOCKET ? IMAGE_SOCKET(rebuild->image, record->object) : NULL;
    return socket && socket->domain == AF_UNIX && socket->type == SOCK_DGRAM ? socket : NULL;
}

static struct bunshin_error *make_pair(struct rebuild *rebuild, const struct image_credentials *who, int ret[2]) {
    struct rebuild_control *control = rebuild->control;
    long result = unix_errand(rebuild, who, SYS_socketpair, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, (long)(uintptr_t)control->errand.ends);
    if (result < 0) {
        errno = (int)-result;
        return bunshin_error_os("cannot make a pair of sockets as pid %d", who->pid);
    }
    ret[0] = control->errand.ends[0];
    ret[1] = control->errand.ends[1];
    return NULL;
}

/* Who was born with it as a pair: whom it is still connected to, or who is still connected to it. */
static int32_t find_twin(const struct rebuild *rebuild, int32_t index, int32_t count) {
    const struct image_socket *one = datagram_at(rebuild, index), *other;
    if (!one->credentials.pid && unix_name_is(&one->name))
        return IMAGE_NONE;
    if (one->state == SOCKET_CONNECTED && (other = datagram_at(rebuild, one->peer)) && !rebuild->made[one->peer] && one->peer != index &&
        (other->credentials.pid || !unix_name_is(&other->name)))
        return one->peer;
    for (int32_t i = 0; i < count; i++)
        if (i != index && !rebuild->made[i] && (other = datagram_at(rebuild, i)) && other->state == SOCKET_CONNECTED && other->peer == index &&
            (other->credentials.pid || !unix_name_is(&one->name)))
            return i;
    return IMAGE_NONE;
}

struct bunshin_error *unix_datagrams_make(struct rebuild *rebuild, int *mate) {
    int32_t count = (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count;
    /* Who has a peer that still is its twin goes first: a third one may be connected to either. */
    for (int mutual = 1; mutual >= 0; mutual--)
        for (int32_t i = 0; i < count; i++) {
            const struct image_socket *one = rebuild->made[i] ? NULL : datagram_at(rebuild, i);
            int ends[2] = {-1, -1};
            if (!one)
                continue;
            int32_t twin = find_twin(rebuild, i, count);
            const struct image_socket *other = twin == IMAGE_NONE ? NULL : datagram_at(rebuild, twin);
            if (mutual && !(other && one->state == SOCKET_CONNECTED && one->peer == twin && other->state == SOCKET_CONNECTED && other->peer == i))
                continue;
            bool widowed = !other && one->state == SOCKET_ORPHAN && !unix_name_is(&one->peer_name);
            if (other || widowed)
                TRY(make_pair(rebuild, &one->credentials, ends));
            else if ((ends[0] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
                return bunshin_error_os("cannot make a socket");
            struct bunshin_error *error = rebuild_place(rebuild, i, ends[0]);
            if (other && !error)
                error = rebuild_place(rebuild, twin, ends[1]);
            else if (other)
                close(ends[1]);
            else
                mate[i] = ends[1];
            TRY(error);
            /* An end that has turned to somebody else since: it forgets its twin, and with it the queue, which is empty yet. */
            const struct sockaddr none = {.sa_family = AF_UNSPEC};
            if (other && (one->state != SOCKET_CONNECTED || one->peer != twin))
                (void)connect(rebuild_fd(rebuild, i), &none, sizeof none);
            if (other && (other->state != SOCKET_CONNECTED || other->peer != i))
                (void)connect(rebuild_fd(rebuild, twin), &none, sizeof none);
        }
    return NULL;
}

/* ---- queues ---- */

static int find_named(const struct rebuild *rebuild, const struct unix_message *message, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const struct image_socket *other = datagram_at(rebuild, i);
        if (other && other->name.size == message->head.address_size &&
            !memcmp(IMAGE_HEAP(rebuild->image, other->name), message->address, other->name.size))
            return rebuild_fd(rebuild, i);
    }
    return -1;
}

/* Sends one message to a socket that can be reached by name, from where it came. */
static struct bunshin_error *send_by_name(struct rebuild *rebuild, const struct unix_message *message, const struct unix_reach *reach, int32_t count) {
    bool named = message->head.address_size > sizeof(sa_family_t);
    int from = named ? find_named(rebuild, message, count) : -1;
    if (from >= 0)
        return unix_queue_send(rebuild, from, message, &reach->address, reach->length, 0);
    if ((from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
        return bunshin_error_os("cannot make a socket");
    struct bunshin_error *error = NULL;
    if (named) {
        struct span name = {(uint64_t)((const uint8_t *)message->address - (uint8_t *)image_at(rebuild->image, TABLE_HEAP)), message->head.address_size};
        error = unix_name_bind_unseen(rebuild, &name, from);
    }
    if (!error)
        error = unix_queue_send(rebuild, from, message, &reach->address, reach->length, 0);
    close(from);
    return error;
}

/* An end of a pair gets all it has from its other end. */
static int find_sender(const struct rebuild *rebuild, int32_t index, const int *mate, int32_t count) {
    if (mate[index] >= 0)
        return mate[index];
    for (int32_t i = 0; i < count; i++) {
        const struct image_socket *other = datagram_at(rebuild, i);
        if (other && other->state == SOCKET_CONNECTED && other->peer == index && other->credentials.pid)
            return rebuild_fd(rebuild, i);
    }
    return -1;
}

static struct bunshin_error *fill_one(struct rebuild *rebuild, int32_t index, const struct image_socket *one, const int *mate, int32_t count) {
    struct unix_message message;
    struct unix_reach reach = {.file = -1};
    struct bunshin_error *error = NULL;
    bool reachable = unix_name_is(&one->name) && one->credentials.pid == 0;
    int sender = reachable ? -1 : find_sender(rebuild, index, mate, count);
    if (!reachable && sender < 0 && unix_name_is(&one->name))
        reachable = true;
    if (!reachable && sender < 0)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, ENOTCONN, "cannot fill the queue of a unix socket that nobody can reach");
    if (reachable)
        TRY(unix_name_reach(rebuild, &one->name, rebuild_fd(rebuild, index), &reach));
    for (uint64_t at = 0; !error && unix_queue_next(rebuild->image, &one->queue, &at, &message);)
        error = reachable ? send_by_name(rebuild, &message, &reach, count) : unix_queue_send(rebuild, sender, &message, NULL, 0, 0);
    if (reach.file >= 0)
        close(reach.file);
    return error;
}

/* ---- peers ---- */

static struct bunshin_error *connect_to(struct rebuild *rebuild, int fd, const struct span *name, int target) {
    struct unix_reach reach;
    TRY(unix_name_reach(rebuild, name, target, &reach));
    struct bunshin_error *error =
        connect(fd, (const struct sockaddr *)&reach.address, reach.length) == 0 ? NULL : bunshin_error_os("cannot connect a datagram socket again");
    if (reach.file >= 0)
        close(reach.file);
    return error;
}

static struct bunshin_error *connect_to_the_gone(struct rebuild *rebuild, int fd, const struct span *name) {
    int gone = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (gone < 0)
        return bunshin_error_os("cannot make a socket");
    struct bunshin_error *error = unix_name_bind_unseen(rebuild, name, gone);
    if (!error)
        error = connect_to(rebuild, fd, name, gone);
    close(gone);
    return error;
}

static bool is_connected(const struct image_socket *one) { return one->state == SOCKET_CONNECTED || one->state == SOCKET_ORPHAN; }

static bool has_peer(int fd) {
    struct sockaddr_un address;
    socklen_t length = sizeof address;
    return getpeername(fd, (struct sockaddr *)&address, &length) == 0;
}

struct bunshin_error *unix_datagrams_fill(struct rebuild *rebuild, int *mate) {
    int32_t count = (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count;
    const struct image_socket *one;
    for (int32_t i = 0; i < count; i++)
        if ((one = datagram_at(rebuild, i)) && one->queue.size)
            TRY(fill_one(rebuild, i, one, mate, count));
    for (int32_t i = 0; i < count; i++) {
        if (!(one = datagram_at(rebuild, i)))
            continue;
        int fd = rebuild_fd(rebuild, i);
        if (mate[i] >= 0) {
            close(mate[i]);
            mate[i] = -1;
        } else if (is_connected(one) && !has_peer(fd))
            TRY(one->state == SOCKET_ORPHAN ? connect_to_the_gone(rebuild, fd, &one->peer_name)
                                            : connect_to(rebuild, fd, &datagram_at(rebuild, one->peer)->name, rebuild_fd(rebuild, one->peer)));
    }
    return NULL;
}
