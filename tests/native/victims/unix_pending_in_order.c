/* Connections that nobody has accepted yet, of two types: served in the order in which they came, by the pids that made them. */
#include "letters.h"

static const struct {
    int type;
    const char *name;
} kinds[] = {{SOCK_STREAM, "/tmp/victim-in-order"}, {SOCK_SEQPACKET, "@victim in order"}};

int main(void) {
    int listener[2], early[2], accepted[2], clients[2][3];
    for (int k = 0; k < 2; k++) {
        listener[k] = bound(kinds[k].type, kinds[k].name);
        must(listen(listener[k], 4));
        early[k] = dialled(kinds[k].type, kinds[k].name);
        accepted[k] = (int)must(accept(listener[k], NULL, NULL));
        for (int i = 0; i < 3; i++)
            clients[k][i] = dialled(kinds[k].type, kinds[k].name);
    }
    must(write(accepted[0], "early", 5));
    ready();
    go();
    expect_text(early[0], "early");
    for (int k = 0; k < 2; k++) {
        int late = dialled(kinds[k].type, kinds[k].name);
        char text[16];
        for (int i = 0; i < 4; i++) {
            snprintf(text, sizeof text, "client %d", i);
            must(write(i < 3 ? clients[k][i] : late, text, strlen(text)));
        }
        for (int i = 0; i < 4; i++) {
            int end = (int)must(accept4(listener[k], NULL, NULL, SOCK_NONBLOCK));
            struct ucred peer;
            socklen_t length = sizeof peer;
            must(getsockopt(end, SOL_SOCKET, SO_PEERCRED, &peer, &length));
            expect(peer.pid == getpid(), "client %d is pid %d", i, peer.pid);
            snprintf(text, sizeof text, "client %d", i);
            expect_text(end, text);
            must(write(end, text, strlen(text)));
            expect_text(i < 3 ? clients[k][i] : late, text);
        }
        must(fcntl(listener[k], F_SETFL, O_NONBLOCK));
        expect(accept(listener[k], NULL, NULL) == -1 && errno == EAGAIN, "there is one more");
        struct sockaddr_un name;
        socklen_t length = sizeof name;
        must(getpeername(clients[k][0], (struct sockaddr *)&name, &length));
        expect(!strcmp(name.sun_path + k, kinds[k].name + k), "its peer is %s", name.sun_path + k);
    }
    ok();
}
