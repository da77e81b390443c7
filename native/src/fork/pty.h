/* Pseudo-terminals, between the two files that know them: pty.c has the pairs, pty_queue.c what waits in them. */
#ifndef BUNSHIN_FORK_PTY_H
#define BUNSHIN_FORK_PTY_H

#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <stdbool.h>

#include "common/buffer.h"
#include "common/error.h"

/* <sys/ioctl.h> and <asm/termbits.h> do not go together. */
int ioctl(int fd, unsigned long request, ...);

enum pty_held { PTY_FLOWS, PTY_HELD_BY_KEY, PTY_HELD_BY_CALL }; /* ^S; tcflow() */

struct pty_queues {
    struct buffer typed; /* towards the slave */
    struct buffer ends;  /* uint32_t offsets in it: an end of input stands there */
    struct buffer shown; /* towards the master */
    enum pty_held held;
};

/* Both descriptors must not block, and packet mode must be off. Leaves the terminal with other settings; put sets them. */
struct bunshin_error *pty_take_queues(int master, int slave, const void *settings, struct pty_queues *ret) MUST_CHECK;
struct bunshin_error *pty_put_queues(int master, int slave, const void *settings, const struct pty_queues *queues) MUST_CHECK;
void pty_queues_deinit(struct pty_queues *queues);

#endif
