/* A terminal whose master is gone: who has it open reads its end, can write no more, and keeps it beside living terminals. */
#include "victim.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

int main(void) {
    int master[3], slave[3];
    char name[3][32], link[64], path[32];
    for (int i = 0; i < 3; i++) {
        master[i] = (int)must(posix_openpt(O_RDWR | O_NOCTTY));
        must(grantpt(master[i]));
        must(unlockpt(master[i]));
        snprintf(name[i], sizeof name[i], "%s", ptsname(master[i]));
        slave[i] = (int)must(open(name[i], O_RDWR | O_NOCTTY));
    }
    int twin = dup(slave[1]);
    must(close(master[1]));
    ready();
    go();
    char byte;
    struct termios modes;
    struct pollfd look = {slave[1], POLLIN | POLLOUT, 0};
    expect(read(slave[1], &byte, 1) == 0, "it can be read");
    expect(write(twin, "x", 1) == -1 && errno == EIO, "it can be written");
    expect(tcgetattr(slave[1], &modes) == -1 && errno == EIO, "it has settings");
    expect(poll(&look, 1, 0) == 1 && look.revents & POLLHUP, "poll says %x", look.revents);
    snprintf(path, sizeof path, "/proc/self/fd/%d", slave[1]);
    link[must(readlink(path, link, sizeof link - 1))] = '\0';
    expect(!strncmp(link, name[1], strlen(name[1])), "it is called %s, not %s", link, name[1]);
    for (int i = 0; i < 3; i += 2) {
        expect(!strcmp(ptsname(master[i]), name[i]), "terminal %d is %s", i, ptsname(master[i]));
        must(write(master[i], "line\n", 5));
        char text[16] = "";
        expect(read(slave[i], text, sizeof text) == 5, "terminal %d gives %s", i, text);
    }
    must(close(slave[1]));
    must(close(twin));
    master[1] = (int)must(posix_openpt(O_RDWR | O_NOCTTY)); /* its number is free now */
    expect(!strcmp(ptsname(master[1]), name[1]), "a new one is %s, not %s", ptsname(master[1]), name[1]);
    ok();
}
