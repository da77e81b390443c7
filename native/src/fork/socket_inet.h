/* What the files about internet sockets share. */
#ifndef BUNSHIN_FORK_SOCKET_INET_H
#define BUNSHIN_FORK_SOCKET_INET_H

#include <netinet/in.h>

/* ---- socket_inet.c: addresses ---- */

struct endpoint { /* an address and a port, IPv4 as mapped into IPv6: what two ends of a connection agree on */
    uint8_t address[16];
    uint16_t port; /* network order */
};

struct endpoint endpoint_of(const void *address, uint64_t size);
bool endpoint_same(const struct endpoint *one, const struct endpoint *other);
/* As an address of a family; returns its length. IPv6 addresses cannot be told to an IPv4 socket: 0. */
socklen_t endpoint_to(const struct endpoint *endpoint, int domain, struct sockaddr_storage *ret);
/* Binds, also to a port that others hold in a way that bind() would not share again. Nothing to do without a port. */
struct bunshin_error *inet_bind(const struct rebuild *rebuild, const struct image_socket *record, int fd) MUST_CHECK;
/* Makes every internet socket of the image. */
struct bunshin_error *inet_rebuild_all(struct rebuild *rebuild) MUST_CHECK;
/* Who is to be named when a socket is refused after its capture. */
struct bunshin_error *inet_refuse(struct capture *capture, int32_t description, const char *format, ...)
    __attribute__((format(printf, 3, 4))) MUST_CHECK;

/* ---- socket_options.c ---- */

enum option_stage {
    OPTIONS_EARLY, /* before the socket is bound */
    OPTIONS_LATE,  /* once its queues are filled: sizes and filters, and what connecting or repairing forgets */
};

struct bunshin_error *socket_options_capture(const struct holder *holder, const struct image_socket *record, struct buffer *ret) MUST_CHECK;
void socket_options_set(const struct rebuild *rebuild, const struct image_socket *record, int fd, enum option_stage stage);
/* The multicast groups of a socket. */
struct bunshin_error *socket_groups_capture(struct capture *capture, const struct holder *holder, struct image_socket *record) MUST_CHECK;
/* The size of a buffer, exactly and without making it the program's choice where it was not. */
void socket_set_buffer(int fd, int name, int size, int locks);

/* ---- socket_udp.c ---- */

struct bunshin_error *udp_capture(struct capture *capture, const struct holder *holder, struct image_socket *record) MUST_CHECK;
struct bunshin_error *udp_rebuild_all(struct rebuild *rebuild) MUST_CHECK;

/* ---- socket_tcp.c, socket_tcp_connect.c, socket_tcp_rebuild.c ---- */

enum tcp_state {
    STATE_ESTABLISHED = 1,
    STATE_SYN_SENT,
    STATE_SYN_RECV,
    STATE_FIN_WAIT1,
    STATE_FIN_WAIT2,
    STATE_TIME_WAIT,
    STATE_CLOSE,
    STATE_CLOSE_WAIT,
    STATE_LAST_ACK,
    STATE_LISTEN,
    STATE_CLOSING,
};

struct listed { /* of /proc/net/tcp and tcp6 */
    struct endpoint here, there;
    unsigned state;
    uint64_t inode;
};

struct tcp_end { /* of a connection; where its streams stand does not count a FIN */
    uint32_t sent_to, received_to;
    uint32_t window; /* what it lets the other end send at this moment */
    uint32_t segment;
    uint8_t options, send_scale, receive_scale;
    uint8_t fin_sent, fin_received;
    uint8_t shut_reading; /* by the program */
    uint8_t pad[2];
    int32_t send_buffer, receive_buffer, locks;
};

#define PENDING_SHUT 1
#define PENDING_RESET 2

struct tcp_pending { /* a connection in a listener's queue */
    int32_t client; /* description, or IMAGE_NONE: it has closed */
    int32_t client_shut; /* PENDING_… */
    struct endpoint client_name, server_name;
    uint8_t pad[4];
    struct span queue; /* what the client has sent */
};

struct bunshin_error *tcp_capture(struct capture *capture, const struct holder *holder, struct image_socket *record) MUST_CHECK;
/* After all descriptors are known: the ends of each connection, and what is in its streams. */
struct bunshin_error *tcp_connect_all(struct capture *capture) MUST_CHECK;
struct bunshin_error *tcp_rebuild_all(struct rebuild *rebuild) MUST_CHECK;

bool tcp_repair(int fd, int value);
unsigned tcp_state_of(int fd);
/* Looks at exactly so many bytes of what can be read. */
struct bunshin_error *tcp_peek(struct capture *capture, int fd, size_t size, struct span *ret, size_t *ret_got) MUST_CHECK;
/* struct listed[]: every TCP socket of the workspace's network. */
struct bunshin_error *tcp_list(struct capture *capture, struct buffer *ret) MUST_CHECK;
/* Reads one end's sending side: what is not confirmed yet; then its receiving side. */
struct bunshin_error *tcp_read_sending(struct capture *capture, int32_t description, int fd, struct tcp_end *end, struct span *ret) MUST_CHECK;
struct bunshin_error *tcp_read_receiving(struct capture *capture, int32_t description, int fd, struct tcp_end *end, struct span *ret) MUST_CHECK;
void tcp_read_state(int fd, unsigned state, struct tcp_end *ret);

/* ---- socket_outside.c ---- */

/* A socket on the host's network. */
struct bunshin_error *outside_capture(struct capture *capture, const struct holder *holder, struct image_socket *record) MUST_CHECK;
/* The carrier with all of them, for who goes on as this workspace; -1 where there are none. */
struct bunshin_error *outside_load(struct capture *capture, int *ret) MUST_CHECK;
struct bunshin_error *outside_rebuild_all(struct rebuild *rebuild) MUST_CHECK;
/* What a fork has to know of one to make a stand-in. */
struct bunshin_error *tcp_capture_outside(struct image_socket *record, int fd) MUST_CHECK;
/* Has a new socket refused, by a port on which nobody listens. */
struct bunshin_error *tcp_make_refused(const struct image_socket *record, int fd) MUST_CHECK;

/* ---- socket_pending.c ---- */

struct pending { /* a connection taken out of a listener's queue for as long as the seal lasts */
    int listener, accepted; /* our descriptors */
    int32_t listener_description, client_description;
    int client; /* our copy, -1 for one that has closed */
    struct endpoint name, client_name;
    struct tcp_end end;
    bool reset;
    uint8_t *data; /* what the client had sent */
    uint64_t size;
};

/* Takes all out of a listener's queue, in order. */
struct bunshin_error *pending_take(int32_t description, int listener) MUST_CHECK;
struct pending *pending_list(size_t *ret_count);
/* What is accepted from a listener takes its sizes over: room for so many bytes, until the sizes are put back. */
struct room {
    int fd, size, locks;
};
struct room room_make(int listener, uint64_t bytes);
void room_end(const struct room *room);
/* The seal is given up: every connection is put back where it was. */
void pending_put_back(void);

#endif
