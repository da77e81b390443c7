/* Children that ended and were heard of, but not reaped: nobody hears of them again, and each tells how it ended. */
#include "victim.h"

static volatile sig_atomic_t heard;
static void on_child(int number) { heard += number == SIGCHLD; }

int main(void) {
    static const int codes[] = {0, 1, 7, 255, -SIGTERM, -SIGKILL, -SIGUSR2, -SIGXCPU};
    enum { COUNT = sizeof codes / sizeof *codes };
    pid_t child[COUNT];
    struct rlimit none = {0, 0};
    must(setrlimit(RLIMIT_CORE, &none));
    signal(SIGCHLD, on_child);
    for (int i = 0; i < COUNT; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            if (codes[i] < 0)
                kill(getpid(), -codes[i]);
            _exit(codes[i]);
        }
        siginfo_t info;
        while (waitid(P_PID, (id_t)child[i], &info, WEXITED | WNOWAIT) == -1)
            expect(errno == EINTR, "waitid");
    }
    int before = heard;
    ready();
    while (!went())
        nap(0.01);
    nap(0.1);
    expect(heard == before, "heard %d more times", heard - before);
    for (int i = COUNT - 1; i >= 0; i--) {
        siginfo_t info = {0};
        must(waitid(P_PID, (id_t)child[i], &info, WEXITED));
        expect(info.si_pid == child[i] && info.si_status == (codes[i] < 0 ? -codes[i] : codes[i]), "%d ended with %d", i, info.si_status);
        expect(info.si_code == (codes[i] < 0 ? CLD_KILLED : CLD_EXITED), "%d ended in way %d", i, info.si_code);
    }
    expect(heard == before, "heard %d more times", heard - before);
    expect(wait(NULL) == -1 && errno == ECHILD, "there are more children");
    ok();
}
