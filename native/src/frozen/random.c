/* Random bytes: one stream a process, ChaCha20 under a key of the seed, the call and the process's place in it. */
#define _GNU_SOURCE
#include "frozen/preload.h"

#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#undef errno

extern void *dlsym(void *handle, const char *name) __attribute__((weak));
/* The first is glibc's own, which has the other only for static linking. */
extern int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *handle) __attribute__((weak));
extern int pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void)) __attribute__((weak));

/* ---- ChaCha20 (D. J. Bernstein) ---- */

#define ROTATED(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define QUARTER(a, b, c, d)                                                                                                                 \
    a += b, d = ROTATED(d ^ a, 16), c += d, b = ROTATED(b ^ c, 12), a += b, d = ROTATED(d ^ a, 8), c += d, b = ROTATED(b ^ c, 7)

void random_block(const uint8_t key[32], uint64_t nonce, uint64_t number, uint8_t ret[64]) {
    uint32_t in[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, x[16];
    memcpy(in + 4, key, 32);
    memcpy(in + 12, &number, 8);
    memcpy(in + 14, &nonce, 8);
    memcpy(x, in, sizeof x);
    for (int round = 0; round < 10; round++) {
        QUARTER(x[0], x[4], x[8], x[12]);
        QUARTER(x[1], x[5], x[9], x[13]);
        QUARTER(x[2], x[6], x[10], x[14]);
        QUARTER(x[3], x[7], x[11], x[15]);
        QUARTER(x[0], x[5], x[10], x[15]);
        QUARTER(x[1], x[6], x[11], x[12]);
        QUARTER(x[2], x[7], x[8], x[13]);
        QUARTER(x[3], x[4], x[9], x[14]);
    }
    for (int i = 0; i < 16; i++)
        x[i] += in[i];
    memcpy(ret, x, sizeof x);
}

/* ---- the stream ---- */

static struct {
    int lock; /* pid of who holds it: one that was held when the process forked is not held in the child */
    int pid;  /* whose key it is; 0: none yet */
    uint8_t key[32];
    uint64_t next;
    uint8_t block[64];
    size_t used;
    uint64_t forks; /* under this key */
} stream;

static bool counts_forks;

static uint64_t hash(uint64_t hash, const uint8_t *data, long size) { /* FNV-1a */
    for (long i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t command_line(void) {
    uint8_t text[4096];
    long fd = SYS(__NR_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
    long got = fd < 0 ? 0 : SYS(__NR_read, fd, text, sizeof text, 0);
    if (fd >= 0)
        SYS(__NR_close, fd, 0, 0, 0);
    return hash(0xcbf29ce484222325u, text, got);
}

/* How many have asked with this number before, in the call that runs. */
static uint32_t ticket(uint64_t number) {
    uint32_t result = 0;
    long fd = SYS(__NR_openat, AT_FDCWD, FROZEN_TICKETS, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    size_t size = FROZEN_BUCKETS * sizeof(uint32_t);
    uint32_t *tickets = (uint32_t *)base_syscall(__NR_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SYS(__NR_close, fd, 0, 0, 0);
    if ((unsigned long)tickets > -4096ul)
        return 0;
    result = __atomic_fetch_add(&tickets[number % FROZEN_BUCKETS], 1, __ATOMIC_RELAXED);
    SYS(__NR_munmap, tickets, size, 0, 0);
    return result;
}

static void take_key(const uint8_t from[32], uint64_t nonce, uint64_t number, int pid) {
    uint8_t block[64];
    random_block(from, nonce, number, block);
    memcpy(stream.key, block, sizeof stream.key);
    stream.next = 0;
    stream.used = sizeof stream.block;
    stream.pid = pid;
    stream.forks = 0;
}

static void ensure_key(int pid) {
    struct frozen now;
    uint64_t call, number;
    if (stream.pid == pid)
        return;
    if (!base_ask(&now))
        now = *base_told();
    if (stream.pid) { /* born by fork of one that had a key */
        memcpy(&call, now.call, sizeof call);
        memcpy(&number, stream.key, sizeof number);
        take_key(stream.key, ~(call + stream.next), counts_forks ? stream.forks : ticket(number), pid);
    } else {
        number = command_line();
        take_key(now.call, number, ticket(number), pid);
    }
}

static bool try_lock(int pid) {
    int holder = 0;
    return __atomic_compare_exchange_n(&stream.lock, &holder, pid, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED) ||
           (holder != pid && __atomic_compare_exchange_n(&stream.lock, &holder, pid, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
}

static void lock(int pid) {
    while (!try_lock(pid))
        SYS(__NR_sched_yield, 0, 0, 0, 0);
}

static void unlock(void) { __atomic_store_n(&stream.lock, 0, __ATOMIC_RELEASE); }

/* Before a fork: children are told apart by the order of their births, not by who is first to draw. */
static void before_fork(void) {
    int pid = (int)SYS(__NR_getpid, 0, 0, 0, 0);
    if (!try_lock(pid)) /* perhaps by this very thread, below a signal */
        return;
    ensure_key(pid);
    stream.forks++;
    unlock();
}

__attribute__((constructor)) static void begin(void) {
    if (!random_is_seeded())
        return;
    if (__register_atfork)
        counts_forks = __register_atfork(before_fork, NULL, NULL, NULL) == 0;
    else if (pthread_atfork)
        counts_forks = pthread_atfork(before_fork, NULL, NULL) == 0;
}

void random_draw(void *ret, size_t size) {
    int pid = (int)SYS(__NR_getpid, 0, 0, 0, 0);
    uint8_t *out = ret;
    lock(pid);
    ensure_key(pid);
    while (size) {
        if (stream.used == sizeof stream.block) {
            random_block(stream.key, 0, stream.next++, stream.block);
            stream.used = 0;
        }
        size_t part = sizeof stream.block - stream.used;
        part = part < size ? part : size;
        memcpy(out, stream.block + stream.used, part);
        stream.used += part;
        out += part;
        size -= part;
    }
    unlock();
}

void random_begin_call(void) {
    int pid = (int)SYS(__NR_getpid, 0, 0, 0, 0);
    struct frozen now;
    if (!random_is_seeded() || !base_ask(&now))
        return;
    lock(pid);
    take_key(now.call, 0, 0, pid);
    unlock();
    void (*sbrand)(unsigned long) = dlsym ? (void (*)(unsigned long))dlsym(NULL, "sbrand") : NULL;
    if (sbrand) { /* bash's RANDOM */
        uint32_t seed;
        random_draw(&seed, sizeof seed);
        sbrand(seed);
    }
}

bool random_is_seeded(void) { return base_told()->flags & FROZEN_RANDOM; }

/* ---- what programs call ---- */

static long fill(void *buffer, size_t size, unsigned flags) {
    if (!random_is_seeded())
        return SYS(__NR_getrandom, buffer, size, flags, 0);
    random_draw(buffer, size);
    return (long)size;
}

/* Where a failure cannot be told. */
static void fill_surely(void *buffer, size_t size) {
    for (size_t done = 0; done < size;) {
        long got = fill((char *)buffer + done, size - done, 0);
        done += got > 0 ? (size_t)got : 0;
    }
}

EXPORT ssize_t getrandom(void *buffer, size_t size, unsigned flags) { return base_answer(fill(buffer, size, flags)); }

EXPORT int getentropy(void *buffer, size_t size) {
    if (size > 256)
        return (int)base_answer(-EIO);
    fill_surely(buffer, size);
    return 0;
}

uint32_t arc4random(void);
void arc4random_buf(void *buffer, size_t size);
uint32_t arc4random_uniform(uint32_t bound);

EXPORT uint32_t arc4random(void) {
    uint32_t result;
    fill_surely(&result, sizeof result);
    return result;
}

EXPORT void arc4random_buf(void *buffer, size_t size) { fill_surely(buffer, size); }

EXPORT uint32_t arc4random_uniform(uint32_t bound) {
    if (bound < 2)
        return 0;
    uint32_t least = -bound % bound, result;
    do
        result = arc4random();
    while (result < least);
    return result % bound;
}

/* Of libcrypto, whose own generator takes in process ids and the processor's counter as well. */
int RAND_bytes(unsigned char *buffer, int size);
int RAND_priv_bytes(unsigned char *buffer, int size);
int RAND_bytes_ex(void *context, unsigned char *buffer, size_t size, unsigned strength);
int RAND_priv_bytes_ex(void *context, unsigned char *buffer, size_t size, unsigned strength);

EXPORT int RAND_bytes(unsigned char *buffer, int size) {
    if (size < 0)
        return 0;
    fill_surely(buffer, (size_t)size);
    return 1;
}

EXPORT int RAND_priv_bytes(unsigned char *buffer, int size) { return RAND_bytes(buffer, size); }

EXPORT int RAND_bytes_ex(void *context, unsigned char *buffer, size_t size, unsigned strength) {
    (void)context, (void)strength;
    fill_surely(buffer, size);
    return 1;
}

EXPORT int RAND_priv_bytes_ex(void *context, unsigned char *buffer, size_t size, unsigned strength) {
    return RAND_bytes_ex(context, buffer, size, strength);
}

/* Of libuuid, which mixes process ids in: version 4, whatever it would have made. */
void uuid_generate(unsigned char *ret);
void uuid_generate_random(unsigned char *ret);

EXPORT void uuid_generate_random(unsigned char *ret) {
    fill_surely(ret, 16);
    ret[6] = (unsigned char)((ret[6] & 0x0f) | 0x40);
    ret[8] = (unsigned char)((ret[8] & 0x3f) | 0x80);
}

EXPORT void uuid_generate(unsigned char *ret) { uuid_generate_random(ret); }

/* Some programs ask the kernel themselves, but through the C library's syscall(). */
EXPORT long syscall(long number, ...) {
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == __NR_getrandom)
        return base_answer(fill((void *)a[0], (size_t)a[1], (unsigned)a[2]));
    if (number == __NR_clock_gettime && a[1])
        return clock_gettime((clockid_t)a[0], (struct timespec *)a[1]);
    if (number == __NR_gettimeofday)
        return gettimeofday((struct timeval *)a[0], (void *)a[1]);
    if (number == __NR_time)
        return time((time_t *)a[0]);
    return base_answer(base_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}
