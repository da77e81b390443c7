/*
 * What pid 1 tells the preload library (libbunshin-frozen.so), and where: two files in the workspace's private tmpfs.
 *
 * FROZEN_FILE holds a struct frozen, written anew at each call. The clock stands still for the whole life of a workspace, and
 * what a program draws depends on the seed, on the call that runs, and on the program's place in that call: its command line,
 * and how many of that command line have drawn before it (counted in FROZEN_TICKETS, made anew for each call). So neither is
 * a part of the workspace's state: equal calls in equal states give the same, whatever was called before.
 */
#ifndef BUNSHIN_FROZEN_FROZEN_H
#define BUNSHIN_FROZEN_FROZEN_H

#include <stdint.h>

#define FROZEN_DIRECTORY "/run/bunshin"
#define FROZEN_FILE FROZEN_DIRECTORY "/frozen"
#define FROZEN_TICKETS FROZEN_DIRECTORY "/tickets"
#define FROZEN_COMMAND FROZEN_DIRECTORY "/shell.command" /* the session's shell opens it when a call begins */
#define FROZEN_BUCKETS 4096

enum { FROZEN_CLOCK = 1, FROZEN_RANDOM = 2 };

struct frozen {
    char magic[8]; /* FROZEN_MAGIC */
    uint32_t flags;
    uint32_t nanoseconds;
    int64_t seconds;  /* since 1970 */
    uint8_t call[32]; /* of the seed and the call that runs */
};

#define FROZEN_MAGIC "frozen1"

#endif
