/* A watch on a directory tells of files made after the fork. */
#include "victim.h"
#include <sys/inotify.h>

int main(void) {
    int fd = (int)must(inotify_init1(IN_NONBLOCK));
    must(mkdir(victim_path("watched"), 0755));
    int watch = (int)must(inotify_add_watch(fd, victim_path("watched"), IN_CREATE));
    ready();
    go();
    must(open(victim_path("watched/new"), O_CREAT | O_WRONLY, 0644));
    char buffer[4096];
    expect(read(fd, buffer, sizeof buffer) > 0, "nothing was told");
    struct inotify_event *event = (void *)buffer;
    expect(event->wd == watch && event->mask == IN_CREATE && !strcmp(event->name, "new"), "watch %d, %x, %s", event->wd, event->mask, event->name);
    ok();
}
