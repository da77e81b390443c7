/* Files keep the flags they were opened with. */
#include "victim.h"

int main(void) {
    static const int flags[] = {O_RDWR | O_SYNC, O_WRONLY | O_DSYNC, O_RDONLY | O_NOATIME, O_RDWR | O_APPEND, O_RDWR | O_NONBLOCK,
                                O_RDONLY | O_DIRECT, O_RDONLY | O_NOFOLLOW, O_RDWR | O_SYNC | O_APPEND | O_NONBLOCK, O_RDWR | O_ASYNC};
    enum { COUNT = sizeof flags / sizeof *flags };
    int fd[COUNT], before[COUNT];
    must(close((int)must(open(victim_path("file"), O_CREAT | O_WRONLY, 0644))));
    for (int i = 0; i < COUNT; i++) {
        fd[i] = open(victim_path("file"), flags[i] | (i % 2 ? O_CLOEXEC : 0));
        if (fd[i] < 0 && flags[i] & O_DIRECT)
            fd[i] = (int)must(open(victim_path("file"), flags[i] & ~O_DIRECT)); /* not on every file system */
        expect(fd[i] >= 0, "cannot open it with %x", flags[i]);
        before[i] = fcntl(fd[i], F_GETFL);
    }
    ready();
    go();
    for (int i = 0; i < COUNT; i++) {
        expect(fcntl(fd[i], F_GETFL) == before[i], "%d had %x and has %x", i, before[i], fcntl(fd[i], F_GETFL));
        expect(fcntl(fd[i], F_GETFD) == (i % 2 ? FD_CLOEXEC : 0), "%d is closed on exec: %d", i, fcntl(fd[i], F_GETFD));
    }
    ok();
}
