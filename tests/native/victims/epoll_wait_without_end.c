/* A thread in epoll_wait wakes for what comes after the fork. */
#include "blocked.h"
#include <sys/epoll.h>

static int pipes[2];
static void end_it(void) { must(write(pipes[1], "x", 1)); }

int main(void) {
    int poll = (int)must(epoll_create1(0));
    struct epoll_event watch = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = 0x123456789abcdef}, got;
    must(pipe(pipes));
    must(epoll_ctl(poll, EPOLL_CTL_ADD, pipes[0], &watch));
    pthread_t id = herald_start(end_it);
    int result = epoll_wait(poll, &got, 1, -1);
    expect(result == 1 && got.data.u64 == 0x123456789abcdef && got.events == EPOLLIN, "epoll_wait gave %d", result);
    pthread_join(id, NULL);
    ok();
}
