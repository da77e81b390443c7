/* Calls that wait for some seconds at most: interrupted by a fork, each goes on with what was left, says nothing of it, and ends when it was to end. */
#include "victim.h"
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/timerfd.h>

#define SECONDS 4
#define MS (SECONDS * 1000)

static const struct timespec whole = {SECONDS, 0};
static struct timespec until(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_sec += SECONDS;
    return time;
}

static int epoll;
static void by_epoll(void) { expect(epoll_wait(epoll, &(struct epoll_event){0}, 1, MS) == 0, "epoll_wait"); }
static void by_epoll_pwait(void) {
    sigset_t none;
    sigemptyset(&none);
    expect(epoll_pwait(epoll, &(struct epoll_event){0}, 1, MS, &none) == 0, "epoll_pwait");
}
static void by_epoll_pwait2(void) { expect(syscall(441, epoll, &(struct epoll_event){0}, 1, &whole, NULL, 0) == 0, "epoll_pwait2"); }
static void by_poll(void) { expect(poll(NULL, 0, MS) == 0, "poll"); }
static void by_ppoll(void) { expect(ppoll(NULL, 0, &whole, NULL) == 0, "ppoll"); }
static void by_select(void) {
    struct timeval time = {SECONDS, 0};
    expect(select(0, NULL, NULL, NULL, &time) == 0, "select");
}
static void by_pselect(void) { expect(pselect(0, NULL, NULL, NULL, &whole, NULL) == 0, "pselect"); }
static void by_signal(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    expect(sigtimedwait(&set, NULL, &whole) == -1 && errno == EAGAIN, "sigtimedwait");
}
static void by_futex(void) {
    uint32_t word = 1;
    expect(syscall(SYS_futex, &word, FUTEX_WAIT, 1, &whole, NULL, 0) == -1 && errno == ETIMEDOUT, "futex");
}
static void by_sleep(void) { expect(clock_nanosleep(CLOCK_BOOTTIME, 0, &whole, NULL) == 0, "clock_nanosleep"); }
static void by_sleep_until(void) {
    struct timespec end = until(CLOCK_MONOTONIC);
    expect(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == 0, "clock_nanosleep");
}
static void by_boottime_until(void) {
    struct timespec end = until(CLOCK_BOOTTIME);
    expect(clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &end, NULL) == 0, "clock_nanosleep");
}
static void by_condition(void) {
    pthread_condattr_t attributes;
    pthread_cond_t condition;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition, &attributes);
    struct timespec end = until(CLOCK_MONOTONIC);
    pthread_mutex_lock(&mutex);
    expect(pthread_cond_timedwait(&condition, &mutex, &end) == ETIMEDOUT, "pthread_cond_timedwait");
}
static void by_semaphore(void) {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    struct timespec end = until(CLOCK_MONOTONIC);
    expect(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &end) == -1 && errno == ETIMEDOUT, "sem_clockwait");
}
static void by_timerfd(void) {
    int fd = (int)must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    struct itimerspec setting = {.it_value = until(CLOCK_MONOTONIC)};
    uint64_t ticks;
    must(timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL));
    expect(read(fd, &ticks, 8) == 8 && ticks == 1, "a timerfd");
}

static void (*const ways[])(void) = {by_epoll, by_epoll_pwait, by_epoll_pwait2, by_poll, by_ppoll, by_select, by_pselect, by_signal, by_futex, by_sleep, by_sleep_until, by_boottime_until, by_condition, by_semaphore, by_timerfd};
#define WAYS (sizeof ways / sizeof *ways)
static double took[WAYS];

static void *wait_in(void *argument) {
    size_t way = (size_t)argument;
    double begun = now();
    ways[way]();
    took[way] = now() - begun;
    return NULL;
}

int main(void) {
    pthread_t threads[WAYS];
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    sigprocmask(SIG_BLOCK, &usr2, NULL);
    epoll = (int)must(epoll_create1(EPOLL_CLOEXEC));
    for (size_t i = 0; i < WAYS; i++)
        must(-pthread_create(&threads[i], NULL, wait_in, (void *)i));
    nap(SECONDS * 0.7);
    ready();
    for (size_t i = 0; i < WAYS; i++)
        pthread_join(threads[i], NULL);
    go();
    for (size_t i = 0; i < WAYS; i++) {
        expect(took[i] > SECONDS - 0.015, "number %zu was over after %.3f s of %d", i, took[i], SECONDS);
        expect(took[i] < SECONDS + 0.7 + slack, "number %zu was over after %.3f s of %d; forking took %.3f", i, took[i], SECONDS, slack);
    }
    ok();
}
