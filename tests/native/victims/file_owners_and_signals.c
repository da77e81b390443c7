/* Signals of descriptors that became ready: to a process, a group and a thread, each by its own signal. */
#include "victim.h"

static int got(int number, int fd) {
    siginfo_t info;
    sigset_t set;
    struct timespec patience = {100, 0};
    sigemptyset(&set);
    sigaddset(&set, number);
    int signal_number = sigtimedwait(&set, &info, &patience);
    expect(signal_number == number, "signal %d", signal_number);
    expect(info.si_fd == fd && info.si_code == POLL_IN, "of descriptor %d, not %d, code %d", info.si_fd, fd, info.si_code);
    return 1;
}

static int ends[3][2];
static atomic_int ready_thread, result = -1;

static void *waits(void *unused) {
    ready_thread = gettid();
    result = got(SIGRTMIN + 3, ends[2][0]);
    return unused;
}

int main(void) {
    sigset_t all;
    pthread_t thread;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    must(setpgid(0, 0));
    for (int i = 0; i < 3; i++)
        must(pipe(ends[i]));
    expect(pthread_create(&thread, NULL, waits, NULL) == 0, "no thread");
    while (!ready_thread)
        nap(0.001);
    const struct f_owner_ex owners[] = {{F_OWNER_PID, getpid()}, {F_OWNER_PGRP, getpgrp()}, {F_OWNER_TID, ready_thread}};
    for (int i = 0; i < 3; i++) {
        must(fcntl(ends[i][0], F_SETOWN_EX, &owners[i]));
        must(fcntl(ends[i][0], F_SETSIG, SIGRTMIN + 1 + i));
        must(fcntl(ends[i][0], F_SETFL, O_ASYNC | O_NONBLOCK));
    }
    int plain = (int)must(open(victim_path("plain"), O_RDONLY | O_CREAT, 0644));
    must(fcntl(plain, F_SETSIG, SIGUSR2)); /* without an owner */
    until_asleep(ready_thread);
    ready();
    go();
    for (int i = 0; i < 3; i++) {
        struct f_owner_ex owner;
        must(fcntl(ends[i][0], F_GETOWN_EX, &owner));
        expect(owner.type == owners[i].type && owner.pid == owners[i].pid, "owner %d is %d of type %d", i, owner.pid, owner.type);
        expect(fcntl(ends[i][0], F_GETSIG) == SIGRTMIN + 1 + i, "signal %d", fcntl(ends[i][0], F_GETSIG));
        expect((fcntl(ends[i][0], F_GETFL) & (O_ASYNC | O_NONBLOCK)) == (O_ASYNC | O_NONBLOCK), "flags %x", fcntl(ends[i][0], F_GETFL));
        must(write(ends[i][1], "x", 1));
    }
    expect(fcntl(plain, F_GETSIG) == SIGUSR2, "its signal is %d", fcntl(plain, F_GETSIG));
    expect(got(SIGRTMIN + 1, ends[0][0]), "the process was not told");
    expect(got(SIGRTMIN + 2, ends[1][0]), "the group was not told");
    pthread_join(thread, NULL);
    expect(result == 1, "the thread was not told");
    ok();
}
