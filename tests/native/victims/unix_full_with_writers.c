/* Queues that are full of small messages stay full, and who waits to write into them goes on when there is room. */
#include "letters.h"

static int stream[2], packets[2], box;

static void *write_on(void *argument) {
    int fd = *(int *)argument;
    must(write(fd, "late", 4));
    return NULL;
}

static int fill(int fd, const char *text) {
    int count = 0;
    while (send(fd, text, strlen(text), MSG_DONTWAIT) > 0)
        count++;
    expect(errno == EAGAIN, "filling ended otherwise");
    return count;
}

static void drain(int fd, const char *text, int count, bool glued) {
    char got[64];
    size_t size = strlen(text);
    for (int i = 0; i < count; i++) {
        must(recv(fd, got, glued ? size : sizeof got, 0));
        expect(!memcmp(got, text, size), "message %d of %d is %.10s", i, count, got);
    }
}

int main(void) {
    pthread_t id[3];
    int sender = (int)must(socket(AF_UNIX, SOCK_DGRAM, 0)), late = (int)must(socket(AF_UNIX, SOCK_DGRAM, 0));
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
    must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets));
    box = bound(SOCK_DGRAM, "/tmp/victim-full-box");
    must(dial(sender, "/tmp/victim-full-box"));
    must(dial(late, "/tmp/victim-full-box"));
    int counts[3] = {fill(stream[0], "tiny"), fill(packets[0], "a packet"), fill(sender, "letter")};
    int *writers[] = {&stream[0], &packets[0], &late};
    for (int i = 0; i < 3; i++)
        must(-pthread_create(&id[i], NULL, write_on, writers[i]));
    nap(0.1);
    ready();
    go();
    expect(send(stream[0], "x", 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "the stream has room");
    expect(send(packets[0], "x", 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "the packets have room");
    expect(send(sender, "x", 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "the box has room");
    int waiting = 0;
    for (int i = 0; i < 3; i++)
        waiting += pthread_tryjoin_np(id[i], NULL) == EBUSY;
    expect(waiting == 3, "%d writers wait", waiting);
    drain(stream[1], "tiny", counts[0], true);
    drain(packets[1], "a packet", counts[1], false);
    drain(box, "letter", counts[2], false);
    for (int i = 0; i < 3; i++)
        must(-pthread_join(id[i], NULL));
    expect_text(stream[1], "late");
    expect_text(packets[1], "late");
    expect_text(box, "late");
    ok();
}
