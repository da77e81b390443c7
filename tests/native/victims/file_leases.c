/* Leases on files: who opens one breaks it, and its holder is told, by the signal it chose. */
#include "victim.h"

static void told(int number, int fd) {
    siginfo_t info;
    sigset_t set;
    struct timespec patience = {5, 0};
    sigemptyset(&set);
    sigaddset(&set, number);
    expect(sigtimedwait(&set, &info, &patience) == number && info.si_fd == fd, "nobody was told of %d", fd);
}

int main(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    must(close((int)must(open(victim_path("read"), O_CREAT | O_WRONLY, 0644))));
    int reads = (int)must(open(victim_path("read"), O_RDONLY)), writes = (int)must(open(victim_path("write"), O_RDWR | O_CREAT, 0644));
    must(fcntl(reads, F_SETSIG, SIGRTMIN + 4));
    must(fcntl(reads, F_SETLEASE, F_RDLCK));
    must(fcntl(writes, F_SETLEASE, F_WRLCK));
    ready();
    go();
    expect(fcntl(reads, F_GETLEASE) == F_RDLCK && fcntl(writes, F_GETLEASE) == F_WRLCK, "leases %d, %d", fcntl(reads, F_GETLEASE),
           fcntl(writes, F_GETLEASE));
    expect(open(victim_path("read"), O_WRONLY | O_NONBLOCK) == -1 && errno == EWOULDBLOCK, "it could be opened for writing");
    told(SIGRTMIN + 4, reads);
    must(fcntl(reads, F_SETLEASE, F_UNLCK));
    must(open(victim_path("read"), O_WRONLY | O_NONBLOCK));
    pid_t child = (pid_t)must(fork());
    if (!child) {
        must(close(writes));
        must(open(victim_path("write"), O_RDONLY)); /* waits */
        _exit(0);
    }
    struct timespec patience = {5, 0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    expect(sigtimedwait(&set, NULL, &patience) == SIGIO, "nobody was told of the other");
    must(fcntl(writes, F_SETLEASE, F_UNLCK));
    child_ends_well(child);
    ok();
}
