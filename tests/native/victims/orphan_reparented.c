/* A process whose parent has ended belongs to pid 1, before and after. */
#include "victim.h"

int main(void) {
    int pipes[2], status;
    pid_t orphan;
    must(pipe(pipes));
    pid_t parent = fork();
    if (parent == 0) {
        if (fork() == 0) {
            while (getppid() != 1)
                nap(0.002);
            orphan = getpid();
            must(write(pipes[1], &orphan, sizeof orphan));
            go();
            expect(getppid() == 1, "the orphan's parent is %d", getppid());
            must(write(pipes[1], "done", 4));
            _exit(0);
        }
        _exit(3);
    }
    must(waitpid(parent, &status, 0));
    must(read(pipes[0], &orphan, sizeof orphan));
    ready();
    go();
    char text[5] = "";
    must(read(pipes[0], text, 4));
    expect(!strcmp(text, "done"), "the orphan said %s", text);
    for (int i = 0; kill(orphan, 0) == 0; i++, nap(0.01))
        expect(i < 1000, "pid 1 does not reap the orphan");
    ok();
}
