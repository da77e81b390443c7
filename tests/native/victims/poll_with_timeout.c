/* poll() with a timeout ends by it, in time. */
#include "blocked.h"
#include <poll.h>

int main(void) {
    int pipes[2];
    must(pipe(pipes));
    timed_start(1.6);
    struct pollfd wait = {.fd = pipes[0], .events = POLLIN};
    int result = poll(&wait, 1, 1600);
    expect(result == 0, "poll gave %d", result);
    on_time();
    ok();
}
