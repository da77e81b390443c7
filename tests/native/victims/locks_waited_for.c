/* Who waits for a lock of any kind gets it when it is let go, and not before. */
#include "victim.h"
#include <sys/file.h>

static int fd;

static int lock(int kind, int how) {
    struct flock region = {.l_type = (short)how, .l_whence = SEEK_SET, .l_start = 100, .l_len = 10};
    if (kind == 0)
        return fcntl(fd, F_SETLKW, &region);
    if (kind == 1)
        return fcntl(fd, F_OFD_SETLKW, &region);
    return flock(fd, how == F_UNLCK ? LOCK_UN : LOCK_EX);
}

int main(void) {
    pid_t child[3];
    int own[3];
    const char *const names[] = {"posix", "ofd", "flock"};
    for (int kind = 0; kind < 3; kind++) {
        own[kind] = fd = (int)must(open(victim_path(names[kind]), O_RDWR | O_CREAT, 0644));
        must(lock(kind, F_WRLCK));
        if (!(child[kind] = (pid_t)must(fork()))) {
            must(close(own[kind]));
            for (int i = 0; i < kind; i++)
                must(close(own[i]));
            fd = (int)must(open(victim_path(names[kind]), O_RDWR));
            must(lock(kind, F_WRLCK));
            char text[8] = "";
            must(pread(fd, text, 7, 0));
            expect(!strcmp(text, "let go"), "%s: it came too early", names[kind]);
            _exit(0);
        }
        until_asleep(child[kind]);
    }
    ready();
    go();
    nap(0.05);
    for (int kind = 0; kind < 3; kind++) {
        int status;
        expect(waitpid(child[kind], &status, WNOHANG) == 0, "%s: it has the lock", names[kind]);
        fd = own[kind];
        must(pwrite(fd, "let go", 6, 0));
        must(lock(kind, F_UNLCK));
        child_ends_well(child[kind]);
    }
    ok();
}
