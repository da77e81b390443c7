/* clock_nanosleep for a time, on the monotonic clock. */
#include "blocked.h"

int main(void) {
    timed_start(1.6);
    struct timespec time = {1, 600000000};
    int result = clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    expect(result == 0, "the sleep gave %d", result);
    on_time();
    ok();
}
