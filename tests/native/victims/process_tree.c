/* Three children with two grandchildren each keep their pids and parents, and end in the order they are told to. */
#include "victim.h"

static pid_t *children; /* shared: children[i * 3] is a child, the two after it are its own */

static _Noreturn void grandchild(int at) {
    pid_t self = getpid(), parent = getppid();
    children[at] = self;
    go();
    expect(getpid() == self && getppid() == parent, "pid %d with parent %d became %d with %d", self, parent, getpid(), getppid());
    _exit(at);
}

static _Noreturn void child(int at) {
    pid_t self = getpid(), parent = getppid(), own[2];
    for (int i = 0; i < 2; i++)
        if ((own[i] = fork()) == 0)
            grandchild(at + 1 + i);
    children[at] = self;
    go();
    expect(getpid() == self && getppid() == parent, "pid %d with parent %d became %d with %d", self, parent, getpid(), getppid());
    for (int i = 0; i < 2; i++) {
        int status;
        expect(waitpid(own[i], &status, 0) == own[i] && WEXITSTATUS(status) == at + 1 + i, "grandchild %d: status %x", own[i], status);
    }
    expect(waitpid(-1, NULL, 0) == -1 && errno == ECHILD, "a child too many");
    _exit(at);
}

int main(void) {
    children = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t own[3];
    for (int i = 0; i < 3; i++)
        if ((own[i] = fork()) == 0)
            child(i * 3);
    for (int i = 0; i < 9; i++)
        while (!((volatile pid_t *)children)[i])
            nap(0.002);
    ready();
    go();
    for (int i = 0; i < 3; i++) {
        int status;
        expect(waitpid(own[i], &status, 0) == own[i] && WEXITSTATUS(status) == i * 3, "child %d: status %x", own[i], status);
    }
    expect(waitpid(-1, NULL, 0) == -1 && errno == ECHILD, "a child too many");
    ok();
}
