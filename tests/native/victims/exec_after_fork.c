/* A process that becomes another program after the fork, with its descriptors, its pid and its ignored signals. */
#include "victim.h"

int main(int argc, char **argv) {
    if (argc > 1) {
        struct sigaction action;
        must(sigaction(SIGUSR1, NULL, &action));
        expect(action.sa_handler == SIG_IGN, "what was ignored is not");
        expect(getpid() == atoi(argv[1]), "pid %d, was %s", getpid(), argv[1]);
        expect(fcntl(5, F_GETFD) == 0 && fcntl(6, F_GETFD) == -1, "descriptors");
        expect(lseek(5, 0, SEEK_CUR) == 3, "offset");
        ok();
    }
    int fd = (int)must(open(victim_path("file"), O_RDWR | O_CREAT, 0644));
    must(write(fd, "abc", 3));
    must(dup2(fd, 5));
    must(dup3(fd, 6, O_CLOEXEC));
    signal(SIGUSR1, SIG_IGN);
    char pid[16], exe[4096] = "";
    snprintf(pid, sizeof pid, "%d", getpid());
    ready();
    go();
    must(readlink("/proc/self/exe", exe, sizeof exe - 1));
    must(execl(exe, argv[0], pid, (char *)NULL));
}
