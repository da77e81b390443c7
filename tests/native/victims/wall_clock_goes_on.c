/* A wait for a point of wall-clock time ends then, and one that has passed in the meantime ends at once, once. */
#include "victim.h"
#include <sys/timerfd.h>

int main(void) {
    struct timespec soon, later;
    int fd = (int)must(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK)), far = (int)must(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
    clock_gettime(CLOCK_REALTIME, &soon);
    later = soon;
    soon.tv_sec += 1;
    later.tv_sec += 1000;
    must(timerfd_settime(fd, TFD_TIMER_ABSTIME, &(struct itimerspec){.it_value = soon}, NULL));
    must(timerfd_settime(far, TFD_TIMER_ABSTIME, &(struct itimerspec){.it_value = later}, NULL));
    ready();
    go();
    uint64_t ticks;
    struct timespec time;
    for (clock_gettime(CLOCK_REALTIME, &time); time.tv_sec < soon.tv_sec + 1; clock_gettime(CLOCK_REALTIME, &time))
        nap(0.05);
    expect(read(fd, &ticks, 8) == 8 && ticks == 1, "not due");
    expect(read(fd, &ticks, 8) == -1 && errno == EAGAIN, "due twice");
    struct itimerspec left;
    must(timerfd_gettime(far, &left));
    clock_gettime(CLOCK_REALTIME, &time);
    double want = (double)(later.tv_sec - time.tv_sec) + (double)(later.tv_nsec - time.tv_nsec) / 1e9, have = (double)left.it_value.tv_sec + (double)left.it_value.tv_nsec / 1e9;
    expect(have > want - 0.2 && have < want + 0.2, "%.2f s left, not %.2f", have, want);
    ok();
}
