/*
 * What the files about unix sockets share. socket_unix.c: what the kernel tells of them, and which ends belong together;
 * socket_unix_queue.c: what waits in them, credentials and descriptors on their way included; socket_unix_name.c: names and
 * the files that carry them; socket_unix_rebuild.c: streams and sequenced packets; socket_unix_datagram.c: datagrams;
 * socket_errand.c: calls that another process must make, since the kernel notes who made them.
 */
#ifndef BUNSHIN_FORK_SOCKET_UNIX_H
#define BUNSHIN_FORK_SOCKET_UNIX_H

#include <sys/socket.h>
#include <sys/un.h>

#include "fork/capture.h"
#include "fork/rebuild.h"

/* ---- socket_unix_queue.c ---- */

/* Looks at all that waits in a socket without taking it; `bytes` of a stream. Puts struct image_message[] into the heap. */
struct bunshin_error *unix_queue_capture(struct capture *capture, const struct holder *holder, int type, uint32_t bytes, struct span *ret) MUST_CHECK;

/* The same into a buffer of ours, with our own descriptors, which are then the caller's to close, in the place of descriptions. */
struct bunshin_error *unix_queue_look(const struct holder *holder, int type, uint32_t bytes, struct buffer *ret) MUST_CHECK;

struct unix_message { /* one of an image's queue, taken apart */
    struct image_message head;
    const struct sockaddr_un *address; /* of who sent it; head.address_size */
    const uint8_t *descriptions, *bytes;
};
/* The message at *at, which goes on to the next; false at the end of the queue. */
bool unix_queue_next(const struct image_header *image, const struct span *queue, uint64_t *at, struct unix_message *ret);
bool unix_queue_step(const uint8_t *queue, uint64_t size, uint64_t *at, struct unix_message *ret);
/* Sends it from a socket, to an address or NULL. Streams are sent in pieces of `piece` bytes. Without a rebuild: what was looked at. */
struct bunshin_error *unix_queue_send(struct rebuild *rebuild, int from, const struct unix_message *message, const struct sockaddr_un *to,
                                      socklen_t length, uint64_t piece) MUST_CHECK;
/* The pieces in which a queue of so many bytes takes as much memory as it took. */
uint64_t unix_queue_piece(uint64_t bytes, uint64_t memory);

/* ---- socket_unix_name.c ---- */

/* Where the file of a bound socket lies now: an O_PATH descriptor, or -1. */
int unix_name_file(int fd);
struct bunshin_error *unix_name_capture(struct capture *capture, const struct holder *holder, struct image_socket *record) MUST_CHECK;
/* Gives a new socket the name of a sealed one, and the file where that lay. */
struct bunshin_error *unix_name_bind(struct rebuild *rebuild, const struct image_socket *record, int fd) MUST_CHECK;
/* Gives it a name alone: nobody will find it by that. */
struct bunshin_error *unix_name_bind_unseen(struct rebuild *rebuild, const struct span *name, int fd) MUST_CHECK;
/* The same without a rebuild. */
struct bunshin_error *unix_name_bind_gone(const struct sockaddr_un *name, socklen_t length, int fd) MUST_CHECK;
bool unix_name_is(const struct span *name);
bool unix_name_equal(const struct image_header *image, const struct span *one, const struct span *other);

struct unix_reach { /* how to connect to a bound socket, whatever has become of its file */
    struct sockaddr_un address;
    socklen_t length;
    int file; /* to be closed, or -1 */
};
struct bunshin_error *unix_name_reach(struct rebuild *rebuild, const struct span *name, int fd, struct unix_reach *ret) MUST_CHECK;

/* ---- socket_errand.c ---- */

/* Makes a system call as somebody; the result, or minus an errno. Addresses and pairs of descriptors go through control->errand. */
long unix_errand(struct rebuild *rebuild, const struct image_credentials *who, long number, long a, long b, long c, long d);
void unix_errands_over(struct rebuild *rebuild);
/* connect(), without a rebuild, by somebody who is born under that pid for it; 0 or an errno. */
int unix_connect_as(const struct ucred *who, const gid_t *groups, int group_count, int fd, const struct sockaddr_un *address, socklen_t length);

/* ---- socket_unix.c ---- */

struct image_socket *unix_socket_of(struct capture *capture, int32_t description);
struct described *unix_find_inode(struct capture *capture, uint32_t inode);
struct bunshin_error *unix_credentials_capture(struct capture *capture, int fd, struct image_credentials *ret) MUST_CHECK;
struct bunshin_error *unix_refuse(struct capture *capture, int32_t description, const char *reason) MUST_CHECK;


/* ---- socket_unix_datagram.c ---- */

/* By description: our own end of a socket whose other end has gone, until its queue is filled; else -1. */
struct bunshin_error *unix_datagrams_make(struct rebuild *rebuild, int *mate) MUST_CHECK;
struct bunshin_error *unix_datagrams_fill(struct rebuild *rebuild, int *mate) MUST_CHECK;

#endif
