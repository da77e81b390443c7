/* Who asked to be given the orphans below it goes on getting them. */
#include "victim.h"

int main(void) {
    int pipes[2];
    must(pipe(pipes));
    must(prctl(PR_SET_CHILD_SUBREAPER, 1));
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            char x;
            must(read(pipes[0], &x, 1)); /* until after the fork */
            _exit(9);
        }
        go();
        _exit(0);
    }
    until_asleep(child);
    ready();
    go();
    int value = 0, status;
    must(prctl(PR_GET_CHILD_SUBREAPER, &value));
    expect(value == 1, "no subreaper any more");
    must(waitpid(child, &status, 0));
    must(write(pipes[1], "x", 1));
    expect(wait(&status) > 0 && WEXITSTATUS(status) == 9, "the orphan did not come here (%x)", status);
    ok();
}
