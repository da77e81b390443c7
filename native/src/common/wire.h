/*
 * Messages between the library, the keeper and the pid 1 of each workspace: one SOCK_SEQPACKET datagram each, with
 * descriptors beside it. A payload that does not fit travels in a memfd. A request carries the socket that its answer
 * goes to, so that nothing has to be sorted by number and a requester that goes away is seen at once.
 */
#ifndef BUNSHIN_COMMON_WIRE_H
#define BUNSHIN_COMMON_WIRE_H

#include <stdbool.h>

#include "common/buffer.h"
#include "common/error.h"

#define WIRE_FDS_MAX 250
#define WIRE_INLINE_MAX 32768

/* Abilities that the tests take away, so that what stands in for them is tried: the third argument of WIRE_SPAWN. */
enum without {
    WITHOUT_PAGEMAP_SCAN = 1,
    WITHOUT_OVERLAY_ONE_BY_ONE = 2,
    WITHOUT_TIMER_IDS = 4,
    WITHOUT_IPC_IDS = 8,
    WITHOUT_TIME_NAMESPACE = 16,
};

enum wire_verb {
    /* to the keeper */
    WIRE_SPAWN = 1, /* fds: reply, control, [image, stores…, [carrier]]; payload: plan; args: id, fault, without, with carrier */
    WIRE_END,       /* args: id; answered when the workspace is gone */
    WIRE_REMOVE,    /* payload: a path; answered when it is gone, if there is a reply socket */
    WIRE_FLUSH,
    WIRE_MERGE,     /* payload: records {target, layer…}, one a mount point; args: apart; answered when done */
    WIRE_BACKGROUND, /* args: id, on */
    /* to pid 1 of a workspace */
    WIRE_CALL = 32, /* payload: records; args: timeout in ns */
    WIRE_OUTPUT,    /* args: call */
    WIRE_INTERRUPT, /* payload: session name */
    WIRE_OPEN,      /* payload: path; args: flags, mode */
    WIRE_PROCESSES, /* args: with_memory */
    WIRE_SEAL,      /* args: deadline in ns, fault, stores to be merged into the new one */
    WIRE_RELEASE,
    WIRE_FREEZE,
    WIRE_HOLDING,   /* answered with args: bytes, CPU time in ns */
    WIRE_DIGEST,    /* payload: records {origin}, {"sealed", mount, layers, loose, strict}…; see digest/digest.c */
    /* answers */
    WIRE_OK = 64,
    WIRE_ERROR,
    WIRE_RESULT,
};

struct wire {
    uint32_t verb;
    uint32_t fd_count;
    int64_t argument[6];
    uint64_t payload_size;
    const uint8_t *payload; /* owned by `storage` when received */
    int fd[WIRE_FDS_MAX];
    struct buffer storage;
};

/* Sends; descriptors stay the sender's. Fails with EPIPE when the other side is gone. */
struct bunshin_error *wire_send(int socket, const struct wire *message) MUST_CHECK;
/* Receives one message, waiting up to timeout_ms (-1: for ever). *ret_open is false when the other side is gone. */
struct bunshin_error *wire_receive(int socket, int timeout_ms, struct wire *ret, bool *ret_open) MUST_CHECK;
/* Closes descriptors not taken (set to -1) and frees the payload. */
void wire_deinit(struct wire *message);
/* Answers with an error (consumed) or, for NULL, WIRE_OK. Never fails: who does not listen gets nothing. */
void wire_answer(int socket, struct bunshin_error *error);
/* Turns a WIRE_ERROR answer into the error it carries; NULL for others. */
struct bunshin_error *wire_error(const struct wire *message) MUST_CHECK;

#endif
