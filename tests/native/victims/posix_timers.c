/* POSIX timers: number, clock, value, interval, overrun; one for a thread, one silent, one not armed. */
#include "victim.h"

static volatile sig_atomic_t periodic, other, for_thread;
static atomic_int thread_id;

static void on_timer(int number, siginfo_t *info, void *context) {
    (void)context;
    if (number == SIGRTMIN + 1)
        for_thread += gettid() == thread_id;
    else if (info->si_code == SI_TIMER && info->si_value.sival_int == 4711)
        periodic++;
    else
        other++;
}

static void *thread(void *argument) {
    thread_id = gettid();
    for (;;)
        nap(1);
    return argument;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    must(sigaction(SIGRTMIN, &action, NULL));
    must(sigaction(SIGRTMIN + 1, &action, NULL));
    pthread_t id;
    must(-pthread_create(&id, NULL, thread, NULL));
    while (!thread_id)
        nap(0.002);
    timer_t timers[5];
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 4711};
    must(timer_create(CLOCK_MONOTONIC, &event, &timers[0]));
    must(timer_create(CLOCK_REALTIME, &event, &timers[1]));
    must(timer_delete(timers[1])); /* leaves a gap in the numbers */
    event.sigev_notify = SIGEV_NONE;
    must(timer_create(CLOCK_REALTIME, &event, &timers[2]));
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 1};
    event._sigev_un._tid = thread_id;
    must(timer_create(CLOCK_MONOTONIC, &event, &timers[3]));
    event = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    must(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timers[4]));
    struct itimerspec fast = {{0, 40000000}, {0, 40000000}}, slow = {{0, 0}, {5000, 0}}, have;
    must(timer_settime(timers[0], 0, &fast, NULL));
    must(timer_settime(timers[2], 0, &slow, NULL));
    must(timer_settime(timers[3], 0, &fast, NULL));
    must(timer_settime(timers[4], 0, &slow, NULL));
    ready();
    go();
    int before = periodic, before_thread = for_thread;
    for (double end = now() + 10; periodic < before + 3 || for_thread < before_thread + 3; nap(0.01))
        expect(now() < end, "a timer has stopped: %d and %d ticks", periodic - before, for_thread - before_thread);
    must(timer_gettime(timers[0], &have));
    expect(have.it_interval.tv_nsec == 40000000, "interval %ld", have.it_interval.tv_nsec);
    must(timer_gettime(timers[2], &have));
    expect(have.it_value.tv_sec > 4900 && have.it_value.tv_sec <= 5000, "%ld s left of 5000", (long)have.it_value.tv_sec);
    must(timer_gettime(timers[4], &have));
    expect(have.it_value.tv_sec > 4900 && have.it_value.tv_sec <= 5000, "processor time: %ld s left of 5000", (long)have.it_value.tv_sec);
    expect(timer_gettime(timers[1], &have) == -1 && errno == EINVAL, "the deleted timer is back");
    expect(other == 0, "%d signals of nobody", other);
    for (int i = 0; i < 5; i++)
        if (i != 1)
            must(timer_delete(timers[i]));
    ok();
}
