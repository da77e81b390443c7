/* A descriptor of a child: signals go through it, it becomes readable at the end, and can be waited for. */
#include "victim.h"
#include <poll.h>

int main(void) {
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    int fd = (int)must(syscall(SYS_pidfd_open, child, 0));
    ready();
    go();
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    expect(poll(&wait, 1, 0) == 0, "the child has ended");
    must(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
    expect(poll(&wait, 1, 20000) == 1, "its end is not told");
    siginfo_t info = {0};
    must(waitid((idtype_t)3 /* P_PIDFD */, (id_t)fd, &info, WEXITED));
    expect(info.si_pid == child && info.si_status == SIGTERM, "%d ended with %d", info.si_pid, info.si_status);
    ok();
}
