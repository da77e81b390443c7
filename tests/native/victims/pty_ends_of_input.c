/* Typed ahead in canonical mode: lines, ends of input after text and alone, quoted control characters, and a part of a line. */
#include "victim.h"
#include <poll.h>
#include <termios.h>

static ssize_t take(int fd, char *text) {
    struct pollfd ready_one = {fd, POLLIN, 0};
    memset(text, 0, 256);
    return poll(&ready_one, 1, 200) > 0 ? read(fd, text, 255) : -2;
}

int main(void) {
    int master = (int)must(posix_openpt(O_RDWR | O_NOCTTY));
    must(grantpt(master));
    must(unlockpt(master));
    int slave = (int)must(open(ptsname(master), O_RDWR | O_NOCTTY));
    struct termios modes;
    must(tcgetattr(slave, &modes));
    modes.c_lflag &= ~(tcflag_t)ECHO;
    modes.c_cc[VEOL] = ';';
    must(tcsetattr(slave, TCSANOW, &modes));
    const char typed[] = "one\ntwo\004\004\026\004\026\177x\nwith an end;\004pa\026\003rt\026\025i";
    must(write(master, typed, sizeof typed - 1));
    nap(0.1);
    ready();
    go();
    char text[256];
    expect(take(slave, text) == 4 && !strcmp(text, "one\n"), "the line: %s", text);
    expect(take(slave, text) == 3 && !strcmp(text, "two"), "text before an end: %s", text);
    expect(take(slave, text) == 0, "no end of input: %s", text);
    expect(take(slave, text) == 4 && !strcmp(text, "\004\177x\n"), "quoted: %s", text);
    expect(take(slave, text) == 12 && !strcmp(text, "with an end;"), "another end of line: %s", text);
    expect(take(slave, text) == 0, "no second end of input: %s", text);
    expect(take(slave, text) == -2, "a part can be read: %s", text);
    must(write(master, "al!\177\n", 5));
    expect(take(slave, text) == 10 && !strcmp(text, "pa\003rt\025ial\n"), "the part: %s", text);
    must(write(master, "\004", 1));
    expect(take(slave, text) == 0, "ends of input end nothing now");
    ok();
}
