/* A process in a root directory of its own stays in it. */
#include "victim.h"

int main(void) {
    must(mkdir(victim_path("root"), 0755));
    must(mkdir(victim_path("root/inner"), 0755));
    must(close((int)must(open(victim_path("root/inside"), O_CREAT | O_WRONLY, 0644))));
    int outside = (int)must(open("/", O_PATH | O_DIRECTORY)), told[2], go_on[2];
    must(pipe(told));
    must(pipe(go_on));
    pid_t child = (pid_t)must(fork());
    if (!child) {
        char byte, here[256];
        must(chroot(victim_path("root")));
        must(chdir("/inner"));
        int file = (int)must(open("/inside", O_RDWR));
        must(write(told[1], "x", 1));
        must(read(go_on[0], &byte, 1));
        bool right = access("/inside", F_OK) == 0 && access("/usr", F_OK) == -1 && getcwd(here, sizeof here) && !strcmp(here, "/inner");
        right &= write(file, "x", 1) == 1 && faccessat(outside, "usr", F_OK, 0) == 0 && access("../../../..//inside", F_OK) == 0;
        _exit(right ? 0 : 1);
    }
    char byte;
    must(read(told[0], &byte, 1));
    ready();
    go();
    must(write(go_on[1], "x", 1));
    child_ends_well(child);
    struct stat info;
    must(stat(victim_path("root/inside"), &info));
    expect(info.st_size == 1, "it wrote elsewhere");
    ok();
}
