#include "frozen/preload.h"

#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>

#undef errno

extern int *__errno_location(void) __attribute__((weak));
extern void *dlsym(void *handle, const char *name) __attribute__((weak));

#define NEXT ((void *)-1l) /* RTLD_NEXT */

long base_syscall(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}

long base_answer(long result) {
    if (result >= 0 || result < -4095)
        return result;
    if (__errno_location)
        *__errno_location() = (int)-result;
    return -1;
}

void *base_real(void **known, const char *name) {
    void *found = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (!found && dlsym) {
        found = dlsym(NEXT, name);
        __atomic_store_n(known, found, __ATOMIC_RELAXED);
    }
    return found;
}

bool base_equal(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

/* The compiler makes calls of them. */
#undef memcpy
#undef memset
void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memset(void *to, int value, size_t size);

__attribute__((visibility("hidden"))) void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    for (size_t i = 0; i < size; i++)
        ((char *)to)[i] = ((const char *)from)[i];
    return to;
}

__attribute__((visibility("hidden"))) void *memset(void *to, int value, size_t size) {
    for (size_t i = 0; i < size; i++)
        ((char *)to)[i] = (char)value;
    return to;
}

bool base_ask(struct frozen *ret) {
    long fd = SYS(__NR_openat, AT_FDCWD, FROZEN_FILE, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    long got = SYS(__NR_pread64, fd, ret, sizeof *ret, 0);
    SYS(__NR_close, fd, 0, 0, 0);
    return got == (long)sizeof *ret && base_equal(ret->magic, FROZEN_MAGIC);
}

static struct frozen told;
static bool asked;

const struct frozen *base_told(void) {
    if (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE)) {
        struct frozen now;
        if (base_ask(&now))
            told = now; /* by two threads at once: the same */
        __atomic_store_n(&asked, true, __ATOMIC_RELEASE);
    }
    return &told;
}

/* Before the program can go where the file is not to be seen. */
__attribute__((constructor)) static void begin(void) { (void)base_told(); }
