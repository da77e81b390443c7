/* A program whose file was replaced by another (an upgrade) while it runs. */
#include "victim.h"

int main(int argc, char **argv) {
    char exe[4096] = "", copy[4200];
    if (getenv("RUN_AGAIN"))
        return 0;
    must(readlink("/proc/self/exe", exe, sizeof exe - 1));
    if (argc == 1) {
        /* a copy of our own, to be replaced */
        snprintf(copy, sizeof copy, "%s/program", getenv("VICTIM"));
        int from = (int)must(open(exe, O_RDONLY)), to = (int)must(open(copy, O_WRONLY | O_CREAT, 0755));
        char part[65536];
        for (ssize_t got; (got = must(read(from, part, sizeof part))) > 0;)
            must(write(to, part, (size_t)got));
        close(to);
        must(execl(copy, argv[0], "again", (char *)NULL));
    }
    must(unlink(exe));
    int fd = (int)must(open(exe, O_WRONLY | O_CREAT, 0755));
    must(write(fd, "#!/bin/true\n", 12));
    close(fd);
    struct stat before, after, named;
    must(stat("/proc/self/exe", &before));
    ready();
    go();
    must(stat("/proc/self/exe", &after));
    must(stat(exe, &named));
    expect(after.st_size == before.st_size && after.st_nlink == 0 && after.st_mode == before.st_mode, "it runs another, of %lld bytes", (long long)after.st_size);
    expect(named.st_ino != after.st_ino && named.st_size == 12, "its successor was touched");
    pid_t child = (pid_t)must(fork());
    if (!child) {
        unsetenv("VICTIM");
        setenv("RUN_AGAIN", "1", 1);
        execl("/proc/self/exe", "again", "and", "again", (char *)NULL);
        _exit(1);
    }
    child_ends_well(child);
    expect(pattern(7) == pattern(7), "our own code");
    char *memory = malloc(100000);
    memset(memory, 1, 100000);
    ok();
}
