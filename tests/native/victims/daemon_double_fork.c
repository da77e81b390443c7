/* A daemon in the classic manner: its session's leader is gone, its session is not. */
#include "victim.h"

int main(void) {
    int status;
    pid_t first = fork();
    if (first) {
        must(waitpid(first, &status, 0));
        return WEXITSTATUS(status);
    }
    pid_t leader = (pid_t)must(setsid());
    if (fork())
        _exit(0);
    must(chdir("/"));
    umask(0);
    close(0);
    must(open("/dev/null", O_RDWR));
    while (getppid() != 1)
        nap(0.002);
    ready();
    go();
    expect(getsid(0) == leader && getpgid(0) == leader, "session %d, group %d, both were %d", getsid(0), getpgid(0), leader);
    expect(getppid() == 1, "parent %d", getppid());
    expect(kill(leader, 0) == -1 && errno == ESRCH, "the leader lives");
    expect(setpgid(0, 0) == 0, "a process that leads no session can lead a group");
    expect(open("/dev/tty", O_RDWR) == -1 && errno == ENXIO, "a terminal out of nowhere");
    ok();
}
