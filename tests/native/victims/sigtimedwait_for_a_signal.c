/* sigtimedwait goes on waiting for a signal that comes, with its value, after the fork. */
#include "blocked.h"

static void end_it(void) { must(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 31})); }

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    must(sigprocmask(SIG_BLOCK, &set, NULL));
    pthread_t id = herald_start(end_it);
    siginfo_t info;
    struct timespec time = {60, 0};
    int got = sigtimedwait(&set, &info, &time);
    expect(got == SIGRTMIN + 2 && info.si_value.sival_int == 31, "it gave %d, errno %d", got, errno);
    pthread_join(id, NULL);
    ok();
}
