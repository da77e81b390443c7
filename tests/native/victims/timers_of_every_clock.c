/* POSIX timers on every clock, with every way of telling, some not set: all keep what they were set to, and fire in time. */
#include "victim.h"

static const struct {
    clockid_t clock;
    int notify;
} kinds[] = {
    {CLOCK_REALTIME, SIGEV_SIGNAL},           {CLOCK_MONOTONIC, SIGEV_SIGNAL}, {CLOCK_BOOTTIME, SIGEV_SIGNAL},
    {CLOCK_TAI, SIGEV_SIGNAL},                {CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL}, {CLOCK_THREAD_CPUTIME_ID, SIGEV_SIGNAL},
    {CLOCK_MONOTONIC, SIGEV_NONE},            {CLOCK_MONOTONIC, SIGEV_THREAD_ID},
};
enum { COUNT = sizeof kinds / sizeof *kinds };
static atomic_int fired[COUNT + 1], fired_in;

static void on_timer(int number, siginfo_t *info, void *context) {
    (void)context;
    if (number == SIGRTMIN + 3 && info->si_code == SI_TIMER && info->si_value.sival_int >= 0 && info->si_value.sival_int <= COUNT) {
        fired[info->si_value.sival_int]++;
        if (info->si_value.sival_int == 7)
            fired_in = gettid();
    }
}

static atomic_int tid, over;
static void *thread(void *argument) {
    tid = gettid();
    while (!over)
        nap(0.01);
    return argument;
}

int main(void) {
    timer_t timer[COUNT + 1];
    pthread_t id;
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    must(sigaction(SIGRTMIN + 3, &action, NULL));
    must(-pthread_create(&id, NULL, thread, NULL));
    while (!tid)
        nap(0.001);
    for (int i = 0; i <= COUNT; i++) {
        int k = i < COUNT ? i : 1;
        struct sigevent event = {.sigev_notify = kinds[k].notify, .sigev_signo = SIGRTMIN + 3, .sigev_value.sival_int = i};
        event._sigev_un._tid = kinds[k].notify == SIGEV_THREAD_ID ? tid : 0;
        must(timer_create(kinds[k].clock, &event, &timer[i]));
        struct itimerspec setting = {{i == 3 ? 5000 : 0, 0}, {i == 6 ? 1000 : i == 3 ? 2000 : 0, i == 6 || i == 3 ? 0 : 400000000}};
        if (i < COUNT)
            must(timer_settime(timer[i], 0, &setting, NULL));
    }
    must(timer_delete(timer[2]));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3, .sigev_value.sival_int = 2};
    must(timer_create(CLOCK_BOOTTIME, &event, &timer[2])); /* ids with a gap */
    struct itimerspec late = {{0, 0}, {0, 400000000}}, left;
    must(timer_settime(timer[2], 0, &late, NULL));
    ready();
    go();
    must(timer_gettime(timer[3], &left));
    expect(left.it_interval.tv_sec == 5000 && left.it_value.tv_sec <= 2000 && (double)left.it_value.tv_sec > 1990 - slack, "left on CLOCK_TAI: %ld of %ld",
           (long)left.it_value.tv_sec, (long)left.it_interval.tv_sec);
    must(timer_gettime(timer[6], &left));
    expect(left.it_value.tv_sec <= 1000 && (double)left.it_value.tv_sec > 990 - slack, "left of a silent one: %ld", (long)left.it_value.tv_sec);
    must(timer_gettime(timer[COUNT], &left));
    expect(!left.it_value.tv_sec && !left.it_value.tv_nsec, "one that is not set runs");
    for (double begun = now(); now() - begun < 10;) { /* the clocks of processor time need work */
        bool all = true;
        for (int i = 0; i < COUNT; i++)
            all &= i == 3 || i == 6 || fired[i];
        if (all)
            break;
    }
    for (int i = 0; i <= COUNT; i++)
        expect(fired[i] == (i == 3 || i == 6 || i == COUNT ? 0 : 1), "timer %d fired %d times", i, fired[i]);
    expect(fired_in == tid, "thread %d was told, not %d", fired_in, tid);
    over = 1;
    ok();
}
