/*
 * Unix sockets made again, when every process has been born and none has its descriptors yet. The order: listeners; ends of
 * connections, through the listener they came through or one made for the moment; what nobody has accepted; then names; then
 * what waits in queues, when all that may be on its way exists; options and shut directions last.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork/socket.h"
#include "fork/socket_unix.h"

#define BACKLOG_FOR_NOW 4096

struct server { /* a listener through which connections are made */
    struct server *next;
    const struct span *name;
    int type, fd;
    bool own; /* for the moment: nobody had it */
    struct image_credentials as; /* who its clients think it is */
    struct unix_reach reach;
};

struct gone { /* the end of a client that connected, wrote and was closed, all before it was accepted */
    struct gone *next;
    const struct image_pending *pending;
    int type, fd;
};

struct maker {
    struct rebuild *rebuild;
    struct server *servers;
    int *mate;      /* see unix_datagrams_make() */
    struct gone *gone;
    bool *nameless; /* by description: has its name by being accepted */
};

static const struct image_credentials nobody;

static const struct image_socket *unix_at(const struct rebuild *rebuild, int32_t index) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, index);
    const struct image_socket *socket = record->kind == KIND_SOCKET ? IMAGE_SOCKET(rebuild->image, record->object) : NULL;
    return socket && socket->domain == AF_UNIX ? socket : NULL;
}

bool socket_is_later(const struct rebuild *rebuild, int32_t index) { return unix_at(rebuild, index) != NULL; }

/* ---- listeners ---- */

static bool same_credentials(const struct rebuild *rebuild, const struct image_credentials *one, const struct image_credentials *other) {
    return one->pid == other->pid && one->uid == other->uid && one->gid == other->gid &&
           unix_name_equal(rebuild->image, &one->groups, &other->groups);
}

static struct bunshin_error *listen_as(struct maker *maker, struct server *server, const struct image_credentials *who, int backlog) {
    long result = unix_errand(maker->rebuild, who, SYS_listen, server->fd, backlog, 0, 0);
    if (result < 0) {
        errno = (int)-result;
        return bunshin_error_os("cannot listen as pid %d", who->pid);
    }
    server->as = *who;
    return NULL;
}

static struct bunshin_error *add_server(struct maker *maker, const struct span *name, int type, int fd, bool own, struct server **ret) {
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        return bunshin_error_no_memory();
    *server = (struct server){.next = maker->servers, .name = name, .type = type, .fd = fd, .own = own, .reach.file = -1};
    maker->servers = server;
    *ret = server;
    return NULL;
}

static struct bunshin_error *make_listener(struct maker *maker, int32_t index, const struct image_socket *record) {
    struct server *server = NULL;
    int fd = socket(AF_UNIX, record->type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return bunshin_error_os("cannot make a socket");
    struct bunshin_error *error = unix_name_bind(maker->rebuild, record, fd);
    if (error) {
        close(fd);
        return error;
    }
    TRY(rebuild_place(maker->rebuild, index, fd));
    TRY(add_server(maker, &record->name, record->type, rebuild_fd(maker->rebuild, index), false, &server));
    TRY(listen_as(maker, server, &record->credentials, BACKLOG_FOR_NOW));
    return unix_name_reach(maker->rebuild, &record->name, server->fd, &server->reach);
}

static struct server *find_server(const struct maker *maker, const struct span *name, int type) {
    for (struct server *server = maker->servers; server; server = server->next)
        if (server->type == type && unix_name_equal(maker->rebuild->image, server->name, name))
            return server;
    return NULL;
}

/* A listener of that name, which shows clients the credentials given. */
static struct bunshin_error *get_server(struct maker *maker, const struct span *name, int type, const struct image_credentials *as, struct server **ret) {
    *ret = find_server(maker, name, type);
    if (!*ret) {
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return bunshin_error_os("cannot make a socket");
        struct bunshin_error *error = add_server(maker, name, type, fd, true, ret);
        if (error) {
            close(fd);
            return error;
        }
        TRY(unix_name_bind_unseen(maker->rebuild, name, fd));
        TRY(listen_as(maker, *ret, as, BACKLOG_FOR_NOW));
        return unix_name_reach(maker->rebuild, name, fd, &(*ret)->reach);
    }
    return same_credentials(maker->rebuild, &(*ret)->as, as) ? NULL : listen_as(maker, *ret, as, BACKLOG_FOR_NOW);
}

static void close_all(struct maker *maker) {
    while (maker->gone) {
        struct gone *gone = maker->gone;
        maker->gone = gone->next;
        if (gone->fd >= 0)
            close(gone->fd);
        free(gone);
    }
    while (maker->servers) {
        struct server *server = maker->servers;
        maker->servers = server->next;
        if (server->own)
            close(server->fd);
        if (server->reach.file >= 0)
            close(server->reach.file);
        free(server);
    }
}

/* ---- connections ---- */

static struct bunshin_error *dial(struct maker *maker, const struct server *server, const struct image_credentials *who, int *ret) {
    struct rebuild_control *control = maker->rebuild->control;
    *ret = socket(AF_UNIX, server->type | SOCK_CLOEXEC, 0);
    if (*ret < 0)
        return bunshin_error_os("cannot make a socket");
    memcpy(control->errand.address, &server->reach.address, server->reach.length);
    long result = unix_errand(maker->rebuild, who, SYS_connect, *ret, (long)(uintptr_t)control->errand.address, (long)server->reach.length, 0);
    if (result == 0)
        return NULL;
    close(*ret);
    *ret = -1;
    errno = (int)-result;
    return bunshin_error_os("cannot make a connection as pid %d", who->pid);
}

/* Both ends of a connection: the client's was made by `client`, the listener was `server`'s. */
static struct bunshin_error *connect_ends(struct maker *maker, const struct span *name, int type, const struct image_credentials *client,
                                          const struct image_credentials *server, int *ret_client, int *ret_server) {
    struct server *through = NULL;
    TRY(get_server(maker, name, type, server, &through));
    TRY(dial(maker, through, client, ret_client));
    if ((*ret_server = accept4(through->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        return NULL;
    close(*ret_client);
    return bunshin_error_os("cannot accept a connection again");
}

static struct bunshin_error *plain_pair(struct maker *maker, int type, const struct image_credentials *who, int ret[2]) {
    struct rebuild_control *control = maker->rebuild->control;
    long result = unix_errand(maker->rebuild, who, SYS_socketpair, AF_UNIX, type | SOCK_CLOEXEC, 0, (long)(uintptr_t)control->errand.ends);
    if (result < 0) {
        errno = (int)-result;
        return bunshin_error_os("cannot make a pair of sockets as pid %d", who->pid);
    }
    ret[0] = control->errand.ends[0];
    ret[1] = control->errand.ends[1];
    return NULL;
}

/* Which of two connected ends is the server's. A client may have bound a name of its own. */
static bool serves(const struct maker *maker, const struct image_socket *one, const struct image_socket *other) {
    bool named = unix_name_is(&one->name), other_named = unix_name_is(&other->name);
    if (!named || !other_named)
        return named;
    bool listened = find_server(maker, &one->name, one->type), other_listened = find_server(maker, &other->name, one->type);
    if (listened != other_listened)
        return listened;
    return one->inode > other->inode; /* the listener is gone: the accepted end was made after the client's */
}

static struct bunshin_error *make_connection(struct maker *maker, int32_t index, const struct image_socket *one) {
    struct rebuild *rebuild = maker->rebuild;
    const struct image_socket *other = unix_at(rebuild, one->peer);
    int ends[2];
    if (!unix_name_is(&one->name) && !unix_name_is(&other->name))
        TRY(plain_pair(maker, one->type, &one->credentials, ends));
    else if (serves(maker, one, other)) {
        TRY(connect_ends(maker, &one->name, one->type, &one->credentials, &other->credentials, &ends[1], &ends[0]));
        maker->nameless[index] = true;
    } else {
        TRY(connect_ends(maker, &other->name, one->type, &other->credentials, &one->credentials, &ends[0], &ends[1]));
        maker->nameless[one->peer] = true;
    }
    struct bunshin_error *error = rebuild_place(rebuild, index, ends[0]);
    if (error)
        close(ends[1]);
    return error ? error : rebuild_place(rebuild, one->peer, ends[1]);
}

/* An end whose other end has gone: that one is played by us. */
static struct bunshin_error *make_orphan(struct maker *maker, int32_t index, const struct image_socket *one) {
    bool named = unix_name_is(&one->name), other_named = unix_name_is(&one->peer_name);
    int ends[2];
    if (!named && !other_named)
        TRY(plain_pair(maker, one->type, &one->credentials, ends));
    else if (named && (!other_named || !find_server(maker, &one->peer_name, one->type))) {
        TRY(connect_ends(maker, &one->name, one->type, &one->credentials, &nobody, &ends[1], &ends[0]));
        maker->nameless[index] = true;
    } else
        TRY(connect_ends(maker, &one->peer_name, one->type, &nobody, &one->credentials, &ends[0], &ends[1]));
    maker->mate[index] = ends[1];
    return rebuild_place(maker->rebuild, index, ends[0]);
}

/* What nobody has accepted yet, in order; to be called when all else has been accepted. */
static struct bunshin_error *make_pending(struct maker *maker, const struct image_socket *record) {
    struct rebuild *rebuild = maker->rebuild;
    const struct image_pending *pending = (const void *)IMAGE_HEAP(rebuild->image, record->pending);
    for (size_t i = 0; i < record->pending.size / sizeof *pending; i++) {
        const struct image_socket *client = pending[i].client == IMAGE_NONE ? NULL : unix_at(rebuild, pending[i].client);
        struct server *server = NULL;
        int fd;
        TRY(get_server(maker, &record->name, record->type, client ? &client->credentials : &record->credentials, &server));
        TRY(dial(maker, server, &pending[i].credentials, &fd));
        if (client) {
            TRY(rebuild_place(rebuild, pending[i].client, fd));
            continue;
        }
        struct gone *gone = calloc(1, sizeof *gone);
        if (!gone) {
            close(fd);
            return bunshin_error_no_memory();
        }
        *gone = (struct gone){.next = maker->gone, .pending = &pending[i], .type = record->type, .fd = fd};
        maker->gone = gone;
    }
    return NULL;
}

/* ---- queues ---- */

#define ROOM_TO_FILL (1 << 22)

static uint64_t bytes_of(const struct rebuild *rebuild, const struct span *queue) {
    struct unix_message message;
    uint64_t bytes = 0;
    for (uint64_t at = 0; unix_queue_next(rebuild->image, queue, &at, &message);)
        bytes += message.head.size;
    return bytes;
}

/* Sends what waits in a queue, from its other end; with room for all of it, whatever has been set since. */
static struct bunshin_error *fill(struct rebuild *rebuild, const struct span *queue, int type, int from, uint64_t memory) {
    if (!queue->size)
        return NULL;
    int size = 0, large = ROOM_TO_FILL, unlocked = 0;
    socklen_t length = sizeof size;
    (void)getsockopt(from, SOL_SOCKET, SO_SNDBUF, &size, &length);
    (void)setsockopt(from, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
    uint64_t piece = type == SOCK_STREAM ? unix_queue_piece(bytes_of(rebuild, queue), memory) : 0;
    struct unix_message message;
    struct bunshin_error *error = NULL;
    for (uint64_t at = 0; !error && unix_queue_next(rebuild->image, queue, &at, &message);)
        error = unix_queue_send(rebuild, from, &message, NULL, 0, piece);
    size /= 2; /* the kernel reports twice what is asked for */
    (void)setsockopt(from, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    (void)setsockopt(from, SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof unlocked);
    return error;
}

/* Ends whose peer has gone: the name that one had, what it had sent, and how it went. */
static struct bunshin_error *finish_orphan(struct maker *maker, int32_t index, const struct image_socket *one) {
    struct rebuild *rebuild = maker->rebuild;
    int mate = maker->mate[index];
    struct bunshin_error *error = NULL;
    if (maker->nameless[index] && unix_name_is(&one->peer_name))
        error = unix_name_bind_unseen(rebuild, &one->peer_name, mate);
    if (!error)
        error = fill(rebuild, &one->queue, one->type, mate, 0);
    if (!error && one->error && send(rebuild_fd(rebuild, index), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        error = bunshin_error_os("cannot reset a unix socket"); /* it is: who closes without having read all resets */
    close(mate);
    maker->mate[index] = -1;
    return error;
}

static struct bunshin_error *finish_gone(struct maker *maker, struct gone *gone) {
    struct bunshin_error *error = NULL;
    if (unix_name_is(&gone->pending->name))
        error = unix_name_bind_unseen(maker->rebuild, &gone->pending->name, gone->fd);
    if (!error)
        error = fill(maker->rebuild, &gone->pending->queue, gone->type, gone->fd, 0);
    close(gone->fd);
    gone->fd = -1;
    return error;
}

static struct bunshin_error *fill_pending(struct maker *maker, const struct image_socket *record) {
    struct rebuild *rebuild = maker->rebuild;
    const struct image_pending *pending = (const void *)IMAGE_HEAP(rebuild->image, record->pending);
    for (size_t i = 0; i < record->pending.size / sizeof *pending; i++)
        if (pending[i].client != IMAGE_NONE)
            TRY(fill(rebuild, &pending[i].queue, record->type, rebuild_fd(rebuild, pending[i].client),
                     unix_at(rebuild, pending[i].client)->sent_memory));
    return NULL;
}

/* ---- the order ---- */

static bool is_stream(const struct image_socket *socket) { return socket && socket->type != SOCK_DGRAM; }

static struct bunshin_error *make_all(struct maker *maker, int32_t count) {
    struct rebuild *rebuild = maker->rebuild;
    const struct image_socket *one;
    for (int32_t i = 0; i < count; i++)
        if (is_stream(one = unix_at(rebuild, i)) && one->state == SOCKET_LISTENING)
            TRY(make_listener(maker, i, one));
    for (int32_t i = 0; i < count; i++) {
        if (rebuild->made[i] || !is_stream(one = unix_at(rebuild, i)))
            continue;
        if (one->state == SOCKET_CONNECTED)
            TRY(make_connection(maker, i, one));
        else if (one->state == SOCKET_ORPHAN)
            TRY(make_orphan(maker, i, one));
        else if (one->state == SOCKET_IDLE) {
            int fd = socket(AF_UNIX, one->type | SOCK_CLOEXEC, 0);
            if (fd < 0)
                return bunshin_error_os("cannot make a socket");
            TRY(rebuild_place(rebuild, i, fd));
        }
    }
    return unix_datagrams_make(rebuild, maker->mate);
}

static struct bunshin_error *name_and_fill_all(struct maker *maker, int32_t count) {
    struct rebuild *rebuild = maker->rebuild;
    const struct image_socket *one;
    for (int32_t i = 0; i < count; i++)
        if (is_stream(one = unix_at(rebuild, i)) && one->state == SOCKET_LISTENING && one->pending.size)
            TRY(make_pending(maker, one));
    for (struct server *server = maker->servers; server; server = server->next)
        if (server->own) { /* gives its name back */
            close(server->fd);
            server->own = false;
            server->fd = -1;
        }
    for (int32_t i = 0; i < count; i++)
        if (is_stream(one = unix_at(rebuild, i)) && maker->mate[i] >= 0)
            TRY(finish_orphan(maker, i, one));
    for (struct gone *gone = maker->gone; gone; gone = gone->next)
        TRY(finish_gone(maker, gone));
    for (int32_t i = 0; i < count; i++)
        if ((one = unix_at(rebuild, i)) && one->state != SOCKET_LISTENING && !maker->nameless[i])
            TRY(unix_name_bind(rebuild, one, rebuild_fd(rebuild, i)));
    for (int32_t i = 0; i < count; i++) {
        if (!is_stream(one = unix_at(rebuild, i)))
            continue;
        if (one->state == SOCKET_CONNECTED)
            TRY(fill(rebuild, &one->queue, one->type, rebuild_fd(rebuild, one->peer), unix_at(rebuild, one->peer)->sent_memory));
        if (one->state == SOCKET_LISTENING)
            TRY(fill_pending(maker, one));
    }
    return unix_datagrams_fill(rebuild, maker->mate);
}

static struct bunshin_error *finish_all(struct maker *maker, int32_t count) {
    struct rebuild *rebuild = maker->rebuild;
    for (int32_t i = 0; i < count; i++) {
        const struct image_socket *one = unix_at(rebuild, i);
        if (!one)
            continue;
        int fd = rebuild_fd(rebuild, i);
        if (one->state == SOCKET_LISTENING) {
            struct server server = {.fd = fd};
            TRY(listen_as(maker, &server, &one->credentials, one->backlog));
        }
        socket_set_options(rebuild, one, fd);
        if (one->shut)
            (void)shutdown(fd, one->shut == 3 ? SHUT_RDWR : one->shut == 1 ? SHUT_RD : SHUT_WR);
    }
    return NULL;
}

struct bunshin_error *socket_rebuild_later(struct rebuild *rebuild) {
    int32_t count = (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count;
    struct maker maker = {.rebuild = rebuild};
    maker.mate = malloc(sizeof *maker.mate * (size_t)(count + 1));
    maker.nameless = calloc((size_t)count + 1, sizeof *maker.nameless);
    struct bunshin_error *error = maker.mate && maker.nameless ? NULL : bunshin_error_no_memory();
    for (int32_t i = 0; !error && i < count; i++)
        maker.mate[i] = -1;
    if (!error)
        error = rebuild_fault(rebuild, STEP_SOCKET, "sockets");
    if (!error)
        error = make_all(&maker, count);
    if (!error)
        error = name_and_fill_all(&maker, count);
    if (!error)
        error = finish_all(&maker, count);
    if (!error)
        error = file_rebuild_later(rebuild);
    for (int32_t i = 0; maker.mate && i < count; i++)
        if (maker.mate[i] >= 0)
            close(maker.mate[i]);
    close_all(&maker);
    free(maker.mate);
    free(maker.nameless);
    unix_errands_over(rebuild);
    return error;
}
