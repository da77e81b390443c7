/* A sleep of some seconds without a place for the rest ends when it was to end. */
#include "blocked.h"

int main(void) {
    timed_start(1.6);
    struct timespec time = {1, 600000000};
    expect(nanosleep(&time, NULL) == 0, "the sleep was disturbed");
    on_time();
    ok();
}
