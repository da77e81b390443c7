/* A watcher that is told in bursts, and reads a little later, misses nothing. */
#include "victim.h"
#include <sys/inotify.h>

static atomic_int stop;

static void *makes(void *unused) {
    char name[64];
    for (int i = 0; !stop; i++) {
        snprintf(name, sizeof name, "watched/%d", i);
        must(close((int)must(open(victim_path(name), O_CREAT | O_WRONLY, 0644))));
        if (i % 8 == 7)
            nap(0.005);
        if (i >= 64) {
            snprintf(name, sizeof name, "watched/%d", i - 64);
            must(unlink(victim_path(name)));
        }
    }
    must(close((int)must(open(victim_path("watched/last"), O_CREAT | O_WRONLY, 0644))));
    return unused;
}

static void *goes(void *unused) {
    go();
    stop = 1;
    return unused;
}

int main(void) {
    pthread_t maker, goer;
    char buffer[8192] __attribute__((aligned(8)));
    int fd = (int)must(inotify_init1(0)), next = 0;
    must(mkdir(victim_path("watched"), 0755));
    must(inotify_add_watch(fd, victim_path("watched"), IN_CREATE));
    expect(!pthread_create(&maker, NULL, makes, NULL) && !pthread_create(&goer, NULL, goes, NULL), "no threads");
    ready();
    for (bool last = false; !last;) {
        nap(0.002); /* as watchers do that wait for the end of a burst */
        ssize_t length = read(fd, buffer, sizeof buffer);
        expect(length > 0, "read gave %zd", length);
        for (char *at = buffer; at < buffer + length;) {
            struct inotify_event *event = (void *)at;
            at += sizeof *event + event->len;
            expect(event->mask == IN_CREATE, "mask %x", event->mask);
            if ((last = !strcmp(event->name, "last")))
                break;
            expect(atoi(event->name) == next, "%s was told of, and not %d", event->name, next);
            next++;
        }
    }
    pthread_join(maker, NULL);
    pthread_join(goer, NULL);
    expect(next > 8, "%d were made", next);
    ok();
}
