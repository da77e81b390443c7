/* Output that is held up: by the stop key on one terminal, by a call on another. Each goes on by what it is waiting for. */
#include "victim.h"
#include <poll.h>
#include <termios.h>

static int master[2], slave[2];

static bool writable(int which) {
    struct pollfd poll_one = {slave[which], POLLOUT, 0};
    return poll(&poll_one, 1, 0) == 1;
}

int main(void) {
    char text[64];
    for (int i = 0; i < 2; i++) {
        master[i] = (int)must(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK));
        must(grantpt(master[i]));
        must(unlockpt(master[i]));
        slave[i] = (int)must(open(ptsname(master[i]), O_RDWR | O_NOCTTY | O_NONBLOCK));
        must(write(slave[i], "before", 6));
    }
    must(write(master[0], "\023", 1));
    must(tcflow(slave[1], TCOOFF));
    for (int i = 0; i < 2; i++)
        while (writable(i))
            nap(0.005);
    ready();
    go();
    for (int i = 0; i < 2; i++) {
        memset(text, 0, sizeof text);
        expect(read(master[i], text, sizeof text) == 6 && !strcmp(text, "before"), "%d: shown before: %s", i, text);
        expect(!writable(i), "%d: the output flows", i);
        expect(write(slave[i], "held", 4) == -1 && errno == EAGAIN, "%d: it took more", i);
        must(write(master[i], "\021", 1)); /* the start key */
    }
    for (int i = 0; !writable(0); i++, nap(0.01))
        expect(i < 300, "the key does not start it");
    nap(0.05);
    expect(!writable(1), "the key starts what a call has stopped");
    must(tcflow(slave[1], TCOON));
    for (int i = 0; i < 2; i++) {
        must(write(slave[i], "after", 5));
        memset(text, 0, sizeof text);
        for (int tries = 0; read(master[i], text, sizeof text) < 0; tries++, nap(0.01))
            expect(tries < 300, "%d: nothing comes", i);
        expect(!strcmp(text, "after"), "%d: after: %s", i, text);
    }
    ok();
}
