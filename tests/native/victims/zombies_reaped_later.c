/* Children that ended before the fork can be waited for after it, each with its own status and its usage. */
#include "victim.h"

int main(void) {
    pid_t child[3];
    for (int i = 0; i < 3; i++)
        if ((child[i] = fork()) == 0) {
            if (i == 0)
                _exit(42);
            if (i == 1)
                raise(SIGTERM);
            raise(SIGKILL);
        }
    for (int i = 0; i < 3; i++)
        while (kin_of(child[i]).state != 'Z')
            nap(0.002);
    ready();
    go();
    static const int want[3] = {42 << 8, SIGTERM, SIGKILL};
    for (int i = 0; i < 3; i++) {
        int status = -1;
        siginfo_t info = {0};
        must(waitid(P_PID, (id_t)child[i], &info, WEXITED | WNOWAIT));
        expect(info.si_pid == child[i] && info.si_code == (i ? CLD_KILLED : CLD_EXITED), "waitid tells of %d, code %d", info.si_pid, info.si_code);
        expect(waitpid(child[i], &status, 0) == child[i] && status == want[i], "child %d: status %x, not %x", i, status, want[i]);
    }
    ok();
}
