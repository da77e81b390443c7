/* Three hundred processes in a tree, each with a pipe to its parent: all answer, with the pids that they had. */
#include "victim.h"

enum { COUNT = 300 };
static pid_t *pids;

static void grow(int number) { /* a heap: children of n are 2n + 1 and 2n + 2 */
    int fds[2][2];
    pid_t child[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        if (2 * number + 1 + i >= COUNT)
            continue;
        must(pipe(fds[i]));
        if ((child[i] = fork()) == 0) {
            char x;
            for (int j = 0; j < i; j++)
                close(fds[j][1]);
            close(fds[i][1]);
            pids[2 * number + 1 + i] = getpid();
            grow(2 * number + 1 + i);
            ssize_t got = read(fds[i][0], &x, 1);
            _exit(got == 1 && x == (char)(2 * number + 1 + i) && pids[2 * number + 1 + i] == getpid() ? 0 : 1);
        }
        close(fds[i][0]);
    }
    if (number == 0) {
        for (int i = 1; i < COUNT; i++)
            while (!*(volatile pid_t *)&pids[i])
                nap(0.002);
        ready();
        go();
    } else
        while (access(victim_path("go"), F_OK) != 0)
            nap(0.05);
    for (int i = 0; i < 2; i++)
        if (child[i]) {
            char x = (char)(2 * number + 1 + i);
            must(write(fds[i][1], &x, 1));
            expect(child[i] == pids[2 * number + 1 + i], "process %d is %d", 2 * number + 1 + i, child[i]);
            child_ends_well(child[i]);
        }
}

int main(void) {
    pids = mmap(NULL, COUNT * sizeof *pids, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    grow(0);
    ok();
}
