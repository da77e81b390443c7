/* Pending signals with all that is said of them: by whom, how, in which order, for a thread or for the process; one signalfd reads them. */
#include "victim.h"
#include <sys/signalfd.h>

int main(void) {
    sigset_t all;
    siginfo_t info;
    sigfillset(&all);
    must(sigprocmask(SIG_BLOCK, &all, NULL));
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 20; i++)
            must(sigqueue(getppid(), SIGRTMIN + 1 + i % 2, (union sigval){.sival_int = i}));
        must(kill(getppid(), SIGUSR1));
        must(kill(getppid(), SIGUSR1)); /* ordinary signals come once */
        _exit(0);
    }
    must(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT));
    must(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR2));
    must(syscall(SYS_tgkill, getpid(), gettid(), SIGRTMAX));
    siginfo_t own = {.si_signo = SIGRTMIN + 5, .si_code = -42};
    own.si_pid = 4242, own.si_uid = 17, own.si_value.sival_ptr = (void *)0x123456789abcull;
    must(syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN + 5, &own));
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 7, .sigev_value.sival_int = 99};
    must(timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    must(timer_settime(timer, 0, &soon, NULL));
    int fd = (int)must(signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC));
    nap(0.1);
    ready();
    go();
    struct signalfd_siginfo got;
    int heard[65] = {0}, last[2] = {-2, -1};
    while (read(fd, &got, sizeof got) == sizeof got) {
        int number = (int)got.ssi_signo;
        heard[number]++;
        if (number == SIGRTMIN + 1 || number == SIGRTMIN + 2) {
            int which = number - SIGRTMIN - 1;
            expect(got.ssi_code == SI_QUEUE && got.ssi_pid == (uint32_t)child, "queued: code %d, pid %u", got.ssi_code, got.ssi_pid);
            expect(got.ssi_int == last[which] + 2, "queued %d after %d", got.ssi_int, last[which]);
            last[which] = got.ssi_int;
        } else if (number == SIGUSR1)
            expect(got.ssi_code == SI_USER && got.ssi_pid == (uint32_t)child, "sent: code %d, pid %u", got.ssi_code, got.ssi_pid);
        else if (number == SIGUSR2 || number == SIGRTMAX)
            expect(got.ssi_code == SI_TKILL && got.ssi_pid == (uint32_t)getpid(), "to a thread: code %d, pid %u", got.ssi_code, got.ssi_pid);
        else if (number == SIGRTMIN + 5)
            expect(got.ssi_code == -42 && got.ssi_pid == 4242 && got.ssi_uid == 17 && got.ssi_ptr == 0x123456789abcull, "invented: %d, %u, %u, %llx",
                   got.ssi_code, got.ssi_pid, got.ssi_uid, (unsigned long long)got.ssi_ptr);
        else if (number == SIGRTMIN + 7)
            expect(got.ssi_code == SI_TIMER && got.ssi_int == 99, "of a timer: %d, %d", got.ssi_code, got.ssi_int);
        else
            expect(number == SIGCHLD && got.ssi_pid == (uint32_t)child && got.ssi_code == CLD_EXITED, "signal %d, code %d", number, got.ssi_code);
    }
    expect(errno == EAGAIN, "read");
    expect(last[0] == 18 && last[1] == 19, "the last were %d and %d", last[0], last[1]);
    static const int once[] = {SIGUSR1, SIGUSR2, SIGCHLD};
    for (int i = 0; i < 3; i++)
        expect(heard[once[i]] == 1, "signal %d came %d times", once[i], heard[once[i]]);
    expect(heard[SIGRTMAX] == 1 && heard[SIGRTMIN + 5] == 1 && heard[SIGRTMIN + 7] == 1, "%d %d %d", heard[SIGRTMAX], heard[SIGRTMIN + 5], heard[SIGRTMIN + 7]);
    child_ends_well(child);
    ok();
}
