/* A file made without a name gets one after the fork. */
#include "victim.h"

int main(void) {
    char from[64];
    int fd = open(getenv("VICTIM"), O_TMPFILE | O_RDWR, 0644);
    if (fd < 0 && errno == EOPNOTSUPP) {
        ready();
        go();
        ok(); /* nothing to keep on this file system */
    }
    must(fd);
    must(write(fd, "nameless", 8));
    ready();
    go();
    char text[16] = "";
    must(pread(fd, text, 15, 0));
    expect(!strcmp(text, "nameless"), "it holds %s", text);
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    must(linkat(AT_FDCWD, from, AT_FDCWD, victim_path("named"), AT_SYMLINK_FOLLOW));
    int named = (int)must(open(victim_path("named"), O_RDWR));
    must(pread(named, text, 15, 0));
    expect(!strcmp(text, "nameless"), "by its name it holds %s", text);
    ok();
}
