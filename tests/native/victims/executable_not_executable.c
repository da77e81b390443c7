/* A program whose file lost its permission to be executed while it runs. */
#include "victim.h"

int main(int argc, char **argv) {
    char exe[4096] = "", copy[4200];
    must(readlink("/proc/self/exe", exe, sizeof exe - 1));
    if (argc == 1) { /* a copy of our own */
        snprintf(copy, sizeof copy, "%s/program", getenv("VICTIM"));
        int from = (int)must(open(exe, O_RDONLY)), to = (int)must(open(copy, O_WRONLY | O_CREAT, 0755));
        char part[65536];
        for (ssize_t got; (got = must(read(from, part, sizeof part))) > 0;)
            must(write(to, part, (size_t)got));
        close(to);
        must(execl(copy, argv[0], "again", (char *)NULL));
    }
    must(chmod(exe, 0644));
    ready();
    go();
    struct stat info;
    must(stat("/proc/self/exe", &info));
    expect((info.st_mode & 07777) == 0644, "mode %o", info.st_mode);
    ok();
}
