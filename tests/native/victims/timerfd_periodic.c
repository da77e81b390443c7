/* A periodic timer descriptor: ticks nobody has read yet are kept, and it ticks on with its interval. */
#include "victim.h"
#include <sys/timerfd.h>

int main(void) {
    int fd = (int)must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)), long_one = (int)must(timerfd_create(CLOCK_BOOTTIME, 0)), unset = (int)must(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
    struct itimerspec fast = {{0, 20000000}, {0, 20000000}}, slow = {{500, 5}, {4000, 0}}, have;
    uint64_t ticks, total = 0;
    double begun = now();
    must(timerfd_settime(fd, 0, &fast, NULL));
    must(timerfd_settime(long_one, 0, &slow, NULL));
    nap(0.4); /* some twenty unread ticks */
    ready();
    go();
    must(read(fd, &ticks, 8));
    total = ticks;
    expect(ticks >= 19, "%lu ticks kept of about twenty", (unsigned long)ticks);
    must(read(fd, &ticks, 8));
    total += ticks;
    double most = (now() - begun) / 0.02 + 1;
    expect((double)total <= most, "%lu ticks, there can be %.0f", (unsigned long)total, most);
    must(timerfd_gettime(fd, &have));
    expect(have.it_interval.tv_sec == 0 && have.it_interval.tv_nsec == 20000000, "interval %ld", have.it_interval.tv_nsec);
    must(timerfd_gettime(long_one, &have));
    expect(have.it_interval.tv_sec == 500 && have.it_interval.tv_nsec == 5 && have.it_value.tv_sec > 3900 && have.it_value.tv_sec <= 4000, "the long one: %ld s left", (long)have.it_value.tv_sec);
    expect(read(unset, &ticks, 8) == -1 && errno == EAGAIN, "one that was not set ticks");
    ok();
}
