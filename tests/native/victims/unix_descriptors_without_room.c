/* A reader with room for one descriptor of three gets one and is told; the others are closed. Peeking leaves all as it was. */
#include "letters.h"

int main(void) {
    int pair[2], pipes[3][2], fds[3];
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    for (int i = 0; i < 3; i++) {
        must(pipe(pipes[i]));
        fds[i] = pipes[i][1];
    }
    post(pair[0], "letter", fds, 3);
    post(pair[0], "unread", fds, 3);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    ready();
    go();
    struct letter letter = fetch_with(pair[1], 64, 1024, MSG_PEEK);
    expect(letter.size == 6 && letter.count == 3, "a look shows %d descriptors", letter.count);
    for (int i = 0; i < 3; i++)
        close(letter.fds[i]);
    letter = fetch_with(pair[1], 3, CMSG_SPACE(sizeof(int)) , 0);
    expect(letter.size == 3 && letter.flags & MSG_TRUNC && letter.flags & MSG_CTRUNC, "flags %x", letter.flags);
    int came = letter.count;
    expect(came == 1 || came == 2 /* by alignment */, "%d descriptors came", came);
    for (int i = 0; i < came; i++)
        close(letter.fds[i]);
    char text[4];
    for (int i = 0; i < 3; i++) {
        must(fcntl(pipes[i][0], F_SETFL, O_NONBLOCK));
        expect(read(pipes[i][0], text, 4) == -1 && errno == EAGAIN, "pipe %d has no writer though a letter waits", i);
    }
    expect_text(pair[1], "unread"); /* read without room: closes all three */
    for (int i = 0; i < 3; i++)
        expect(read(pipes[i][0], text, 4) == 0, "pipe %d still has a writer", i);
    ok();
}
