/*
 * Where pid 1 and the stubs of a rebuild meet: counters in a page that all share. Stubs arrive and go on, or wait for the
 * rest; the last one to arrive wakes pid 1. The first failure is written there too, and ends the rebuild.
 */
#ifndef BUNSHIN_FORK_MEET_H
#define BUNSHIN_FORK_MEET_H

#include "fork/rebuild.h"

#define MEET_PATIENCE_NS 20000000000ll

/* In a stub: reports why it cannot become what it should, and ends it. */
void meet_fail(struct rebuild *rebuild, pid_t pid, enum restorer_step step, int errnum, const char *text) __attribute__((noreturn));
void meet_arrive(struct rebuild *rebuild, enum stage stage);
/* Waits until pid 1 lets all pass, which it does once all have arrived. */
void meet_wait(struct rebuild *rebuild, enum stage stage);
/* A word of the control page that only grows: one more, and waiting for it. */
void meet_raise(uint32_t *word);
void meet_wait_for(uint32_t *word, uint32_t at_least);

/* In pid 1: waits until `count` have arrived. A stub that failed, was killed, or does not come in time is an error. */
struct bunshin_error *meet_await(struct rebuild *rebuild, enum stage stage, uint32_t count, int64_t deadline) MUST_CHECK;
void meet_let_pass(struct rebuild *rebuild, enum stage stage);

#endif
