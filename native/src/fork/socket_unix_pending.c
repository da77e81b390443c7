/*
 * Connections to unix listeners that nobody has accepted yet. Where the client has written nothing and is there, all is known
 * without them. What it has written, and who it was where it is closed, only accept() shows: where nobody does that in time,
 * a seal does it itself, for all of a listener's connections, in order. Nobody can notice as long as everything is frozen;
 * socket_unix_return.c is about a seal that is given up afterwards. What could not be put back is refused before.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork/socket.h"
#include "fork/socket_unix.h"
#include "fork/unaccepted.h"

#define UNACCEPTED "a unix listener with a connection not accepted yet whose client has written already, or gone"

static uint32_t inode_at(const struct capture *capture, const struct span *clients, size_t i) {
    uint32_t inode;
    memcpy(&inode, capture->table[TABLE_HEAP].data + clients->offset + i * sizeof inode, sizeof inode);
    return inode;
}

/* ---- without accepting ---- */

/* Who holds the other end is who made the connection, as far as anybody can tell before it is accepted. */
static void guess_credentials(struct capture *capture, int32_t client, struct image_credentials *ret) {
    const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, client);
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_PROCESS, struct image_process); i++) {
        const struct image_process *process = CAPTURE_AT(capture, TABLE_PROCESS, struct image_process, i);
        if (process->pid == record->holder) {
            *ret = (struct image_credentials){
                .pid = process->pid, .uid = process->uid[1], .gid = process->gid[1], .groups = process->groups};
            return;
        }
    }
}

/* All of a listener's clients are there and have written nothing. */
static bool is_plain(struct capture *capture, const struct span *clients) {
    for (size_t i = 0; i < clients->size / sizeof(uint32_t); i++) {
        uint32_t inode = inode_at(capture, clients, i);
        const struct described *described = inode ? unix_find_inode(capture, inode) : NULL;
        const struct image_socket *client = described ? unix_socket_of(capture, described->description) : NULL;
        if (!client || client->sent_memory || client->shut)
            return false;
    }
    return true;
}

static struct bunshin_error *set_pending(struct capture *capture, int32_t listener, const struct buffer *list) {
    struct span span = {0};
    TRY(capture_heap(capture, list->data, list->size, &span));
    unix_socket_of(capture, listener)->pending = span;
    return NULL;
}

static struct bunshin_error *guess_all(struct capture *capture, int32_t listener, struct span clients) {
    struct buffer list = {0};
    struct bunshin_error *error = NULL;
    for (size_t i = 0; !error && i < clients.size / sizeof(uint32_t); i++) {
        int32_t client = unix_find_inode(capture, inode_at(capture, &clients, i))->description;
        struct image_pending pending = {.client = client};
        unix_socket_of(capture, client)->state = SOCKET_UNACCEPTED;
        guess_credentials(capture, client, &pending.credentials);
        error = buffer_append(&list, &pending, sizeof pending);
    }
    if (!error)
        error = set_pending(capture, listener, &list);
    buffer_deinit(&list);
    return error;
}

/* ---- before accepting: could it be put back? ---- */

/* Who is to connect again must get to the listener by the name that we see. */
static bool held_in_another_root(struct capture *capture, int32_t client) {
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_PROCESS, struct image_process); i++) {
        const struct image_process *process = CAPTURE_AT(capture, TABLE_PROCESS, struct image_process, i);
        const struct image_descriptor *slots = CAPTURE_AT(capture, TABLE_DESCRIPTOR, struct image_descriptor, process->first_descriptor);
        for (int32_t j = 0; process->root != IMAGE_NONE && j < process->descriptor_count; j++)
            if (slots[j].description == client)
                return true;
    }
    return false;
}

static const char *why_not_the_client(struct capture *capture, const struct described *described) {
    const struct image_socket *client = described ? unix_socket_of(capture, described->description) : NULL;
    if (!client)
        return "whose client nobody in the workspace holds";
    if (described->in_flight)
        return "whose client is on its way in a socket";
    if (client->shut & 1)
        return "whose client reads no more";
    if (unix_name_is(&client->name))
        return "whose client has a name of its own";
    if (CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, described->description)->flags & O_ASYNC)
        return "whose client asks for signals";
    return held_in_another_root(capture, described->description) ? "whose client has another root" : NULL;
}

static struct bunshin_error *refuse_lasting(struct capture *capture, int32_t listener, const struct span *clients) {
    const struct image_socket *record = unix_socket_of(capture, listener);
    const struct described *described = described_find(capture, listener);
    size_t count = clients->size / sizeof(uint32_t);
    bool path = record->named;
    const char *why = described->in_flight            ? "on its way in a socket"
                      : path && !record->place.size   ? "whose file is gone"
                      : count > (size_t)record->backlog + 1 ? "with fewer places than it has given away"
                                                      : NULL;
    if (path && record->place.size > sizeof((struct sockaddr_un *)0)->sun_path)
        why = "whose file has too long a name";
    for (size_t i = 0; !why && i < count; i++) {
        uint32_t inode = inode_at(capture, clients, i);
        if (inode)
            why = why_not_the_client(capture, unix_find_inode(capture, inode));
    }
    if (!why)
        return NULL;
    char reason[200];
    snprintf(reason, sizeof reason, UNACCEPTED " (%s)", why);
    return unix_refuse(capture, listener, reason);
}

/* ---- accepting ---- */

static struct bunshin_error *note_watches(struct capture *capture, const struct image_process *process, struct unaccepted_place place,
                                          int32_t client, const struct image_description *epoll, struct unaccepted *taken) {
    const struct image_watch *watch = (const void *)(capture->table[TABLE_HEAP].data + epoll->data.offset);
    const struct image_descriptor *slots = CAPTURE_AT(capture, TABLE_DESCRIPTOR, struct image_descriptor, process->first_descriptor);
    place.epoll = place.fd;
    for (size_t i = 0; i < epoll->data.size / sizeof *watch; i++) {
        place.fd = watch[i].fd;
        place.events = watch[i].events;
        place.data = watch[i].data;
        for (int32_t j = 0; j < process->descriptor_count; j++)
            if (slots[j].fd == watch[i].fd && slots[j].description == client)
                TRY(buffer_append(&taken->watches, &place, sizeof place));
    }
    return NULL;
}

/* Where the client is to be put back: its descriptors, and who watches those. */
static struct bunshin_error *note_places(struct capture *capture, int32_t client, struct unaccepted *taken) {
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_PROCESS, struct image_process); i++) {
        const struct image_process *process = CAPTURE_AT(capture, TABLE_PROCESS, struct image_process, i);
        const struct image_descriptor *slots = CAPTURE_AT(capture, TABLE_DESCRIPTOR, struct image_descriptor, process->first_descriptor);
        for (int32_t j = 0; j < process->descriptor_count; j++) {
            const struct image_description *held = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, slots[j].description);
            struct unaccepted_place place = {.pid = process->pid,
                                             .vdso = process->vdso_code,
                                             .fd = slots[j].fd,
                                             .epoll = -1,
                                             .close_on_exec = slots[j].close_on_exec};
            if (slots[j].description == client)
                TRY(buffer_append(&taken->places, &place, sizeof place));
            if (held->kind == KIND_EPOLL && held->holder == process->pid && held->holder_fd == slots[j].fd)
                TRY(note_watches(capture, process, place, client, held, taken));
        }
    }
    return NULL;
}

/* What was looked at with our own descriptors, once more with descriptions: copies of those are captured. */
static struct bunshin_error *capture_queue(struct capture *capture, const struct holder *holder, const struct buffer *queue,
                                           struct span *ret) {
    struct buffer copy = {0};
    struct unix_message message;
    struct bunshin_error *error = buffer_append(&copy, queue->data, queue->size);
    for (uint64_t at = 0; !error && unix_queue_step(copy.data, copy.size, &at, &message);)
        for (uint32_t i = 0; !error && i < message.head.description_count; i++) {
            uint8_t *place = copy.data + (message.descriptions - copy.data) + i * sizeof(int32_t);
            int32_t fd, description;
            memcpy(&fd, place, sizeof fd);
            if ((fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
                error = bunshin_error_os("cannot take copies of the descriptors on their way in a unix socket");
            else if (!(error = capture_in_flight(capture, holder, fd, &description)))
                memcpy(place, &description, sizeof description);
        }
    if (!error && copy.size)
        error = capture_heap(capture, copy.data, copy.size, ret);
    buffer_deinit(&copy);
    return error;
}

static struct bunshin_error *look_into(struct capture *capture, int32_t listener, struct unaccepted *taken, struct image_pending *ret) {
    const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, listener);
    struct holder holder = {.process = freeze_find(capture->frozen, record->holder), .fd = record->holder_fd, .copy = taken->accepted};
    int type = unix_socket_of(capture, listener)->type, waiting = 0;
    struct sockaddr_un name = {0};
    socklen_t length = sizeof name;
    (void)ioctl(taken->accepted, SIOCINQ, &waiting);
    struct pollfd state = {.fd = taken->accepted, .events = POLLIN};
    if (waiting > 0 || (type == SOCK_SEQPACKET && poll(&state, 1, 0) == 1))
        TRY(unix_queue_look(&holder, type, (uint32_t)waiting, &taken->queue));
    TRY(capture_queue(capture, &holder, &taken->queue, &ret->queue));
    TRY(unix_credentials_capture(capture, taken->accepted, &ret->credentials));
    if (ret->client == IMAGE_NONE && getpeername(taken->accepted, (struct sockaddr *)&name, &length) == 0 &&
        length > sizeof name.sun_family) {
        taken->name = name;
        taken->name_length = length < sizeof name ? length : sizeof name;
        return capture_heap(capture, &name, taken->name_length, &ret->name);
    }
    return NULL;
}

static struct bunshin_error *accept_all(struct capture *capture, int32_t listener, struct span clients) {
    struct buffer list = {0};
    struct bunshin_error *error = NULL;
    size_t count = clients.size / sizeof(uint32_t);
    int copy = described_find(capture, listener)->copy;
    for (size_t i = 0; !error && i < count; i++) {
        uint32_t inode = inode_at(capture, &clients, i);
        const struct described *client = inode ? unix_find_inode(capture, inode) : NULL;
        struct unaccepted *taken = NULL;
        error = unaccepted_add(copy, client ? client->copy : -1, &taken);
        if (!error && client)
            error = note_places(capture, client->description, taken);
        if (!error)
            error = unaccepted_accept(taken);
    }
    /* In two turns: they are put back in order, so either all have been taken or none. */
    size_t end = unaccepted_count();
    for (size_t i = 0; !error && i < count; i++) {
        uint32_t inode = inode_at(capture, &clients, i);
        struct image_pending pending = {.client = inode ? unix_find_inode(capture, inode)->description : IMAGE_NONE};
        if (inode)
            unix_socket_of(capture, pending.client)->state = SOCKET_UNACCEPTED;
        error = look_into(capture, listener, unaccepted_at(end - count + i), &pending);
        if (!error)
            error = buffer_append(&list, &pending, sizeof pending);
    }
    if (!error)
        error = set_pending(capture, listener, &list);
    buffer_deinit(&list);
    return error;
}

struct bunshin_error *socket_take_unaccepted(struct capture *capture) {
    /* What is found in queues may be listeners too. */
    for (int32_t i = 0; capture->have_unix_peers && i < CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description); i++) {
        struct image_socket *socket = unix_socket_of(capture, i);
        if (!socket || socket->state != SOCKET_LISTENING || !socket->pending.size)
            continue;
        struct span clients = socket->pending;
        if (is_plain(capture, &clients)) {
            TRY(guess_all(capture, i, clients));
            continue;
        }
        TRY(refuse_lasting(capture, i, &clients));
        if (!capture->may_accept) {
            capture->unaccepted = true;
            capture_unread(capture, described_find(capture, i)->copy);
            return unix_refuse(capture, i, UNACCEPTED);
        }
        TRY(accept_all(capture, i, clients));
    }
    return NULL;
}
