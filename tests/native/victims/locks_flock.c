/* Whole-file locks: the holder goes on holding, one that waits goes on waiting and gets it. */
#include "victim.h"
#include <sys/file.h>

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644)), shared = (int)must(open(victim_path("other"), O_RDWR | O_CREAT, 0644));
    must(flock(fd, LOCK_EX));
    must(flock(shared, LOCK_SH));
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        int own = (int)must(open(victim_path("file"), O_RDWR));
        while (flock(own, LOCK_EX) != 0)
            expect(errno == EINTR, "waiting for the lock");
        _exit(went() ? 0 : 1);
    }
    until_asleep(child);
    ready();
    go();
    int again = (int)must(open(victim_path("file"), O_RDWR)), third = (int)must(open(victim_path("other"), O_RDWR));
    expect(flock(again, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK, "the lock is gone");
    expect(flock(third, LOCK_SH | LOCK_NB) == 0 && flock(third, LOCK_EX | LOCK_NB) == -1, "the shared lock is another");
    must(flock(fd, LOCK_UN));
    child_ends_well(child);
    ok();
}
