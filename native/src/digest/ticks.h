/*
 * Processes that wake on their own timers. What time does to one between calls is learned, word by word (eight bytes that
 * changed in two separate pauses): where only those words changed during a call, nobody has told it anything, and it counts
 * as the process it was.
 *
 * Looked at are the pages that are its own (PAGEMAP_SCAN), the descriptors it has, and where its threads sleep. What cannot be
 * looked at (memory that it shares, a thread that is running) makes it incomparable: it then counts by history.
 */
#ifndef BUNSHIN_DIGEST_TICKS_H
#define BUNSHIN_DIGEST_TICKS_H

#include "digest/digest.h"

struct ticks;

/* Births: of a process that was seen to run by itself; and of what was learned of one before a fork. */
struct ticks *ticks_create(void);
void ticks_destroy(struct ticks *ticks);
/* Looks. pause: no call has run since the last look, and what changed is what time changes. */
void ticks_learn(struct init *init, pid_t pid, struct ticks *ticks, bool pause);
/* After a call: whether nothing else changed since the last look. */
bool ticks_only(struct init *init, pid_t pid, struct ticks *ticks);
/* How much is known: it grows. */
size_t ticks_learned(const struct ticks *ticks);
bool ticks_has_looked(const struct ticks *ticks);

struct bunshin_error *ticks_save(const struct ticks *ticks, struct buffer *ret) MUST_CHECK;
/* Takes what it wrote from the front of `data`. */
struct bunshin_error *ticks_restore(const uint8_t **data, size_t *size, struct ticks **ret) MUST_CHECK;

#endif
