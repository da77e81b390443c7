/*
 * For victims whose main thread is inside one system call while it is forked. A herald (another thread) waits until the
 * main thread sleeps, says that the victim is ready, waits for "go" and then does what ends the call.
 */
#include "victim.h"

static void (*herald_ends_it)(void);
static pid_t herald_of;

static void *herald(void *argument) {
    until_asleep(herald_of);
    ready();
    go();
    if (herald_ends_it)
        herald_ends_it();
    return argument;
}

static inline pthread_t herald_start(void (*ends_it)(void)) {
    pthread_t id;
    sigset_t all, before;
    herald_ends_it = ends_it;
    herald_of = gettid();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    must(-pthread_create(&id, NULL, herald, NULL));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return id;
}

/*
 * For calls that end by time: half of the time has passed when the victim says that it is ready. on_time() then wants the
 * call to have ended when it was to end, not that long after the fork.
 */
static double timed_begun, timed_seconds;

static void *timed_herald(void *argument) {
    nap(timed_seconds / 2);
    ready();
    return argument;
}

static inline void timed_start(double seconds) {
    pthread_t id;
    sigset_t all, before;
    timed_seconds = seconds;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    must(-pthread_create(&id, NULL, timed_herald, NULL));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    timed_begun = now();
}

static inline void on_time(void) {
    double took = now() - timed_begun;
    go();
    expect(took >= timed_seconds - 0.02, "over after %.3f s of %.3f", took, timed_seconds);
    expect(took < timed_seconds + slack + timed_seconds / 3, "over after %.3f s of %.3f; forking took at most %.3f", took, timed_seconds, slack);
}
