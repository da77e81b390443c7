/* Files of /proc held open tell of this fork's own processes. */
#include "victim.h"

int main(void) {
    int status = (int)must(open("/proc/self/status", O_RDONLY)), stat_file = (int)must(open("/proc/stat", O_RDONLY)), dir = (int)must(open("/proc/self", O_RDONLY | O_DIRECTORY));
    char text[4096] = "";
    ready();
    go();
    expect(pread(status, text, sizeof text - 1, 0) > 0 && strstr(text, "Pid:\t") && atoi(strstr(text, "Pid:\t") + 5) == getpid(), "status: %.100s", text);
    expect(pread(stat_file, text, sizeof text - 1, 0) > 0 && !strncmp(text, "cpu", 3), "stat");
    must(prctl(PR_SET_NAME, "mine"));
    int fd = (int)must(openat(dir, "comm", O_RDONLY));
    memset(text, 0, sizeof text);
    must(read(fd, text, 64));
    expect(!strcmp(text, "mine\n"), "it is somebody else's: %s", text);
    ok();
}
