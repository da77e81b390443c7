/* A child that is traced by its parent, as a debugger does. */
#include "victim.h"
#include <sys/ptrace.h>

int main(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        must(ptrace(PTRACE_TRACEME, 0, 0, 0));
        raise(SIGSTOP);
        _exit(7);
    }
    must(waitpid(child, &status, 0));
    ready();
    go();
    must(ptrace(PTRACE_CONT, child, 0, 0));
    must(waitpid(child, &status, 0));
    expect(WEXITSTATUS(status) == 7, "status %x", status);
    ok();
}
