/* A sleep that was told where to put the rest: it is not disturbed, and the place is not written. */
#include "blocked.h"

int main(void) {
    timed_start(1.6);
    struct timespec time = {1, 600000000}, rest = {77, 77};
    expect(nanosleep(&time, &rest) == 0, "the sleep was disturbed");
    on_time();
    ok();
}
