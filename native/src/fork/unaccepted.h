/* Connections that a seal has accepted in the place of their listener, and will put back where it is given up: socket_unix_return.c. */
#ifndef BUNSHIN_FORK_UNACCEPTED_H
#define BUNSHIN_FORK_UNACCEPTED_H

#include <sys/un.h>

#include "common/buffer.h"

struct unaccepted_place { /* of a client */
    pid_t pid;
    uint64_t vdso;
    int fd, epoll; /* a descriptor; or the watch of an epoll on it */
    bool close_on_exec;
    uint32_t events;
    uint64_t data;
};

struct unaccepted {
    int listener, accepted, client; /* our own copies; no client: closed */
    int again;                      /* the client, connected once more */
    struct buffer places, watches;  /* struct unaccepted_place[] */
    struct buffer queue;            /* as looked at */
    struct sockaddr_un name;        /* of a client that is closed */
    socklen_t name_length;
};

/* Takes note of a connection that is about to be accepted. */
struct bunshin_error *unaccepted_add(int listener, int client, struct unaccepted **ret) MUST_CHECK;
struct bunshin_error *unaccepted_accept(struct unaccepted *taken) MUST_CHECK;
size_t unaccepted_count(void);
struct unaccepted *unaccepted_at(size_t number);

#endif
