/* Masters whose other side is closed, or was never open; and one whose other side closes after the fork: each hears what it should. */
#include "victim.h"
#include <poll.h>
#include <termios.h>

static int open_master(void) {
    int master = (int)must(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK));
    must(grantpt(master));
    must(unlockpt(master));
    return master;
}

static bool hung_up(int master) {
    struct pollfd look = {master, POLLIN, 0};
    poll(&look, 1, 0);
    return look.revents & POLLHUP;
}

int main(void) {
    char text[32] = "";
    int closed = open_master(), never = open_master(), open_one = open_master();
    int slave = (int)must(open(ptsname(closed), O_RDWR | O_NOCTTY));
    must(write(slave, "last words", 10));
    must(close(slave));
    slave = (int)must(open(ptsname(open_one), O_RDWR | O_NOCTTY));
    expect(hung_up(closed) && !hung_up(never) && !hung_up(open_one), "the scene is not set");
    ready();
    go();
    expect(read(closed, text, sizeof text) == 10 && !memcmp(text, "last words", 10), "it said %s", text);
    expect(read(closed, text, sizeof text) == -1 && errno == EIO, "the closed one goes on");
    expect(hung_up(closed), "the closed one is open");
    expect(read(never, text, sizeof text) == -1 && errno == EAGAIN && !hung_up(never), "the one nobody opened is closed");
    expect(read(open_one, text, sizeof text) == -1 && errno == EAGAIN && !hung_up(open_one), "the open one is closed");
    must(close(slave));
    expect(read(open_one, text, sizeof text) == -1 && errno == EIO, "nobody says that the last one closed it");
    slave = (int)must(open(ptsname(closed), O_RDWR | O_NOCTTY));
    expect(!hung_up(closed), "it cannot be opened again");
    slave = (int)must(open(ptsname(never), O_RDWR | O_NOCTTY));
    must(write(slave, "first words", 11));
    expect(read(never, text, sizeof text) == 11, "it said %s", text);
    ok();
}
