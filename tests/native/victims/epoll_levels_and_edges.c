/* An epoll with pipes watched by level, by edge and once, with data values; what was seen before is not told again by edge. */
#include "victim.h"
#include <sys/epoll.h>

static int wait_all(int poll, uint64_t *seen) {
    struct epoll_event events[8];
    int count = (int)must(epoll_wait(poll, events, 8, 0));
    *seen = 0;
    for (int i = 0; i < count; i++)
        *seen |= events[i].data.u64;
    return count;
}

int main(void) {
    int poll = (int)must(epoll_create1(EPOLL_CLOEXEC)), pipes[3][2];
    static const uint32_t how[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT};
    uint64_t seen;
    for (int i = 0; i < 3; i++) {
        must(pipe(pipes[i]));
        struct epoll_event event = {.events = how[i], .data.u64 = 0x100000000ull << (4 * i)};
        must(epoll_ctl(poll, EPOLL_CTL_ADD, pipes[i][0], &event));
        must(write(pipes[i][1], "x", 1));
    }
    expect(wait_all(poll, &seen) == 3 && seen == 0x11100000000ull, "before: %lx", (unsigned long)seen);
    ready();
    go();
    char x;
    wait_all(poll, &seen);
    expect(seen & 0x100000000ull, "what is readable is not told: %lx", (unsigned long)seen);
    expect(!(seen & 0x10000000000ull), "a watch for one time tells again: %lx", (unsigned long)seen);
    must(write(pipes[1][1], "y", 1));
    wait_all(poll, &seen);
    expect(seen == 0x1100000000ull, "after a write: %lx", (unsigned long)seen);
    must(read(pipes[0][0], &x, 1));
    expect(wait_all(poll, &seen) == 0, "after reading: %lx", (unsigned long)seen);
    struct epoll_event again = {.events = EPOLLIN, .data.u64 = 7};
    must(epoll_ctl(poll, EPOLL_CTL_MOD, pipes[2][0], &again));
    expect(wait_all(poll, &seen) == 1 && seen == 7, "after asking again: %lx", (unsigned long)seen);
    must(epoll_ctl(poll, EPOLL_CTL_DEL, pipes[2][0], NULL));
    expect(epoll_ctl(poll, EPOLL_CTL_DEL, pipes[2][0], NULL) == -1 && errno == ENOENT, "deleted twice");
    ok();
}
