/* A stopped child stays stopped, does not report a second time, and continues when told. */
#include "victim.h"

int main(void) {
    volatile int *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    pid_t child = fork();
    if (child == 0)
        for (;; nap(0.002))
            ++*count;
    while (!*count)
        nap(0.002);
    must(kill(child, SIGSTOP));
    expect(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "it does not stop");
    ready();
    go();
    int before = *count;
    nap(0.1);
    expect(kin_of(child).state == 'T' && *count == before, "a stopped child runs: state %c, %d steps", kin_of(child).state, *count - before);
    expect(waitpid(child, &status, WUNTRACED | WNOHANG) == 0, "the stop is told again: %x", status);
    must(kill(child, SIGCONT));
    expect(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status), "the child does not continue: %x", status);
    for (int i = 0; *count < before + 5; i++, nap(0.01))
        expect(i < 1000, "the child does not run on");
    must(kill(child, SIGKILL));
    expect(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL, "it ended with %x", status);
    ok();
}
