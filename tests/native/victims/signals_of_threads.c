/* Masks and pending signals belong to threads: each thread finds its own. */
#include "victim.h"

static atomic_int waiting, done;

static void *thread(void *argument) {
    int number = SIGRTMIN + (int)(long)argument;
    sigset_t set, have;
    sigemptyset(&set);
    sigaddset(&set, number);
    must(-pthread_sigmask(SIG_SETMASK, &set, NULL));
    must(-pthread_sigqueue(pthread_self(), number, (union sigval){.sival_int = number * 3}));
    waiting++;
    go();
    must(-pthread_sigmask(SIG_BLOCK, NULL, &have));
    for (int i = 1; i < 65; i++)
        if (i != 32 && i != 33)
            expect(sigismember(&have, i) == (i == number), "thread %ld: signal %d in its mask: %d", (long)argument, i, sigismember(&have, i));
    siginfo_t info;
    expect(sigtimedwait(&set, &info, &(struct timespec){0, 0}) == number && info.si_value.sival_int == number * 3, "thread %ld: its signal is lost", (long)argument);
    done++;
    return NULL;
}

int main(void) {
    pthread_t ids[5];
    for (long i = 0; i < 5; i++)
        must(-pthread_create(&ids[i], NULL, thread, (void *)i));
    while (waiting < 5)
        nap(0.002);
    ready();
    go();
    for (int i = 0; i < 5; i++)
        pthread_join(ids[i], NULL);
    expect(done == 5, "%d threads", done);
    ok();
}
