/* A connection that is full in both directions: megabytes that were received and not read, and others that are not across yet; and one whose server has closed. */
#include "inet.h"

int main(void) {
    int ends[2], gone[2], small[2];
    size_t sent[2], last, few;
    pair_four(ends);
    for (int i = 0; i < 2; i++)
        sent[i] = fill(ends[i]);
    pair_four(gone);
    last = fill(gone[1]);
    close(gone[1]); /* part of it is still with the end that nobody holds */
    pair_four(small);
    must(set(small[1], SOL_SOCKET, SO_RCVBUF, 20000));
    must(set(small[0], SOL_SOCKET, SO_SNDBUF, 20000));
    few = fill(small[0]);
    int sizes[2] = {get(small[1], SOL_SOCKET, SO_RCVBUF), get(small[0], SOL_SOCKET, SO_SNDBUF)};
    ready();
    go();
    expect(sent[0] > 2000000 && sent[1] > 2000000, "only %zu and %zu bytes", sent[0], sent[1]);
    expect(!(revents(ends[0]) & POLLOUT), "there is room that was not there");
    char byte;
    for (int i = 0; i < 2; i++)
        drain(ends[!i], sent[i]);
    expect(recv(ends[0], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "more than was sent");
    must(write(ends[0], "x", 1));
    expect(read(ends[1], &byte, 1) == 1 && byte == 'x', "it does not go on");
    drain(gone[0], last);
    expect(read(gone[0], &byte, 1) == 0, "the end of the stream");
    drain(small[1], few);
    expect(get(small[1], SOL_SOCKET, SO_RCVBUF) == sizes[0] && get(small[0], SOL_SOCKET, SO_SNDBUF) == sizes[1], "sizes");
    ok();
}
