/* A session with a controlling terminal, a foreground and a background group: ^C reaches the one, reading stops the other. */
#include "victim.h"
#include <sys/ioctl.h>
#include <termios.h>

int main(void) {
    int master = (int)must(posix_openpt(O_RDWR | O_NOCTTY)), pipes[2];
    must(grantpt(master));
    must(unlockpt(master));
    must(pipe(pipes));
    pid_t leader = fork();
    if (leader == 0) {
        must(setsid());
        int slave = (int)must(open(ptsname(master), O_RDWR));
        must(ioctl(slave, TIOCSCTTY, 0));
        signal(SIGTTOU, SIG_IGN);
        close(master);
        pid_t child[2];
        for (int i = 0; i < 2; i++)
            if ((child[i] = fork()) == 0) {
                must(setpgid(0, 0));
                must(write(pipes[1], "x", 1));
                char x;
                signal(SIGTTOU, SIG_DFL);
                if (i == 0)
                    for (;;)
                        pause();
                while (access(victim_path("go"), F_OK) != 0)
                    nap(0.01);
                int tty = (int)must(open("/dev/tty", O_RDWR));
                must(read(tty, &x, 1)); /* in the background: stops */
                _exit(0);
            }
        for (int i = 0; i < 2; i++)
            while (getpgid(child[i]) != child[i])
                nap(0.002);
        must(tcsetpgrp(slave, child[0]));
        must(write(pipes[1], "l", 1));
        int status;
        expect(waitpid(child[0], &status, 0) == child[0] && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "the foreground ended with %x", status);
        expect(tcgetpgrp(slave) == child[0], "the foreground group is %d", tcgetpgrp(slave));
        expect(tcgetsid(slave) == getpid(), "the terminal's session is %d", tcgetsid(slave));
        expect(waitpid(child[1], &status, WUNTRACED) == child[1] && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTIN, "the background: %x", status);
        must(kill(child[1], SIGKILL));
        must(waitpid(child[1], &status, 0));
        _exit(0);
    }
    char x;
    for (int i = 0; i < 3; i++)
        must(read(pipes[0], &x, 1));
    ready();
    go();
    must(write(master, "\003", 1));
    child_ends_well(leader);
    ok();
}
