/* Periodic timers on every clock, of every kind: they tick on, and never for a time that the program has not lived through. */
#include "victim.h"
#include <sys/time.h>
#include <sys/timerfd.h>

#define PERIOD 0.05

static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, CLOCK_TAI};
static const clockid_t fd_clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME, CLOCK_REALTIME};
static atomic_int ticks[5];

static void on_timer(int number, siginfo_t *info, void *context) {
    (void)context;
    if (number == SIGALRM)
        ticks[4]++;
    else
        ticks[info->si_value.sival_int] += 1 + info->si_overrun;
}

static void agree(clockid_t clock) {
    struct timespec quick, slow;
    double least = 1;
    for (int i = 0; i < 20; i++) {
        syscall(SYS_clock_gettime, clock, &slow);
        clock_gettime(clock, &quick); /* from the vdso */
        double apart = (double)(quick.tv_sec - slow.tv_sec) + (double)(quick.tv_nsec - slow.tv_nsec) / 1e9;
        apart = apart < 0 ? -apart : apart;
        least = apart < least ? apart : least;
    }
    expect(least < 0.005, "clock %d: the vdso and the kernel are %.3f s apart", clock, least);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    must(sigaction(SIGRTMIN, &action, NULL));
    must(sigaction(SIGALRM, &action, NULL));
    struct itimerspec period = {{0, 50000000}, {0, 50000000}};
    struct itimerval real = {{0, 50000}, {0, 50000}};
    timer_t timers[4], own;
    int fds[4];
    double begun = now();
    for (int i = 0; i < 4; i++) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = i};
        must(timer_create(clocks[i], &event, &timers[i]));
        must(timer_settime(timers[i], 0, &period, NULL));
        fds[i] = (int)must(timerfd_create(fd_clocks[i], TFD_NONBLOCK));
        struct itimerspec setting = period;
        if (i == 3)
            clock_gettime(CLOCK_REALTIME, &setting.it_value); /* by the wall clock */
        must(timerfd_settime(fds[i], i == 3 ? TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET : 0, &setting, NULL));
    }
    must(setitimer(ITIMER_REAL, &real, NULL));
    struct sigevent cpu_event = {.sigev_notify = SIGEV_NONE};
    clockid_t own_clock;
    pthread_getcpuclockid(pthread_self(), &own_clock);
    struct itimerspec left = {{0, 0}, {3000, 0}};
    must(timer_create(own_clock, &cpu_event, &own));
    must(timer_settime(own, 0, &left, NULL));
    nap(0.2);
    ready();
    go();
    nap(0.2);
    double most = (now() - begun) / PERIOD + 3, least = (now() - begun - slack) / PERIOD * 0.5 - 2;
    for (int i = 0; i < 5; i++)
        expect(ticks[i] <= most && ticks[i] >= least, "timer %d ticked %d times: from %.0f to %.0f can be", i, ticks[i], least, most);
    for (int i = 0; i < 4; i++) {
        uint64_t count = 0;
        expect(read(fds[i], &count, 8) == 8, "descriptor %d does not tick", i);
        expect((double)count <= most && (double)count >= least, "descriptor %d ticked %lu times: from %.0f to %.0f can be", i, (unsigned long)count, least, most);
    }
    must(timer_gettime(own, &left));
    expect(left.it_value.tv_sec > 2990 && left.it_value.tv_sec <= 3000, "processor time: %ld s left", (long)left.it_value.tv_sec);
    static const clockid_t all[] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_REALTIME, CLOCK_MONOTONIC_RAW};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        agree(all[i]);
    ok();
}
