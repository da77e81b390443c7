/* The three interval timers: real time goes on ticking, the two of processor time keep what is left. */
#include "victim.h"
#include <sys/time.h>

static volatile sig_atomic_t ticks;
static void tick(int number) { ticks += number == SIGALRM; }

int main(void) {
    struct itimerval real = {{0, 50000}, {0, 50000}}, virtual = {{7, 0}, {1000, 0}}, profile = {{0, 0}, {2000, 0}}, have;
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    must(sigaction(SIGALRM, &action, NULL));
    must(setitimer(ITIMER_REAL, &real, NULL));
    must(setitimer(ITIMER_VIRTUAL, &virtual, NULL));
    must(setitimer(ITIMER_PROF, &profile, NULL));
    while (ticks < 2)
        nap(0.01);
    ready();
    go();
    int before = ticks;
    for (double end = now() + 10; ticks < before + 4; nap(0.01))
        expect(now() < end, "the timer has stopped after %d ticks", ticks - before);
    must(getitimer(ITIMER_REAL, &have));
    expect(have.it_interval.tv_sec == 0 && have.it_interval.tv_usec == 50000, "interval %ld.%06ld", have.it_interval.tv_sec, have.it_interval.tv_usec);
    must(getitimer(ITIMER_VIRTUAL, &have));
    expect(have.it_interval.tv_sec == 7 && have.it_value.tv_sec >= 990 && have.it_value.tv_sec <= 1000, "virtual: %ld left of 1000", have.it_value.tv_sec);
    must(getitimer(ITIMER_PROF, &have));
    expect(have.it_value.tv_sec >= 1990 && have.it_value.tv_sec <= 2000, "profile: %ld left of 2000", have.it_value.tv_sec);
    ok();
}
