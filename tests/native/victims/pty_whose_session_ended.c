/* A terminal whose session leader is dead: who is left has it open, is controlled by none, and another session can take it. */
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
        signal(SIGHUP, SIG_IGN);
        if (fork() == 0) {
            while (getppid() == leader || access("/dev/tty", F_OK) != 0 || kin_of(getsid(0)).parent != 0)
                nap(0.002);
            must(write(fds[1], "x", 1));
            while (access(victim_path("go"), F_OK) != 0)
                nap(0.01);
            expect(open("/dev/tty", O_RDWR) == -1 && errno == ENXIO, "it has a controlling terminal");
            expect(tcgetsid(slave) == -1 && errno == ENOTTY, "the terminal controls a session");
            must(write(slave, "still here", 10));
            must(setsid());
            must(ioctl(slave, TIOCSCTTY, 0));
            expect(tcgetsid(slave) == getpid(), "the session is %d", tcgetsid(slave));
            must(write(fds[1], "x", 1));
            for (;;)
                pause();
        }
        nap(0.05);
        _exit(0);
    }
    must(waitpid(leader, NULL, 0));
    must(read(fds[0], &x, 1));
    ready();
    go();
    char text[32] = "";
    expect(read(master, text, sizeof text) == 10 && !memcmp(text, "still here", 10), "shown: %s", text);
    must(read(fds[0], &x, 1));
    must(write(master, "\003", 1)); /* reaches the new session */
    ok();
}
