/* Threads inside connect(), accept() and read() on TCP sockets, one writing more than fits, and an MPTCP listener served over TCP: all go on. */
#include "inet.h"
#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#define MUCH (24u << 20)

static int full, connecting, ends[2], quiet[2], open_one;
static atomic_int done;

static void *connects(void *argument) {
    struct sockaddr_in to = four("127.0.0.1", port_of(full));
    expect(connect(connecting, (struct sockaddr *)&to, sizeof to) == 0, "connect");
    done++;
    return argument;
}

static void *writes(void *argument) {
    static uint64_t words[MUCH / 8];
    for (size_t i = 0; i < MUCH / 8; i++)
        words[i] = pattern(i);
    for (size_t sent = 0; sent < MUCH;) { /* a write may be cut short by whatever interrupts it */
        ssize_t put = write(ends[0], (char *)words + sent, MUCH - sent);
        expect(put > 0, "write");
        sent += (size_t)put;
    }
    done++;
    return argument;
}

static void *reads(void *argument) {
    char text[8] = "";
    expect(read(quiet[1], text, 8) == 5 && !memcmp(text, "noise", 5), "read");
    done++;
    return argument;
}

static void *accepts(void *argument) {
    int fd = accept(open_one, NULL, NULL);
    char byte;
    expect(fd >= 0 && read(fd, &byte, 1) == 1 && byte == 'm', "accept");
    done++;
    return argument;
}

int main(void) {
    pthread_t threads[4];
    struct sockaddr_in name = four("0.0.0.0", 9400);
    full = listen_four(0);
    int first = connect_four(port_of(full)); /* one fits */
    connecting = (int)must(socket(AF_INET, SOCK_STREAM, 0));
    pair_four(ends), pair_four(quiet);
    open_one = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
    if (open_one < 0)
        open_one = (int)must(socket(AF_INET, SOCK_STREAM, 0));
    must(bind(open_one, (struct sockaddr *)&name, sizeof name));
    must(listen(open_one, 5));
    int known = connect_four(9400), served = (int)must(accept(open_one, NULL, NULL));
    void *(*const work[])(void *) = {connects, writes, reads, accepts};
    for (int i = 0; i < 4; i++)
        must(-pthread_create(&threads[i], NULL, work[i], NULL));
    nap(0.3);
    ready();
    go();
    drain(ends[1], MUCH);
    must(write(quiet[0], "noise", 5));
    int client = connect_four(9400);
    must(write(client, "m", 1));
    char byte;
    must(write(known, "k", 1));
    expect(read(served, &byte, 1) == 1 && byte == 'k', "the one that was served");
    must(accept(full, NULL, NULL));
    must(accept(full, NULL, NULL)); /* its SYN is sent again in some seconds */
    for (double end = now() + 15; done < 4 && now() < end; nap(0.01))
        ;
    expect(done == 4, "%d of 4 calls have come back", (int)done);
    must(write(connecting, "x", 1));
    close(first);
    ok();
}
