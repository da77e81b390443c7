/* Watches keep numbers and masks, also where others were taken away between them, and a fork makes no events of its own. */
#include "victim.h"
#include <sys/inotify.h>

static char before[8192];

/* Number and mask of each watch, as the kernel shows them. */
static void list(int fd, char *ret, size_t size) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "re");
    expect(file, "no fdinfo");
    *ret = '\0';
    while (fgets(line, sizeof line, file)) {
        unsigned number, mask;
        if (sscanf(line, "inotify wd:%x ino:%*x sdev:%*x mask:%x", &number, &mask) == 2)
            snprintf(ret + strlen(ret), size - strlen(ret), "%u:%x ", number, mask);
    }
    fclose(file);
}

static void next(int fd, int watch, uint32_t mask, const char *name) {
    static char queue[65536] __attribute__((aligned(8)));
    static size_t at, filled;
    if (at == filled) {
        at = 0;
        filled = (size_t)must(read(fd, queue, sizeof queue));
    }
    struct inotify_event *event = (void *)(queue + at);
    at += sizeof *event + event->len;
    expect(event->wd == watch && event->mask == mask && !strcmp(event->len ? event->name : "", name), "watch %d (not %d), %x (not %x), %s (not %s)",
           event->wd, watch, event->mask, mask, event->len ? event->name : "", name);
}

int main(void) {
    int fd = (int)must(inotify_init1(IN_NONBLOCK)), number[40];
    char name[32], after[8192], told[4096];
    const uint32_t masks[] = {IN_CREATE, IN_ALL_EVENTS, IN_DELETE | IN_ONESHOT, IN_MODIFY | IN_EXCL_UNLINK, IN_CLOSE_WRITE | IN_MOVE};
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "d%d", i);
        must(mkdir(victim_path(name), 0755));
        number[i] = (int)must(inotify_add_watch(fd, victim_path(name), masks[i % 5]));
    }
    for (int i = 0; i < 40; i++)
        if (i % 3 == 0 || (i > 10 && i < 20) || i > 35)
            must(inotify_rm_watch(fd, number[i]));
    int shm = (int)must(inotify_add_watch(fd, "/dev/shm", IN_CREATE));
    int pass = (int)must(inotify_add_watch(fd, "/etc/passwd", IN_OPEN));
    must(inotify_add_watch(fd, "/usr/lib", IN_CREATE)); /* of the machine: it must be listed, nothing happens there */
    int proc = (int)must(inotify_add_watch(fd, "/proc/stat", IN_OPEN));
    must(symlink("d1", victim_path("link")));
    int link = (int)must(inotify_add_watch(fd, victim_path("link"), IN_DONT_FOLLOW | IN_ATTRIB));
    must(close((int)must(open(victim_path("plain"), O_CREAT | O_WRONLY, 0644))));
    int plain = (int)must(inotify_add_watch(fd, victim_path("plain"), IN_MODIFY));
    must(inotify_add_watch(fd, victim_path("plain"), IN_MASK_ADD | IN_ATTRIB));
    int two = (int)must(inotify_add_watch(fd, victim_path(""), IN_CREATE | IN_ONLYDIR));
    must(inotify_rm_watch(fd, two));
    while (read(fd, told, sizeof told) > 0)
        ;
    list(fd, before, sizeof before);
    ready();
    go();
    list(fd, after, sizeof after);
    expect(!strcmp(before, after), "%s, and before %s", after, before);
    expect(read(fd, told, sizeof told) == -1 && errno == EAGAIN, "a fork was told of: watch %d, mask %x, %s", ((struct inotify_event *)told)->wd,
           ((struct inotify_event *)told)->mask, ((struct inotify_event *)told)->name);
    must(close((int)must(open(victim_path("d1/one"), O_CREAT | O_WRONLY, 0644))));
    next(fd, number[1], IN_CREATE, "one");
    next(fd, number[1], IN_OPEN, "one");
    next(fd, number[1], IN_CLOSE_WRITE, "one");
    must(close((int)must(open(victim_path("d2/two"), O_CREAT | O_WRONLY, 0644))));
    must(unlink(victim_path("d2/two")));
    next(fd, number[2], IN_DELETE, "two");
    next(fd, number[2], IN_IGNORED, ""); /* it was for once */
    must(close((int)must(open("/dev/shm/seen", O_CREAT | O_WRONLY, 0644))));
    next(fd, shm, IN_CREATE, "seen");
    must(unlink("/dev/shm/seen"));
    must(close((int)must(open("/etc/passwd", O_RDONLY))));
    next(fd, pass, IN_OPEN, "");
    must(close((int)must(open("/proc/stat", O_RDONLY))));
    next(fd, proc, IN_OPEN, "");
    must(fchownat(AT_FDCWD, victim_path("link"), getuid(), getgid(), AT_SYMLINK_NOFOLLOW));
    next(fd, link, IN_ATTRIB, "");
    must(chmod(victim_path("plain"), 0600));
    next(fd, plain, IN_ATTRIB, "");
    must(truncate(victim_path("plain"), 5));
    next(fd, plain, IN_MODIFY, "");
    expect(read(fd, told, sizeof told) == -1 && errno == EAGAIN, "more was told");
    ok();
}
