/* Readers that wait for events: one in read, one in epoll, one through a description it shares with its parent. */
#include "victim.h"
#include <sys/epoll.h>
#include <sys/inotify.h>

static void one_event(int fd, const char *name) {
    char buffer[4096] __attribute__((aligned(8)));
    ssize_t length = must(read(fd, buffer, sizeof buffer));
    struct inotify_event *event = (void *)buffer;
    expect(event->mask == IN_CREATE && !strcmp(event->name, name), "mask %x, %s", event->mask, event->name);
    expect(length == (ssize_t)(sizeof *event + event->len), "more than one event");
}

int main(void) {
    must(mkdir(victim_path("in read"), 0755));
    must(mkdir(victim_path("in epoll"), 0755));
    must(mkdir(victim_path("shared"), 0755));
    int shared = (int)must(inotify_init1(IN_CLOEXEC));
    must(inotify_add_watch(shared, victim_path("shared"), IN_CREATE));
    pid_t child[3];
    for (int i = 0; i < 3; i++)
        if (!(child[i] = (pid_t)must(fork()))) {
            int fd = i == 2 ? shared : (int)must(inotify_init1(0));
            if (i < 2)
                must(inotify_add_watch(fd, victim_path(i ? "in epoll" : "in read"), IN_CREATE));
            if (i == 1) {
                struct epoll_event event = {.events = EPOLLIN | EPOLLET};
                int epoll = (int)must(epoll_create1(0));
                must(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
                while (epoll_wait(epoll, &event, 1, -1) < 0)
                    expect(errno == EINTR, "epoll_wait");
            }
            one_event(fd, "told");
            _exit(0);
        }
    for (int i = 0; i < 3; i++)
        until_asleep(child[i]);
    ready();
    go();
    for (int i = 0; i < 3; i++) {
        const char *const names[] = {"in read/told", "in epoll/told", "shared/told"};
        must(close((int)must(open(victim_path(names[i]), O_CREAT | O_WRONLY, 0644))));
        child_ends_well(child[i]);
    }
    must(close((int)must(open(victim_path("shared/again"), O_CREAT | O_WRONLY, 0644))));
    one_event(shared, "again");
    ok();
}
