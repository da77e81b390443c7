/* A timer descriptor that expired before the fork and was not read: readable at once, once. */
#include "victim.h"
#include <sys/timerfd.h>

int main(void) {
    int fd = (int)must(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    struct itimerspec setting = {{0, 0}, {0, 1000000}};
    uint64_t ticks = 0;
    must(timerfd_settime(fd, 0, &setting, NULL));
    nap(0.05);
    ready();
    go();
    expect(read(fd, &ticks, 8) == 8 && ticks == 1, "%lu ticks", (unsigned long)ticks);
    expect(read(fd, &ticks, 8) == -1 && errno == EAGAIN, "another tick");
    ok();
}
