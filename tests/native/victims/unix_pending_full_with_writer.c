/* A client that nobody has accepted yet has filled its queue, and is still writing: all of it arrives, in order. */
#include "letters.h"
#include <poll.h>

#define BYTES 600000

static void *writer(void *at) {
    int fd = *(int *)at;
    for (uint32_t sent = 0; sent < BYTES; sent += 4)
        must(write(fd, &sent, 4));
    must(shutdown(fd, SHUT_WR));
    return NULL;
}

int main(void) {
    int listener = bound(SOCK_STREAM, "/tmp/victim-full"), client;
    pthread_t thread;
    must(listen(listener, 0));
    client = dialled(SOCK_STREAM, "/tmp/victim-full");
    must(pthread_create(&thread, NULL, writer, &client));
    struct pollfd state = {.fd = client, .events = POLLOUT};
    while (poll(&state, 1, 0) == 1)
        nap(0.01);
    nap(0.05);
    ready();
    go();
    expect(poll(&state, 1, 0) == 0, "there is room");
    int accepted = (int)must(accept(listener, NULL, NULL));
    for (uint32_t got, count = 0; count < BYTES; count += 4) {
        expect(recv(accepted, &got, 4, MSG_WAITALL) == 4, "the end after %u bytes", count);
        expect(got == count, "byte %u came at %u", got, count);
    }
    must(pthread_join(thread, NULL));
    char byte;
    expect(read(accepted, &byte, 1) == 0, "there is more");
    ok();
}
