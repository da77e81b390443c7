/* A sleep of some seconds without a place for the rest ends when it was to end. */
#include "blocked.h"

int main(void) {
    timed_start(2.4);
    struct timespec time = {2, 400000000};
    expect(nanosleep(&time, NULL) == 0, "the sleep was disturbed");
    on_time();
    ok();
}
