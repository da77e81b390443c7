#define _GNU_SOURCE
#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct bunshin_error no_memory = {
    .code = BUNSHIN_ERROR_OS, .errnum = ENOMEM, .pid = -1, .fd = -1, .message = "out of memory"};

struct bunshin_error *bunshin_error_no_memory(void) { return &no_memory; }

static struct bunshin_error *error_alloc(enum bunshin_error_code code, int errnum) {
    struct bunshin_error *error = malloc(sizeof *error);
    if (!error)
        return &no_memory;
    error->code = code;
    error->errnum = errnum;
    error->pid = -1;
    error->fd = -1;
    error->message[0] = '\0';
    return error;
}

struct bunshin_error *bunshin_error_new(enum bunshin_error_code code, int errnum, const char *format, ...) {
    struct bunshin_error *error = error_alloc(code, errnum);
    if (error == &no_memory)
        return error;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return error;
}

struct bunshin_error *bunshin_error_os(const char *format, ...) {
    int errnum = errno;
    struct bunshin_error *error = error_alloc(BUNSHIN_ERROR_OS, errnum);
    if (error == &no_memory)
        return error;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    size_t used = strlen(error->message);
    snprintf(error->message + used, sizeof error->message - used, ": %s", strerrordesc_np(errnum) ? strerrordesc_np(errnum) : "unknown error");
    return error;
}

struct bunshin_error *bunshin_error_unsupported(int pid, const char *comm, int fd, const char *format, ...) {
    struct bunshin_error *error = error_alloc(BUNSHIN_ERROR_UNSUPPORTED, 0);
    if (error == &no_memory)
        return error;
    error->pid = pid;
    error->fd = fd;
    int used = snprintf(error->message, sizeof error->message, "cannot fork: pid %d (%s) holds ", pid, comm);
    if (fd >= 0 && used > 0 && (size_t)used < sizeof error->message)
        used += snprintf(error->message + used, sizeof error->message - (size_t)used, "fd %d, ", fd);
    if (used > 0 && (size_t)used < sizeof error->message) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message + used, sizeof error->message - (size_t)used, format, arguments);
        va_end(arguments);
    }
    return error;
}

struct bunshin_error *bunshin_error_wrap(struct bunshin_error *error, const char *format, ...) {
    if (!error || error == &no_memory)
        return error;
    char prefix[BUNSHIN_MESSAGE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    char joined[2 * BUNSHIN_MESSAGE_MAX + 4];
    snprintf(joined, sizeof joined, "%s: %s", prefix, error->message);
    joined[BUNSHIN_MESSAGE_MAX - 1] = '\0';
    memcpy(error->message, joined, strlen(joined) + 1);
    return error;
}

uint32_t bunshin_error_code(const struct bunshin_error *error) { return error->code; }
int32_t bunshin_error_errno(const struct bunshin_error *error) { return error->errnum; }
int32_t bunshin_error_pid(const struct bunshin_error *error) { return error->pid; }
int32_t bunshin_error_fd(const struct bunshin_error *error) { return error->fd; }
const char *bunshin_error_message(const struct bunshin_error *error) { return error->message; }

void bunshin_error_destroy(struct bunshin_error *error) {
    if (error != &no_memory)
        free(error);
}
