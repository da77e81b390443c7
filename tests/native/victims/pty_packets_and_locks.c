/* A terminal in packet mode with output waiting, one made exclusive, and one still locked. */
#include "victim.h"
#include <sys/ioctl.h>
#include <termios.h>

int main(void) {
    int master[3], slave[2], on = 1, state = 0;
    for (int i = 0; i < 3; i++) {
        master[i] = (int)must(posix_openpt(O_RDWR | O_NOCTTY));
        must(grantpt(master[i]));
        if (i == 2)
            break;
        must(unlockpt(master[i]));
        slave[i] = (int)must(open(ptsname(master[i]), O_RDWR | O_NOCTTY));
    }
    must(write(slave[0], "shown", 5));
    must(ioctl(master[0], TIOCPKT, &on));
    must(ioctl(slave[1], TIOCEXCL));
    must(write(master[1], "typed\nah", 8));
    nap(0.05);
    ready();
    go();
    char text[64] = "";
    must(ioctl(master[0], TIOCGPKT, &state));
    expect(state == 1, "packet mode is %d", state);
    expect(read(master[0], text, sizeof text) == 6 && !memcmp(text, "\0shown", 6), "the packet: %d %s", text[0], text + 1);
    must(tcflush(slave[0], TCIFLUSH));
    expect(read(master[0], text, sizeof text) == 1 && text[0] == TIOCPKT_FLUSHREAD, "the event: %d", text[0]);
    must(ioctl(slave[1], TIOCGEXCL, &state));
    expect(state == 1, "exclusive: %d", state);
    expect(open(ptsname(master[1]), O_RDWR | O_NOCTTY) == -1 && errno == EBUSY, "it is opened by another");
    expect(read(slave[1], text, sizeof text) == 6 && !memcmp(text, "typed\n", 6), "typed: %s", text);
    must(ioctl(slave[1], TIOCNXCL));
    must(open(ptsname(master[1]), O_RDWR | O_NOCTTY));
    must(ioctl(master[2], TIOCGPTLCK, &state));
    expect(state == 1, "the lock is %d", state);
    expect(open(ptsname(master[2]), O_RDWR | O_NOCTTY) == -1 && errno == EIO, "the locked one can be opened");
    ok();
}
