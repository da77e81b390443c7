/* An orphan that wants to hear of the death of whoever adopted it: not of anybody else's, and of that one's. */
#include "victim.h"

static volatile sig_atomic_t heard;
static void on_signal(int number) { heard += number == SIGUSR1; }

int main(void) {
    int fds[2], answer[2];
    char x;
    must(pipe(fds));
    must(pipe(answer));
    pid_t adopter = fork();
    if (adopter == 0) {
        must(prctl(PR_SET_CHILD_SUBREAPER, 1));
        pid_t leader = fork();
        if (leader == 0) {
            must(setsid());
            pid_t between = fork();
            if (between == 0) {
                pid_t orphan = fork();
                if (orphan == 0) {
                    while (getppid() != kin_of(getsid(0)).parent)
                        nap(0.001);
                    signal(SIGUSR1, on_signal);
                    must(prctl(PR_SET_PDEATHSIG, SIGUSR1));
                    must(write(fds[1], "x", 1));
                    while (access(victim_path("go"), F_OK) != 0)
                        nap(0.01);
                    expect(!heard, "it heard of a death that was none");
                    must(write(answer[1], "x", 1));
                    for (int i = 0; !heard; i++, nap(0.01))
                        expect(i < 1000, "it does not hear that who adopted it died");
                    must(write(answer[1], "y", 1));
                    _exit(0);
                }
                _exit(0);
            }
            must(waitpid(between, NULL, 0));
            for (;;)
                pause(); /* the session's leader lives, below who adopts */
        }
        for (;;)
            pause();
    }
    must(read(fds[0], &x, 1));
    ready();
    go();
    must(read(answer[0], &x, 1));
    must(kill(adopter, SIGKILL));
    must(waitpid(adopter, NULL, 0));
    must(read(answer[0], &x, 1));
    expect(x == 'y', "it says %c", x);
    ok();
}
