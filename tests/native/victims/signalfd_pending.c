/* Signals read through a descriptor: those before the fork and those after. */
#include "victim.h"
#include <sys/signalfd.h>

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 1);
    must(sigprocmask(SIG_BLOCK, &set, NULL));
    int fd = (int)must(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    must(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 8}));
    ready();
    go();
    struct signalfd_siginfo info;
    expect(read(fd, &info, sizeof info) == sizeof info && (int)info.ssi_signo == SIGRTMIN + 1 && info.ssi_int == 8 && (pid_t)info.ssi_pid == getpid(), "signal %u, value %d", info.ssi_signo, info.ssi_int);
    must(kill(getpid(), SIGUSR1));
    expect(read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1, "signal %u", info.ssi_signo);
    expect(read(fd, &info, sizeof info) == -1 && errno == EAGAIN, "one too many");
    ok();
}
