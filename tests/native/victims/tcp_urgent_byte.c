/* An urgent byte that nobody has read. */
#include "inet.h"

int main(void) {
    int ends[2];
    char byte = 0;
    pair_four(ends);
    must(write(ends[0], "before", 6));
    must(send(ends[0], "!", 1, MSG_OOB));
    while (!(revents(ends[1]) & POLLPRI))
        nap(0.01);
    ready();
    go();
    expect(recv(ends[1], &byte, 1, MSG_OOB) == 1 && byte == '!', "the urgent byte");
    ok();
}
