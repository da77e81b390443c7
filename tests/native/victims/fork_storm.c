/* A process that forks and waits without a pause, frozen at whatever instant: not one child is lost or doubled. */
#include "victim.h"

int main(void) {
    volatile struct {
        int made, ended, stop;
    } *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t stormer = fork();
    if (stormer == 0) {
        for (int n = 0; !shared->stop; n++) {
            pid_t child = fork();
            if (child == 0)
                _exit(n & 127);
            int status;
            expect(child > 0, "fork %d failed", n);
            shared->made++;
            expect(waitpid(-1, &status, 0) == child, "another child than %d", child);
            expect(WIFEXITED(status) && WEXITSTATUS(status) == (n & 127), "child %d ended with %x", n, status);
            shared->ended++;
        }
        _exit(0);
    }
    while (shared->ended < 20)
        nap(0.002);
    ready();
    go();
    int before = shared->ended;
    for (int i = 0; shared->ended < before + 20; i++, nap(0.01))
        expect(i < 2000, "the storm has stopped at %d", before);
    shared->stop = 1;
    child_ends_well(stormer);
    expect(shared->made == shared->ended, "%d made, %d ended", shared->made, shared->ended);
    ok();
}
