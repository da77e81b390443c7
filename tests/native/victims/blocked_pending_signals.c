/* Signals that wait behind a mask, for the process and for a thread, each with what it tells. */
#include "victim.h"

int main(void) {
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGCHLD);
    must(sigprocmask(SIG_BLOCK, &set, NULL));
    must(kill(getpid(), SIGUSR1));
    must(kill(getpid(), SIGUSR1)); /* not counted twice */
    must(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR2));
    pid_t child = fork();
    if (child == 0)
        _exit(5);
    while (kin_of(child).state != 'Z')
        nap(0.002);
    ready();
    go();
    must(sigpending(&pending));
    expect(sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGUSR2) && sigismember(&pending, SIGCHLD) && !sigismember(&pending, SIGTERM), "what is pending has changed");
    siginfo_t info;
    const struct timespec none = {0, 0};
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    expect(sigtimedwait(&one, &info, &none) == SIGUSR1 && info.si_code == SI_USER && info.si_pid == getpid() && info.si_uid == getuid(),
           "SIGUSR1: code %d from %d", info.si_code, info.si_pid);
    expect(sigtimedwait(&one, &info, &none) == -1 && errno == EAGAIN, "SIGUSR1 came twice");
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    /* The library's function tells a thread's signal as a process's. */
    expect(syscall(SYS_rt_sigtimedwait, &one, &info, &none, 8) == SIGUSR2 && info.si_code == SI_TKILL, "SIGUSR2: code %d", info.si_code);
    sigemptyset(&one);
    sigaddset(&one, SIGCHLD);
    expect(sigtimedwait(&one, &info, &none) == SIGCHLD && info.si_pid == child && info.si_status == 5 && info.si_code == CLD_EXITED,
           "SIGCHLD: code %d of %d with %d", info.si_code, info.si_pid, info.si_status);
    int status;
    expect(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5, "the child");
    ok();
}
