/* Half a line typed into a terminal: it is finished after the fork. */
#include "victim.h"
#include <termios.h>

int main(void) {
    int master = (int)must(posix_openpt(O_RDWR | O_NOCTTY));
    must(grantpt(master));
    must(unlockpt(master));
    int slave = (int)must(open(ptsname(master), O_RDWR | O_NOCTTY | O_NONBLOCK));
    struct termios modes;
    must(tcgetattr(slave, &modes));
    modes.c_lflag &= ~(tcflag_t)ECHO;
    must(tcsetattr(slave, TCSANOW, &modes));
    must(write(master, "half a ", 7));
    nap(0.05);
    ready();
    go();
    char text[64] = "";
    expect(read(slave, text, 63) == -1 && errno == EAGAIN, "half a line can be read: %s", text);
    must(write(master, "line\n", 5));
    for (int i = 0; read(slave, text, 63) < 0; i++, nap(0.01))
        expect(i < 500, "no line");
    expect(!strcmp(text, "half a line\n"), "the line: %s", text);
    ok();
}
