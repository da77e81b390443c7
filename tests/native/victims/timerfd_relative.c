/* A timer descriptor set to some seconds from then: it expires on time, once. */
#include "victim.h"
#include <sys/timerfd.h>

int main(void) {
    int fd = (int)must(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    struct itimerspec setting = {{0, 0}, {2, 0}}, have;
    uint64_t ticks;
    double begun = now();
    must(timerfd_settime(fd, 0, &setting, NULL));
    nap(1);
    ready();
    while (read(fd, &ticks, 8) != 8)
        nap(0.01);
    double took = now() - begun;
    go();
    expect(ticks == 1 && took >= 1.99 && took < 2.8 + slack, "%lu ticks after %.2f s (slack %.2f)", (unsigned long)ticks, took, slack);
    must(timerfd_gettime(fd, &have));
    expect(have.it_value.tv_sec == 0 && have.it_value.tv_nsec == 0, "it runs on");
    ok();
}
