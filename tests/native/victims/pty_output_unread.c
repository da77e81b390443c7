/* What a program has shown on a terminal and nobody has read yet, and raw input typed ahead. */
#include "victim.h"
#include <termios.h>

int main(void) {
    int master = (int)must(posix_openpt(O_RDWR | O_NOCTTY));
    must(grantpt(master));
    must(unlockpt(master));
    int slave = (int)must(open(ptsname(master), O_RDWR | O_NOCTTY));
    struct termios modes;
    must(tcgetattr(slave, &modes));
    cfmakeraw(&modes);
    must(tcsetattr(slave, TCSANOW, &modes));
    must(write(master, "typed", 5));
    must(write(slave, "shown", 5));
    nap(0.05);
    ready();
    go();
    char text[64] = "";
    expect(read(slave, text, 63) == 5 && !strcmp(text, "typed"), "typed: %s", text);
    expect(read(master, text, 63) == 5 && !strcmp(text, "shown"), "shown: %s", text);
    ok();
}
