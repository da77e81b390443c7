/* select() with a timeout ends by it, in time. */
#include "blocked.h"
#include <sys/select.h>

int main(void) {
    int pipes[2];
    must(pipe(pipes));
    timed_start(1.6);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    struct timeval time = {1, 600000};
    int result = select(pipes[0] + 1, &set, NULL, NULL, &time);
    expect(result == 0, "select gave %d", result);
    on_time();
    ok();
}
