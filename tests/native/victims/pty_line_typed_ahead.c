/* A line and a half typed ahead in canonical mode: the line can be read, the half is finished after the fork. */
#include "victim.h"
#include <termios.h>

int main(void) {
    int master = (int)must(posix_openpt(O_RDWR | O_NOCTTY));
    must(grantpt(master));
    must(unlockpt(master));
    int slave = (int)must(open(ptsname(master), O_RDWR | O_NOCTTY));
    struct termios modes;
    must(tcgetattr(slave, &modes));
    modes.c_lflag &= ~(tcflag_t)ECHO;
    must(tcsetattr(slave, TCSANOW, &modes));
    must(write(master, "a line\nhal", 10));
    ready();
    go();
    char text[64] = "";
    expect(read(slave, text, 63) == 7 && !strcmp(text, "a line\n"), "first: %s", text);
    must(write(master, "x\177f\n", 4));
    memset(text, 0, sizeof text);
    expect(read(slave, text, 63) == 5 && !strcmp(text, "half\n"), "second: %s", text);
    ok();
}
