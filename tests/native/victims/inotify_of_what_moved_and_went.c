/* Watches lie on files, not on names: on what was renamed, replaced, deleted but open, or is a deleted working directory. */
#include "victim.h"
#include <sys/inotify.h>

static int fd;

static void next(int watch, uint32_t mask) {
    static char queue[65536] __attribute__((aligned(8)));
    static size_t at, filled;
    if (at == filled) {
        at = 0;
        filled = (size_t)must(read(fd, queue, sizeof queue));
    }
    struct inotify_event *event = (void *)(queue + at);
    at += sizeof *event + event->len;
    expect(event->wd == watch && event->mask == mask, "watch %d (not %d), mask %x (not %x), %s", event->wd, watch, event->mask, mask,
           event->len ? event->name : "");
}

static int make(const char *name) { return (int)must(open(victim_path(name), O_CREAT | O_RDWR, 0644)); }

static int watch(const char *name, uint32_t mask) { return (int)must(inotify_add_watch(fd, victim_path(name), mask)); }

static void move(const char *from, const char *to) {
    char target[4096];
    snprintf(target, sizeof target, "%s", victim_path(to));
    must(rename(victim_path(from), target));
}

int main(void) {
    char told[4096];
    fd = (int)must(inotify_init1(IN_NONBLOCK));
    must(mkdir(victim_path("first"), 0755));
    must(mkdir(victim_path("first/inner"), 0755));
    must(mkdir(victim_path("elsewhere"), 0755));
    int directory = watch("first/inner", IN_CREATE);
    move("first/inner", "elsewhere/moved");
    must(close(make("old")));
    int replaced = watch("old", IN_MODIFY);
    move("old", "kept");
    must(close(make("old"))); /* another one */
    int gone = make("gone"), deleted = watch("gone", IN_MODIFY | IN_DELETE_SELF);
    must(unlink(victim_path("gone")));
    must(mkdir(victim_path("place"), 0755));
    must(chdir(victim_path("place")));
    int place = watch("place", IN_ATTRIB);
    must(rmdir(victim_path("place")));
    must(close(make("a name")));
    int twice = watch("a name", IN_ATTRIB);
    char target[4096];
    snprintf(target, sizeof target, "%s", victim_path("another name"));
    must(link(victim_path("a name"), target));
    must(unlink(victim_path("a name")));
    while (read(fd, told, sizeof told) > 0)
        ;
    ready();
    go();
    expect(read(fd, told, sizeof told) == -1 && errno == EAGAIN, "a fork was told of something");
    must(close(make("elsewhere/moved/new")));
    next(directory, IN_CREATE);
    must(truncate(victim_path("old"), 3));
    must(truncate(victim_path("kept"), 3));
    next(replaced, IN_MODIFY);
    must(write(gone, "x", 1));
    next(deleted, IN_MODIFY);
    must(close(gone));
    next(deleted, IN_DELETE_SELF);
    next(deleted, IN_IGNORED);
    must(chmod(".", 0700));
    next(place, IN_ATTRIB | IN_ISDIR);
    must(chmod(victim_path("another name"), 0600));
    next(twice, IN_ATTRIB);
    expect(read(fd, told, sizeof told) == -1 && errno == EAGAIN, "more was told");
    ok();
}
