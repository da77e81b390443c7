/* POSIX locks on regions, each its process's own; a process that waits for one gets it. */
#include "victim.h"

static struct flock region(short type, off_t start, off_t length) { return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length}; }

int main(void) {
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644)), pipes[2];
    must(pipe(pipes));
    struct flock lock = region(F_WRLCK, 0, 100), asked;
    must(fcntl(fd, F_SETLK, &lock));
    lock = region(F_RDLCK, 1000, 0);
    must(fcntl(fd, F_SETLK, &lock));
    pid_t child = fork();
    if (child == 0) {
        lock = region(F_WRLCK, 500, 50);
        must(fcntl(fd, F_SETLK, &lock));
        must(write(pipes[1], "x", 1));
        lock = region(F_WRLCK, 50, 10);
        while (fcntl(fd, F_SETLKW, &lock) != 0)
            expect(errno == EINTR, "waiting for the lock");
        _exit(went() ? 0 : 1);
    }
    char x;
    must(read(pipes[0], &x, 1));
    until_asleep(child);
    ready();
    go();
    asked = region(F_WRLCK, 520, 1);
    must(fcntl(fd, F_GETLK, &asked));
    expect(asked.l_type == F_WRLCK && asked.l_pid == child && asked.l_start == 500 && asked.l_len == 50, "the child's lock: type %d of %d at %ld, %ld bytes",
           asked.l_type, asked.l_pid, (long)asked.l_start, (long)asked.l_len);
    pid_t looker = fork();
    if (looker == 0) {
        asked = region(F_WRLCK, 2000, 1);
        must(fcntl(fd, F_GETLK, &asked));
        expect(asked.l_type == F_RDLCK && asked.l_pid == getppid() && asked.l_start == 1000 && asked.l_len == 0, "our reading lock: type %d of %d", asked.l_type, asked.l_pid);
        asked = region(F_WRLCK, 99, 1);
        must(fcntl(fd, F_GETLK, &asked));
        expect(asked.l_type == F_WRLCK && asked.l_pid == getppid() && asked.l_start == 0 && asked.l_len == 100, "our writing lock: type %d", asked.l_type);
        _exit(0);
    }
    child_ends_well(looker);
    lock = region(F_UNLCK, 0, 100);
    must(fcntl(fd, F_SETLK, &lock));
    child_ends_well(child);
    ok();
}
