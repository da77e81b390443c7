/* Thousands of watches, one on each directory of a tree whose upper half was moved since: each still tells of its own. */
#include "victim.h"
#include <sys/inotify.h>

enum { TOP = 40, EACH = 50 };

static int watch[TOP][EACH];

static const char *at(int top, int each, bool moved, const char *name) {
    static char path[4300];
    snprintf(path, sizeof path, "%s/%s/%d/%d%s", victim_path("tree"), moved && top % 2 ? "moved" : "here", top, each, name);
    return path;
}

int main(void) {
    char from[4300], to[4300], told[4096] __attribute__((aligned(8)));
    int fd = (int)must(inotify_init1(IN_NONBLOCK));
    must(mkdir(victim_path("tree"), 0755));
    must(mkdir(victim_path("tree/here"), 0755));
    must(mkdir(victim_path("tree/moved"), 0755));
    for (int i = 0; i < TOP; i++) {
        snprintf(from, sizeof from, "%s/%d", victim_path("tree/here"), i);
        must(mkdir(from, 0755));
        for (int j = 0; j < EACH; j++) {
            must(mkdir(at(i, j, false, ""), 0755));
            watch[i][j] = (int)must(inotify_add_watch(fd, at(i, j, false, ""), IN_CREATE));
        }
        snprintf(to, sizeof to, "%s/%d", victim_path("tree/moved"), i);
        if (i % 2)
            must(rename(from, to));
    }
    ready();
    go();
    for (int i = 0; i < TOP; i++)
        for (int j = 0; j < EACH; j++) {
            must(close((int)must(open(at(i, j, true, "/new"), O_CREAT | O_WRONLY, 0644))));
            must(read(fd, told, sizeof told));
            struct inotify_event *event = (void *)told;
            expect(event->wd == watch[i][j] && event->mask == IN_CREATE, "%d/%d: watch %d, not %d", i, j, event->wd, watch[i][j]);
        }
    expect(read(fd, told, sizeof told) == -1 && errno == EAGAIN, "more was told");
    ok();
}
