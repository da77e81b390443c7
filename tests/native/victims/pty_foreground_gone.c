/* A terminal whose foreground group is dead: it stays so, and its own session leader is in the background. */
#include "victim.h"
#include <sys/ioctl.h>
#include <termios.h>

int main(void) {
    int master = (int)must(posix_openpt(O_RDWR | O_NOCTTY)), fds[2];
    char x;
    must(grantpt(master));
    must(unlockpt(master));
    must(pipe(fds));
    pid_t leader = fork();
    if (leader == 0) {
        must(setsid());
        int slave = (int)must(open(ptsname(master), O_RDWR | O_NOCTTY));
        must(ioctl(slave, TIOCSCTTY, 0));
        struct termios modes;
        must(tcgetattr(slave, &modes));
        modes.c_lflag |= TOSTOP;
        must(tcsetattr(slave, TCSANOW, &modes));
        signal(SIGTTOU, SIG_IGN);
        signal(SIGINT, SIG_DFL);
        pid_t job = fork();
        if (job == 0) {
            must(setpgid(0, 0));
            must(tcsetpgrp(slave, getpid()));
            _exit(0);
        }
        must(waitpid(job, NULL, 0));
        must(write(fds[1], "x", 1));
        while (access(victim_path("go"), F_OK) != 0)
            nap(0.01);
        expect(tcgetpgrp(slave) == job, "the foreground group is %d, not %d", tcgetpgrp(slave), job);
        expect(tcgetsid(slave) == getpid(), "the session is %d", tcgetsid(slave));
        signal(SIGTTIN, SIG_IGN);
        expect(read(slave, &x, 1) == -1 && errno == EIO, "it may read");
        pid_t writer = fork();
        if (writer == 0) {
            signal(SIGTTOU, SIG_DFL);
            must(setpgid(0, 0));
            must(write(slave, "x", 1));
            _exit(0);
        }
        int status;
        must(waitpid(writer, &status, WUNTRACED));
        expect(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTOU, "who writes from the background: %x", status);
        must(kill(writer, SIGKILL));
        must(waitpid(writer, &status, 0));
        must(write(fds[1], "x", 1));
        nap(0.2); /* ^C reaches nobody */
        must(tcsetpgrp(slave, getpid()));
        must(write(slave, "done", 4));
        must(read(slave, &x, 1));
        _exit(0);
    }
    must(read(fds[0], &x, 1));
    ready();
    go();
    must(read(fds[0], &x, 1));
    must(write(master, "\003", 1));
    nap(0.3);
    must(write(master, "go\n", 3));
    child_ends_well(leader);
    ok();
}
