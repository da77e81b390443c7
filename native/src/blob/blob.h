/* Helpers for code that runs inside other processes: no libc. */
#ifndef BUNSHIN_BLOB_BLOB_H
#define BUNSHIN_BLOB_BLOB_H

#include <stdint.h>
#include <sys/syscall.h>

#include "arch/x86_64.h"

#define blob_call(number, ...) blob_call_((number), ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define blob_call_(number, a, b, c, d, e, f, ...)                                                                      \
    arch_syscall6((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

#endif
