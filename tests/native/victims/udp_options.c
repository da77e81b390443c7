/* Options of UDP sockets of IPv4, IPv6 and UDP-Lite, set and read back; a timed receive; one that is corked afterwards still works. */
#include "inet.h"
#include <netinet/udp.h>
#include <sys/time.h>
#ifndef IPPROTO_UDPLITE
#define IPPROTO_UDPLITE 136
#endif

static const int options[][3] = {
    {SOL_SOCKET, SO_BROADCAST, 1},   {SOL_SOCKET, SO_RCVBUF, 70000},        {SOL_SOCKET, SO_SNDBUF, 50000},      {SOL_SOCKET, SO_TIMESTAMP, 1},
    {SOL_SOCKET, SO_RXQ_OVFL, 1},    {SOL_SOCKET, SO_PRIORITY, 3},          {IPPROTO_IP, IP_TOS, 0x10},          {IPPROTO_IP, IP_TTL, 9},
    {IPPROTO_IP, IP_PKTINFO, 1},     {IPPROTO_IP, IP_RECVTOS, 1},           {IPPROTO_IP, IP_MULTICAST_LOOP, 0},  {IPPROTO_IP, IP_MULTICAST_TTL, 7},
    {IPPROTO_IP, IP_FREEBIND, 1},    {IPPROTO_IP, IP_MTU_DISCOVER, 0},      {IPPROTO_IPV6, IPV6_V6ONLY, 1},      {IPPROTO_IPV6, IPV6_UNICAST_HOPS, 11},
    {IPPROTO_IPV6, IPV6_TCLASS, 40}, {IPPROTO_IPV6, IPV6_RECVPKTINFO, 1},   {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 5}, {IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1},
};
#define COUNT (sizeof options / sizeof *options)

int main(void) {
    int fds[3] = {(int)must(socket(AF_INET, SOCK_DGRAM, 0)), (int)must(socket(AF_INET6, SOCK_DGRAM, 0)), socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE)};
    int count = fds[2] < 0 ? 2 : 3, values[3][COUNT];
    struct timeval patience = {0, 250000};
    char text[16];
    for (int i = 0; i < count; i++) {
        for (size_t j = 0; j < COUNT; j++)
            if (options[j][0] != IPPROTO_IPV6 || i == 1)
                expect(set(fds[i], options[j][0], options[j][1], options[j][2]) == 0, "setting %d/%d", options[j][0], options[j][1]);
        must(setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
        struct sockaddr_in name = four("127.0.0.1", 6100 + i);
        struct sockaddr_in6 name6 = six("::1", 6101);
        must(i == 1 ? bind(fds[i], (struct sockaddr *)&name6, sizeof name6) : bind(fds[i], (struct sockaddr *)&name, sizeof name));
        must(i == 1 ? sendto(fds[i], "queued", 6, 0, (struct sockaddr *)&name6, sizeof name6) : sendto(fds[i], "queued", 6, 0, (struct sockaddr *)&name, sizeof name));
        for (size_t j = 0; j < COUNT; j++)
            values[i][j] = get(fds[i], options[j][0], options[j][1]);
    }
    ready();
    go();
    for (int i = 0; i < count; i++) {
        for (size_t j = 0; j < COUNT; j++)
            expect(get(fds[i], options[j][0], options[j][1]) == values[i][j], "socket %d: option %d/%d is %d, was %d", i, options[j][0], options[j][1], get(fds[i], options[j][0], options[j][1]), values[i][j]);
        expect(recv(fds[i], text, 16, 0) == 6 && !memcmp(text, "queued", 6), "socket %d: its queue", i);
        double begun = now();
        expect(recv(fds[i], text, 16, 0) == -1 && errno == EAGAIN && now() - begun > 0.2, "socket %d: its patience", i);
        expect(port_of(fds[i]) == 6100 + i, "port %d", port_of(fds[i]));
    }
    struct sockaddr_in name = four("127.0.0.1", 6100);
    must(set(fds[0], IPPROTO_UDP, UDP_CORK, 1));
    must(sendto(fds[0], "one", 3, 0, (struct sockaddr *)&name, sizeof name));
    must(sendto(fds[0], "two", 3, 0, (struct sockaddr *)&name, sizeof name));
    must(set(fds[0], IPPROTO_UDP, UDP_CORK, 0));
    expect(recv(fds[0], text, 16, 0) == 6 && !memcmp(text, "onetwo", 6), "what was corked");
    ok();
}
