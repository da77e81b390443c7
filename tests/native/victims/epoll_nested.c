/* An epoll that watches an epoll that watches an event counter, in a process and in its child that inherited both. */
#include "victim.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

int main(void) {
    int outer = (int)must(epoll_create1(0)), inner = (int)must(epoll_create1(0)), event = (int)must(eventfd(0, EFD_NONBLOCK));
    struct epoll_event watch = {.events = EPOLLIN, .data.u64 = 1}, got;
    must(epoll_ctl(inner, EPOLL_CTL_ADD, event, &watch));
    watch.data.u64 = 2;
    must(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &watch));
    pid_t child = fork();
    if (child == 0) {
        expect(epoll_wait(outer, &got, 1, 60000) == 1 && got.data.u64 == 2, "the child's wait");
        _exit(went() ? 0 : 3);
    }
    until_asleep(child);
    ready();
    go();
    uint64_t one = 1;
    expect(epoll_wait(outer, &got, 1, 0) == 0, "ready too early");
    must(write(event, &one, 8));
    expect(epoll_wait(outer, &got, 1, 5000) == 1 && got.data.u64 == 2, "outer");
    expect(epoll_wait(inner, &got, 1, 5000) == 1 && got.data.u64 == 1, "inner");
    child_ends_well(child);
    ok();
}
