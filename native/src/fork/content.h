/*
 * The content of objects that a fork must have a copy of its own of (the kernel shares no pages between them): memfds,
 * shared anonymous memory, files below /dev/shm, System V segments. The page stores hold it once: what an object still
 * has of what it was made from is found by comparing, and named instead of stored again. Pages of zeros are not stored;
 * in a fork they are holes.
 */
#ifndef BUNSHIN_FORK_CONTENT_H
#define BUNSHIN_FORK_CONTENT_H

#include "fork/capture.h"
#include "fork/rebuild.h"

enum content_kind { CONTENT_INTERNAL, CONTENT_NAMED, CONTENT_SEGMENT }; /* what `id` is: two kinds of inode; a segment's id */

/* What an object was made from in this workspace; NULL where it was not made by a rebuild. */
struct known;
const struct known *content_known(enum content_kind kind, uint64_t id);

/* Takes bytes that lie at `offset` of an object; appends struct image_run to `runs`. */
struct bunshin_error *content_take(struct capture *capture, const struct known *known, uint64_t offset, const uint8_t *data, uint64_t size,
                                   struct buffer *runs) MUST_CHECK;
/* Takes all that a file holds; holes are skipped. */
struct bunshin_error *content_take_file(struct capture *capture, const struct known *known, int fd, uint64_t size, struct buffer *runs) MUST_CHECK;
/* Puts collected runs into the image. */
struct bunshin_error *content_add(struct capture *capture, const struct buffer *runs, int32_t *ret_first, int32_t *ret_count) MUST_CHECK;

/* In a fork. Both fill an object that is all holes, and remember what it was made from. */
struct bunshin_error *content_fill_file(struct rebuild *rebuild, int32_t first, int32_t count, int fd, enum content_kind kind,
                                        uint64_t id) MUST_CHECK;
struct bunshin_error *content_fill_memory(struct rebuild *rebuild, int32_t first, int32_t count, uint8_t *memory, enum content_kind kind,
                                          uint64_t id) MUST_CHECK;

#endif
