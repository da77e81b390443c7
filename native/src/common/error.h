/*
 * Errors travel as values: every function that can fail returns NULL on success, else an error that the caller owns.
 * An error is one sentence with a place (step, object, reason); callers going up add context with bunshin_error_wrap().
 * Running out of memory is reported by a static error, so that reporting never needs memory that is not there.
 */
#ifndef BUNSHIN_COMMON_ERROR_H
#define BUNSHIN_COMMON_ERROR_H

#include "bunshin.h"

#define BUNSHIN_MESSAGE_MAX 600

struct bunshin_error {
    uint32_t code; /* enum bunshin_error_code */
    int32_t errnum;
    int32_t pid;
    int32_t fd;
    char message[BUNSHIN_MESSAGE_MAX];
};

#define MUST_CHECK __attribute__((warn_unused_result))

struct bunshin_error *bunshin_error_new(enum bunshin_error_code code, int errnum, const char *format, ...)
    __attribute__((format(printf, 3, 4))) MUST_CHECK;
/* As bunshin_error_new() with errno, whose text is put at the end of the message. */
struct bunshin_error *bunshin_error_os(const char *format, ...) __attribute__((format(printf, 1, 2))) MUST_CHECK;
/* A kind of state a fork cannot keep: names the process, the descriptor (-1 for none) and the reason. */
struct bunshin_error *bunshin_error_unsupported(int pid, const char *comm, int fd, const char *format, ...)
    __attribute__((format(printf, 4, 5))) MUST_CHECK;
/* Puts a prefix "context: " before the message; returns the same error. */
struct bunshin_error *bunshin_error_wrap(struct bunshin_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct bunshin_error *bunshin_error_no_memory(void);

#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        struct bunshin_error *try_error_ = (expression);                                                               \
        if (try_error_)                                                                                                \
            return try_error_;                                                                                         \
    } while (0)

#endif
