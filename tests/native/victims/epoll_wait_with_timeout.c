/* epoll_wait() with a timeout ends by it and is not disturbed. The kernel keeps no rest of it, so it may last longer. */
#include "blocked.h"
#include <sys/epoll.h>

int main(void) {
    int poll = (int)must(epoll_create1(0));
    timed_start(1.2);
    struct epoll_event event;
    int result = epoll_wait(poll, &event, 1, 1200);
    expect(result == 0, "epoll_wait gave %d", result);
    expect(now() - timed_begun >= 1.19, "over after %.3f s", now() - timed_begun);
    go();
    ok();
}
