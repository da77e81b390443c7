/* Sockets on their way that hold sockets on their way, one that lies in its own queue, and two that hold each other. */
#include "letters.h"

int main(void) {
    int outer[2], middle[2], inner[2], own[2], left[2], right[2], pipes[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, outer));
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, middle));
    must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, inner));
    must(pipe(pipes));
    post_away(inner[0], "pipe", pipes[1]);
    post_away(middle[0], "inner", inner[1]);
    post_away(middle[0], "inner's sender", inner[0]);
    post_away(outer[0], "middle", middle[1]);
    close(middle[0]);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, own));
    post(own[0], "myself", &own[1], 1);
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, left));
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, right));
    post(left[0], "right", &right[1], 1);
    post(right[0], "left", &left[1], 1);
    close(right[1]);
    ready();
    go();
    int got = fetch_one(outer[1], "middle"), last = fetch_one(got, "inner"), sender = fetch_one(got, "inner's sender");
    must(write(sender, "more", 4));
    got = fetch_one(last, "pipe");
    must(write(got, "through", 7));
    close(got);
    char text[16] = "";
    expect(read(pipes[0], text, 15) == 7 && !strcmp(text, "through"), "read %s", text);
    expect(read(pipes[0], text, 15) == 0, "the pipe has another writer");
    expect_text(last, "more");
    int self = fetch_one(own[1], "myself");
    must(write(own[0], "to both", 7));
    expect_text(self, "to both");
    expect(syscall(SYS_kcmp, getpid(), getpid(), 0, self, own[1]) == 0, "it is not itself");
    got = fetch_one(left[1], "right");
    last = fetch_one(got, "left");
    must(write(left[0], "round", 5));
    expect_text(last, "round");
    ok();
}
