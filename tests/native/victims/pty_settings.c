/* A pseudo-terminal: modes, control characters, window size; both sides go on, and it can be opened by its name. */
#include "victim.h"
#include <sys/ioctl.h>
#include <termios.h>

int main(void) {
    int master = (int)must(posix_openpt(O_RDWR | O_NOCTTY));
    must(grantpt(master));
    must(unlockpt(master));
    char name[64];
    snprintf(name, sizeof name, "%s", ptsname(master));
    int slave = (int)must(open(name, O_RDWR | O_NOCTTY));
    struct termios want, have;
    must(tcgetattr(slave, &want));
    cfmakeraw(&want);
    want.c_cc[VMIN] = 3;
    want.c_cc[VINTR] = 'q';
    want.c_oflag |= ONLCR | OPOST;
    cfsetspeed(&want, B115200);
    must(tcsetattr(slave, TCSANOW, &want));
    struct winsize size = {33, 101, 7, 9}, size_now;
    must(ioctl(master, TIOCSWINSZ, &size));
    ready();
    go();
    char text[64] = "";
    expect(!strcmp(ptsname(master), name), "it is called %s now", ptsname(master));
    must(tcgetattr(slave, &have));
    expect(have.c_iflag == want.c_iflag && have.c_oflag == want.c_oflag && have.c_cflag == want.c_cflag && have.c_lflag == want.c_lflag && !memcmp(have.c_cc, want.c_cc, NCCS), "modes");
    must(ioctl(slave, TIOCGWINSZ, &size_now));
    expect(!memcmp(&size, &size_now, sizeof size), "size %d x %d", size_now.ws_row, size_now.ws_col);
    must(write(slave, "more\n", 5));
    memset(text, 0, sizeof text);
    for (size_t have_read = 0; have_read < 6;) /* the line and its end may come one after the other */
        have_read += (size_t)must(read(master, text + have_read, sizeof text - 1 - have_read));
    expect(!strcmp(text, "more\r\n"), "then: %s", text);
    int again = (int)must(open(name, O_RDWR | O_NOCTTY));
    must(write(master, "abc", 3));
    expect(read(again, text, 63) == 3 && !memcmp(text, "abc", 3), "opened again by its name");
    ok();
}
