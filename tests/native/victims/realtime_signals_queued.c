/* Forty queued real-time signals with values come in their order, none twice. */
#include "victim.h"

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGRTMIN + 3);
    must(sigprocmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < 40; i++)
        must(sigqueue(getpid(), i % 2 ? SIGRTMIN : SIGRTMIN + 3, (union sigval){.sival_ptr = (void *)(0x123400000000 + i)}));
    ready();
    go();
    const struct timespec none = {0, 0};
    for (int i = 0; i < 40; i++) {
        siginfo_t info;
        int want = i < 20 ? SIGRTMIN : SIGRTMIN + 3, value = i < 20 ? 2 * i + 1 : 2 * (i - 20);
        int got = sigtimedwait(&set, &info, &none);
        expect(got == want && info.si_value.sival_ptr == (void *)(0x123400000000 + value), "signal %d is %d with value %p", i, got, info.si_value.sival_ptr);
        expect(info.si_code == SI_QUEUE && info.si_pid == getpid(), "signal %d: code %d from %d", i, info.si_code, info.si_pid);
    }
    siginfo_t info;
    expect(sigtimedwait(&set, &info, &none) == -1 && errno == EAGAIN, "one more than was sent");
    ok();
}
