/* Datagrams and sequenced packets keep their borders, the empty ones too. */
#include "victim.h"
#include <sys/socket.h>

int main(void) {
    static const int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    int pairs[2][2];
    for (int i = 0; i < 2; i++) {
        must(socketpair(AF_UNIX, types[i], 0, pairs[i]));
        must(send(pairs[i][0], "first", 5, 0));
        if (i == 0)
            must(send(pairs[i][0], "", 0, 0));
        must(send(pairs[i][0], "third message", 13, 0));
        must(send(pairs[i][1], "answer", 6, 0));
    }
    ready();
    go();
    for (int i = 0; i < 2; i++) {
        char text[64] = "";
        int type;
        socklen_t length = sizeof type;
        must(getsockopt(pairs[i][0], SOL_SOCKET, SO_TYPE, &type, &length));
        expect(type == types[i], "type %d", type);
        expect(recv(pairs[i][1], text, 64, MSG_DONTWAIT) == 5 && !memcmp(text, "first", 5), "type %d: %s", type, text);
        if (i == 0)
            expect(recv(pairs[i][1], text, 64, MSG_DONTWAIT) == 0, "the empty one is lost");
        expect(recv(pairs[i][1], text, 3, MSG_DONTWAIT) == 3 && !memcmp(text, "thi", 3), "type %d: %s", type, text);
        expect(recv(pairs[i][1], text, 64, MSG_DONTWAIT) == -1 && errno == EAGAIN, "type %d: more than was sent", type);
        expect(recv(pairs[i][0], text, 64, MSG_DONTWAIT) == 6 && !memcmp(text, "answer", 6), "type %d: the answer", type);
        must(send(pairs[i][0], "after", 5, 0));
        expect(recv(pairs[i][1], text, 64, 0) == 5, "type %d: after", type);
    }
    ok();
}
