/* A child stopped by SIGTSTP, of which its parent has not heard: the parent hears of it after the fork. */
#include "victim.h"

int main(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        must(setpgid(0, 0));
        for (;;)
            pause();
    }
    until_asleep(child);
    must(kill(child, SIGSTOP));
    while (kin_of(child).state != 'T')
        nap(0.002);
    ready();
    go();
    expect(kin_of(child).state == 'T', "state %c", kin_of(child).state);
    expect(waitpid(child, &status, WUNTRACED | WNOHANG) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP,
           "the stop is lost (status %x)", status);
    must(kill(child, SIGKILL));
    must(kill(child, SIGCONT));
    must(waitpid(child, &status, 0));
    ok();
}
