/* Connected UDP sockets, ports shared by SO_REUSEPORT and SO_REUSEADDR, each with its own queue; multicast groups; an answer that nobody has the port. */
#include "inet.h"

int main(void) {
    char text[64] = "";
    struct sockaddr_in first = four("127.0.0.1", 6001), second = four("127.0.0.1", 6002), shared = four("127.0.0.1", 6003), nobody = four("127.0.0.1", 6999), all = four("0.0.0.0", 6005), group = four("239.1.2.3", 6005);
    int a = (int)must(socket(AF_INET, SOCK_DGRAM, 0)), b = (int)must(socket(AF_INET, SOCK_DGRAM, 0)), many[3], member = (int)must(socket(AF_INET, SOCK_DGRAM, 0)), told = (int)must(socket(AF_INET, SOCK_DGRAM, 0));
    must(bind(a, (struct sockaddr *)&first, sizeof first));
    must(bind(b, (struct sockaddr *)&second, sizeof second));
    must(connect(a, (struct sockaddr *)&second, sizeof second));
    must(connect(b, (struct sockaddr *)&first, sizeof first));
    must(send(a, "a to b", 6, 0));
    must(send(b, "b to a", 6, 0));
    must(send(b, "and again", 9, 0));
    for (int i = 0; i < 3; i++) {
        many[i] = (int)must(socket(AF_INET, SOCK_DGRAM, 0));
        must(set(many[i], SOL_SOCKET, SO_REUSEPORT, 1));
        must(bind(many[i], (struct sockaddr *)&shared, sizeof shared));
    }
    int counts[3] = {0};
    for (int i = 0; i < 60; i++) {
        int fd = (int)must(socket(AF_INET, SOCK_DGRAM, 0));
        must(sendto(fd, &i, sizeof i, 0, (struct sockaddr *)&shared, sizeof shared));
        close(fd);
    }
    /* Which of the group got which is read off without taking any: by looking at what another copy would read. */
    int got[3][60];
    for (int i = 0; i < 3; i++) {
        must(set(many[i], SOL_SOCKET, SO_PEEK_OFF, 0));
        while (recv(many[i], &got[i][counts[i]], sizeof(int), MSG_PEEK | MSG_DONTWAIT) == sizeof(int))
            counts[i]++;
        must(set(many[i], SOL_SOCKET, SO_PEEK_OFF, -1));
    }
    struct ip_mreqn interest = {.imr_multiaddr = group.sin_addr, .imr_address.s_addr = htonl(INADDR_LOOPBACK)};
    must(bind(member, (struct sockaddr *)&all, sizeof all));
    must(setsockopt(member, IPPROTO_IP, IP_ADD_MEMBERSHIP, &interest, sizeof interest));
    int speaker = (int)must(socket(AF_INET, SOCK_DGRAM, 0));
    must(setsockopt(speaker, IPPROTO_IP, IP_MULTICAST_IF, &interest, sizeof interest));
    must(set(speaker, IPPROTO_IP, IP_MULTICAST_TTL, 3));
    must(sendto(speaker, "to the group", 12, 0, (struct sockaddr *)&group, sizeof group));
    must(connect(told, (struct sockaddr *)&nobody, sizeof nobody));
    must(send(told, "?", 1, 0));
    expect(revents(told) & POLLERR, "nobody answered");
    ready();
    go();
    expect(recv(b, text, 64, MSG_DONTWAIT) == 6 && !memcmp(text, "a to b", 6), "b read %s", text);
    expect(recv(a, text, 64, MSG_DONTWAIT) == 6 && !memcmp(text, "b to a", 6), "a read %s", text);
    expect(recv(a, text, 64, MSG_DONTWAIT) == 9 && !memcmp(text, "and again", 9), "a read %s", text);
    must(send(a, "still", 5, 0));
    expect(recv(b, text, 64, 0) == 5, "the connection");
    int total = 0;
    for (int i = 0; i < 3; i++) {
        int number, j = 0;
        expect(get(many[i], SOL_SOCKET, SO_REUSEPORT) == 1, "SO_REUSEPORT is lost");
        for (; recv(many[i], &number, sizeof number, MSG_DONTWAIT) == sizeof number; j++)
            expect(j < counts[i] && number == got[i][j], "member %d read %d as number %d", i, number, j);
        expect(j == counts[i], "member %d read %d of %d", i, j, counts[i]);
        total += j;
    }
    expect(total == 60, "%d of 60", total);
    expect(recv(member, text, 64, MSG_DONTWAIT) == 12 && !memcmp(text, "to the group", 12), "the group's datagram");
    must(sendto(speaker, "once more", 9, 0, (struct sockaddr *)&group, sizeof group));
    nap(0.05);
    expect(recv(member, text, 64, MSG_DONTWAIT) == 9, "it has left the group");
    expect(get(speaker, IPPROTO_IP, IP_MULTICAST_TTL) == 3, "IP_MULTICAST_TTL");
    expect(send(told, "?", 1, 0) == -1 && errno == ECONNREFUSED, "the error is lost");
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    must(getpeername(told, (struct sockaddr *)&peer, &length));
    expect(ntohs(peer.sin_port) == 6999, "connected to %d", ntohs(peer.sin_port));
    ok();
}
