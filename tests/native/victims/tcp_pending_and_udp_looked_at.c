/* Connections that nobody has accepted, and datagrams nobody has read: also after a seal that was given up, which had looked into them. */
#include "inet.h"

static int listener, port;

int main(void) {
    char buffer[64] = "";
    listener = listen_four(8);
    port = port_of(listener);
    int clients[3];
    struct sockaddr_in names[3];
    for (int i = 0; i < 3; i++) {
        socklen_t length = sizeof names[i];
        clients[i] = connect_four(port);
        must(getsockname(clients[i], (struct sockaddr *)&names[i], &length));
        buffer[0] = (char)('a' + i);
        must(write(clients[i], buffer, 1));
        if (i == 1) {
            must(shutdown(clients[1], SHUT_WR));
            int gone = connect_four(port);
            must(write(gone, "gone", 4));
            close(gone);
        }
    }
    size_t much = fill(clients[2]);
    struct sockaddr_in udp_name = four("127.0.0.1", 0);
    int udp = (int)must(socket(AF_INET, SOCK_DGRAM, 0)), sender = (int)must(socket(AF_INET, SOCK_DGRAM, 0));
    must(bind(udp, (struct sockaddr *)&udp_name, sizeof udp_name));
    udp_name = four("127.0.0.1", port_of(udp));
    must(sendto(sender, "", 0, 0, (struct sockaddr *)&udp_name, sizeof udp_name));
    must(sendto(sender, "x", 1, 0, (struct sockaddr *)&udp_name, sizeof udp_name));
    ready();
    go();
    for (int i = 0; i < 4; i++) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        int client = i < 2 ? i : i - 1;
        struct pollfd ask = {.fd = listener, .events = POLLIN};
        expect(poll(&ask, 1, 2000) == 1, "nothing to accept as number %d", i);
        int fd = (int)must(accept(listener, (struct sockaddr *)&peer, &length));
        if (i == 2) {
            expect(read(fd, buffer, 64) == 4 && !memcmp(buffer, "gone", 4) && read(fd, buffer, 1) == 0, "the one that has gone");
            continue;
        }
        expect(peer.sin_port == names[client].sin_port, "number %d has another port", i);
        expect(read(fd, buffer, 1) == 1 && buffer[0] == 'a' + client, "number %d read %c", i, buffer[0]);
        if (client == 1)
            expect(read(fd, buffer, 1) == 0, "its end");
        if (client == 2)
            drain(fd, much);
        must(write(fd, "ok", 2));
        expect(read(clients[client], buffer, 2) == 2 && get(clients[client], SOL_SOCKET, SO_ERROR) == 0, "the answer to %d", client);
    }
    expect(recv(udp, buffer, 8, MSG_DONTWAIT) == 0 && recv(udp, buffer, 8, MSG_DONTWAIT) == 1, "datagrams");
    ok();
}
