/* clock_nanosleep until a point in time. */
#include "blocked.h"

int main(void) {
    timed_start(1.6);
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_sec += 1;
    time.tv_nsec += 600000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    int result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
    expect(result == 0, "the sleep gave %d", result);
    on_time();
    ok();
}
