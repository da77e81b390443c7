/*
 * The wall clock: it stands still. Clocks that measure (monotonic, of processes) go on. Whoever waits until a point of the wall
 * clock waits as long as if it went on from where it stands.
 */
#define _GNU_SOURCE
#include "frozen/preload.h"

#include <asm/unistd.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/timeb.h>
#include <time.h>

#undef errno

typedef struct { /* Dl_info */
    const char *file;
    void *file_base;
    const char *symbol;
    void *symbol_base;
} dl_info;
extern int dladdr(const void *address, dl_info *ret) __attribute__((weak));
extern void *dlsym(void *handle, const char *name) __attribute__((weak));

static bool stands(clockid_t clock) {
    return (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI || clock == CLOCK_REALTIME_ALARM) &&
           base_told()->flags & FROZEN_CLOCK;
}

/* mktemp makes its names of an address (which start.c has fixed) and of the monotonic clock. */
static bool makes_names(void) {
    static int known; /* 1: it is mktemp, 2: it is not */
    char name[16] = "";
    if (!known) {
        SYS(__NR_prctl, PR_GET_NAME, name, 0, 0);
        known = random_is_seeded() && base_equal(name, "mktemp") ? 1 : 2;
    }
    return known == 1;
}

DECLARE_REAL(clock_gettime);
EXPORT int clock_gettime(clockid_t clock, struct timespec *ret) {
    if (clock == CLOCK_MONOTONIC && makes_names()) {
        random_draw(ret, sizeof *ret);
        return 0;
    }
    if (stands(clock)) {
        *ret = (struct timespec){base_told()->seconds, base_told()->nanoseconds};
        return 0;
    }
    __typeof__(&clock_gettime) real = REAL(clock_gettime); /* through the vdso, which is faster */
    return real ? real(clock, ret) : (int)base_answer(SYS(__NR_clock_gettime, clock, ret, 0, 0));
}

EXPORT time_t time(time_t *ret) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}

/*
 * bash seeds RANDOM with the time, its process ids and an address, which differ from run to run: when it asks for the time to do
 * so, it is given one that makes up for them.
 */
static bool seeds_bash(const void *caller, struct timeval *ret) {
    static int bash; /* 0: not known, 1: it is, 2: it is not */
    if (!bash)
        bash = dlsym && dladdr && dlsym(NULL, "seedrand") && dlsym(NULL, "sbrand") ? 1 : 2;
    dl_info info = {0};
    if (bash == 2 || !random_is_seeded() || !dladdr(caller, &info) || !info.symbol || !base_equal(info.symbol, "seedrand"))
        return false;
    uint32_t wanted;
    random_draw(&wanted, sizeof wanted);
    wanted ^= (uint32_t)(uintptr_t)info.symbol_base ^ (uint32_t)SYS(__NR_getpid, 0, 0, 0, 0) ^ (uint32_t)SYS(__NR_getppid, 0, 0, 0, 0) ^
              (uint32_t)SYS(__NR_getuid, 0, 0, 0, 0);
    *ret = (struct timeval){0, (suseconds_t)wanted};
    return true;
}

EXPORT int gettimeofday(struct timeval *restrict result, void *restrict zone) {
    struct timeval *volatile ret = result; /* the header says that it is never NULL: some know better */
    struct timespec now;
    if (zone)
        *(struct timezone *)zone = (struct timezone){0};
    if (!ret || seeds_bash(__builtin_return_address(0), ret))
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    *ret = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

int ftime(struct timeb *ret); /* which headers do not declare everywhere */
EXPORT int ftime(struct timeb *ret) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *ret = (struct timeb){.time = now.tv_sec, .millitm = (unsigned short)(now.tv_nsec / 1000000)};
    return 0;
}

EXPORT int timespec_get(struct timespec *ret, int base) {
    if (base != TIME_UTC)
        return 0;
    clock_gettime(CLOCK_REALTIME, ret);
    return base;
}

/* ---- waiting ---- */

/* The point of the kernel's clock for one of the clock that stands. */
static const struct timespec *moved(const struct timespec *until, struct timespec *space) {
    if (!until || until->tv_nsec < 0 || until->tv_nsec > 999999999)
        return until;
    struct timespec now;
    SYS(__NR_clock_gettime, CLOCK_REALTIME, &now, 0, 0);
    int64_t nanoseconds = (int64_t)until->tv_nsec - base_told()->nanoseconds + now.tv_nsec;
    space->tv_sec = until->tv_sec - base_told()->seconds + now.tv_sec;
    while (nanoseconds < 0)
        nanoseconds += 1000000000, space->tv_sec--;
    while (nanoseconds > 999999999)
        nanoseconds -= 1000000000, space->tv_sec++;
    space->tv_nsec = nanoseconds;
    if (space->tv_sec < 0)
        *space = (struct timespec){0};
    return space;
}

DECLARE_REAL(pthread_cond_timedwait);
EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    __typeof__(&pthread_cond_timedwait) real = REAL(pthread_cond_timedwait);
    struct timespec space;
#ifdef __GLIBC__
    bool monotonic = cond->__data.__wrefs & 2; /* which clock it was made for: nothing else tells */
#else
    bool monotonic = false;
#endif
    if (!real)
        return ENOSYS;
    return real(cond, mutex, !monotonic && stands(CLOCK_REALTIME) ? moved(until, &space) : until);
}

DECLARE_REAL(pthread_cond_clockwait);
EXPORT int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, clockid_t clock,
                                  const struct timespec *restrict until) {
    __typeof__(&pthread_cond_clockwait) real = REAL(pthread_cond_clockwait);
    struct timespec space;
    return real ? real(cond, mutex, clock, stands(clock) ? moved(until, &space) : until) : ENOSYS;
}

DECLARE_REAL(pthread_mutex_timedlock);
EXPORT int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    __typeof__(&pthread_mutex_timedlock) real = REAL(pthread_mutex_timedlock);
    struct timespec space;
    return real ? real(mutex, stands(CLOCK_REALTIME) ? moved(until, &space) : until) : ENOSYS;
}

DECLARE_REAL(sem_timedwait);
EXPORT int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until) {
    __typeof__(&sem_timedwait) real = REAL(sem_timedwait);
    struct timespec space;
    return real ? real(sem, stands(CLOCK_REALTIME) ? moved(until, &space) : until) : (int)base_answer(-ENOSYS);
}

DECLARE_REAL(sem_clockwait);
EXPORT int sem_clockwait(sem_t *restrict sem, clockid_t clock, const struct timespec *restrict until) {
    __typeof__(&sem_clockwait) real = REAL(sem_clockwait);
    struct timespec space;
    return real ? real(sem, clock, stands(clock) ? moved(until, &space) : until) : (int)base_answer(-ENOSYS);
}

DECLARE_REAL(clock_nanosleep);
EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *rest) {
    __typeof__(&clock_nanosleep) real = REAL(clock_nanosleep);
    struct timespec space;
    if (flags & TIMER_ABSTIME && stands(clock))
        until = moved(until, &space);
    return real ? real(clock, flags, until, rest) : (int)-SYS(__NR_clock_nanosleep, clock, flags, until, rest);
}
