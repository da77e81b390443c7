/* sigsuspend() waits with a mask of its own, and puts the old one back. */
#include "blocked.h"

static volatile sig_atomic_t first, second;
static void on_first(int number) { first = number; }
static void on_second(int number) { second = number; }
static void end_it(void) {
    must(syscall(SYS_tgkill, getpid(), herald_of, SIGUSR2)); /* blocked meanwhile */
    nap(0.05);
    must(syscall(SYS_tgkill, getpid(), herald_of, SIGUSR1));
}

int main(void) {
    struct sigaction action = {.sa_handler = on_first};
    must(sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = on_second;
    must(sigaction(SIGUSR2, &action, NULL));
    sigset_t outside, inside, have;
    sigemptyset(&outside);
    sigaddset(&outside, SIGUSR1);
    sigemptyset(&inside);
    sigaddset(&inside, SIGUSR2);
    must(sigprocmask(SIG_SETMASK, &outside, NULL));
    pthread_t id = herald_start(end_it);
    expect(sigsuspend(&inside) == -1 && errno == EINTR, "sigsuspend");
    expect(first, "woken without the signal");
    must(sigprocmask(SIG_SETMASK, NULL, &have));
    expect(sigismember(&have, SIGUSR1) && !sigismember(&have, SIGUSR2), "the old mask is lost");
    expect(second, "the other signal is lost");
    pthread_join(id, NULL);
    ok();
}
