/* A file that was sealed with its name, and loses it in the fork, goes along into the next one. */
#include "victim.h"

static const char names[][16] = {"reads", "writes", "linked"};
static int fds[3];

/* Every fork is a mount of its own: that is how the victim knows. */
static void *delete_in_a_fork(void *unused) {
    struct stat at_first, now;
    must(stat(victim_path(""), &at_first));
    do {
        nap(0.0005);
        must(stat(victim_path(""), &now));
    } while (now.st_dev == at_first.st_dev);
    for (int i = 0; i < 3; i++)
        must(unlink(victim_path(names[i])));
    return unused;
}

int main(void) {
    char other[4096];
    pthread_t thread;
    for (int i = 0; i < 3; i++) {
        int fd = (int)must(open(victim_path(names[i]), O_RDWR | O_CREAT, 0644));
        must(write(fd, names[i], strlen(names[i])));
        must(close(fd));
        fds[i] = (int)must(open(victim_path(names[i]), i == 1 ? O_RDWR : O_RDONLY));
    }
    snprintf(other, sizeof other, "%s", victim_path("other name"));
    must(link(victim_path("linked"), other));
    expect(pthread_create(&thread, NULL, delete_in_a_fork, NULL) == 0, "no thread");
    ready();
    go();
    pthread_cancel(thread); /* in the source of all, where nobody has forked it */
    for (int i = 0; i < 3; i++) {
        char text[32] = "";
        must(pread(fds[i], text, 31, 0));
        expect(!strcmp(text, names[i]), "%s holds %s", names[i], text);
    }
    expect(access(other, F_OK) == 0, "the other name is gone");
    must(pwrite(fds[1], "still", 5, 0));
    ok();
}
