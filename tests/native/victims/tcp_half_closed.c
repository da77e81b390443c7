/* Every way in which a connection can be closed in part: either side, both, the peer gone, with data on the way; their states. */
#include "inet.h"

static int pairs[8][2];
static void check(int i, int one, int other) {
    for (double end = now() + 2; one == TCP_FIN_WAIT2 && tcp_state(pairs[i][0]) == TCP_FIN_WAIT1 && now() < end; nap(0.01)) /* the answer to a FIN may be late */
        ;
    expect(tcp_state(pairs[i][0]) == one && (other < 0 || tcp_state(pairs[i][1]) == other), "pair %d: states %d and %d, not %d and %d", i, tcp_state(pairs[i][0]), other < 0 ? -1 : tcp_state(pairs[i][1]), one, other);
}

static void reads(int fd, const char *text) {
    char buffer[32] = "";
    ssize_t got = recv(fd, buffer, 31, MSG_DONTWAIT);
    expect(got == (ssize_t)strlen(text) && !strcmp(buffer, text), "read %zd bytes, %s, not %s (errno %d)", got, buffer, text, errno);
}

int main(void) {
    size_t full;
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 8; i++) {
        pair_four(pairs[i]);
        must(write(pairs[i][0], "data", 4));
        must(write(pairs[i][1], "more", 4));
    }
    must(shutdown(pairs[1][0], SHUT_WR));
    must(shutdown(pairs[2][0], SHUT_WR)), must(shutdown(pairs[2][1], SHUT_WR));
    close(pairs[3][1]); /* with data not read: a reset */
    full = fill(pairs[4][0]);
    must(shutdown(pairs[4][0], SHUT_WR)); /* its FIN is behind what does not get across */
    must(read(pairs[5][1], &(int){0}, 4)), close(pairs[5][1]);
    must(shutdown(pairs[6][0], SHUT_RD));
    must(read(pairs[7][1], &(int){0}, 4)), must(shutdown(pairs[7][1], SHUT_WR)), must(shutdown(pairs[7][0], SHUT_WR)), close(pairs[7][1]);
    ready();
    go();
    check(0, TCP_ESTABLISHED, TCP_ESTABLISHED);
    check(1, TCP_FIN_WAIT2, TCP_CLOSE_WAIT);
    reads(pairs[1][1], "data"), reads(pairs[1][1], ""), reads(pairs[1][0], "more");
    expect(write(pairs[1][0], "x", 1) == -1 && errno == EPIPE, "it can be written");
    must(write(pairs[1][1], "yet", 3)), reads(pairs[1][0], "yet");
    check(2, TCP_CLOSE, TCP_CLOSE);
    reads(pairs[2][1], "data"), reads(pairs[2][1], ""), reads(pairs[2][0], "more"), reads(pairs[2][0], "");
    expect(revents(pairs[2][0]) & POLLHUP, "no hang-up");
    check(3, TCP_CLOSE, -1);
    char buffer[8];
    reads(pairs[3][0], "more");
    expect(recv(pairs[3][0], buffer, 8, 0) == -1 && errno == ECONNRESET, "no reset");
    expect(recv(pairs[3][0], buffer, 8, 0) == 0, "and then?");
    check(4, TCP_FIN_WAIT1, TCP_ESTABLISHED);
    must(read(pairs[4][1], buffer, 4));
    drain(pairs[4][1], full), reads(pairs[4][1], "");
    check(5, TCP_CLOSE_WAIT, -1);
    reads(pairs[5][0], "more"), reads(pairs[5][0], "");
    must(write(pairs[6][1], "unseen", 6));
    expect(revents(pairs[6][0]) & POLLRDHUP && tcp_state(pairs[6][0]) == TCP_ESTABLISHED, "shut for reading");
    check(7, TCP_CLOSE, -1);
    reads(pairs[7][0], "more"), reads(pairs[7][0], "");
    signal(SIGPIPE, SIG_IGN);
    expect(write(pairs[7][0], "x", 1) == -1 && errno == EPIPE, "it can be written");
    ok();
}
