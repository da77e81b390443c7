/* Every option that a program can set on a TCP socket and read back: of connections, listeners and sockets that are only bound. */
#include "inet.h"
#include <sys/time.h>
#ifndef TCP_NOTSENT_LOWAT
#define TCP_NOTSENT_LOWAT 25
#endif

static const int options[][3] = {
    {SOL_SOCKET, SO_KEEPALIVE, 1},       {SOL_SOCKET, SO_RCVBUF, 30000},     {SOL_SOCKET, SO_SNDBUF, 40000},
    {SOL_SOCKET, SO_PRIORITY, 5},        {SOL_SOCKET, SO_OOBINLINE, 1},      {SOL_SOCKET, SO_RCVLOWAT, 3},
    {SOL_SOCKET, SO_REUSEPORT, 1},       {SOL_SOCKET, SO_REUSEADDR, 1},      {SOL_SOCKET, SO_DONTROUTE, 1},
    {SOL_SOCKET, SO_TIMESTAMP, 1},       {IPPROTO_IP, IP_TOS, 0x28},         {IPPROTO_IP, IP_TTL, 77},
    {IPPROTO_IP, IP_MTU_DISCOVER, 2},    {IPPROTO_IP, IP_RECVERR, 1},        {IPPROTO_IP, IP_FREEBIND, 1},
    {IPPROTO_IP, IP_MINTTL, 3},          {IPPROTO_TCP, TCP_NODELAY, 1},      {IPPROTO_TCP, TCP_KEEPIDLE, 111},
    {IPPROTO_TCP, TCP_KEEPINTVL, 22},    {IPPROTO_TCP, TCP_KEEPCNT, 4},      {IPPROTO_TCP, TCP_SYNCNT, 3},
    {IPPROTO_TCP, TCP_LINGER2, 33},      {IPPROTO_TCP, TCP_USER_TIMEOUT, 44000}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384},
    {IPPROTO_TCP, TCP_CORK, 1},
};
#define COUNT (sizeof options / sizeof *options)

static int values[4][COUNT], fds[4];

int main(void) {
    int ends[2], backlog = listen_four(9);
    char device[16] = "", name[16] = "";
    pair_four(ends);
    fds[0] = ends[0], fds[1] = ends[1], fds[2] = backlog, fds[3] = (int)must(socket(AF_INET, SOCK_STREAM, 0));
    must(bind(fds[3], (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(9100)}, sizeof(struct sockaddr_in)));
    for (int i = 0; i < 4; i += i ? 1 : 2) /* ends[1] keeps the defaults */
        for (size_t j = 0; j < COUNT; j++)
            expect(set(fds[i], options[j][0], options[j][1], options[j][2]) == 0, "setting %d/%d", options[j][0], options[j][1]);
    struct linger linger = {1, 17};
    struct timeval patience = {12, 340000};
    must(setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    must(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    must(setsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    must(setsockopt(ends[0], IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    must(set(backlog, IPPROTO_TCP, TCP_DEFER_ACCEPT, 5)), must(set(backlog, IPPROTO_TCP, TCP_FASTOPEN, 6));
    int defer = get(backlog, IPPROTO_TCP, TCP_DEFER_ACCEPT);
    for (int i = 0; i < 4; i++)
        for (size_t j = 0; j < COUNT; j++)
            values[i][j] = get(fds[i], options[j][0], options[j][1]);
    int waiting = connect_four(port_of(backlog)); /* says nothing: nothing is accepted */
    ready();
    go();
    for (int i = 0; i < 4; i++)
        for (size_t j = 0; j < COUNT; j++) {
            int value = get(fds[i], options[j][0], options[j][1]);
            bool grows = i == 1 && options[j][0] == SOL_SOCKET && (options[j][1] == SO_RCVBUF || options[j][1] == SO_SNDBUF);
            expect(grows || value == values[i][j], "socket %d: option %d/%d is %d, was %d", i, options[j][0], options[j][1], value, values[i][j]);
        }
    socklen_t length = sizeof linger;
    linger = (struct linger){0};
    must(getsockopt(ends[0], SOL_SOCKET, SO_LINGER, &linger, &length));
    expect(linger.l_onoff == 1 && linger.l_linger == 17, "linger %d", linger.l_linger);
    length = sizeof patience;
    must(getsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, &length));
    expect(patience.tv_sec == 12, "patience %ld", (long)patience.tv_sec);
    length = sizeof device;
    must(getsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, device, &length));
    length = sizeof name;
    must(getsockopt(ends[0], IPPROTO_TCP, TCP_CONGESTION, name, &length));
    expect(!strcmp(device, "lo") && !strcmp(name, "reno"), "%s, %s", device, name);
    expect(get(backlog, IPPROTO_TCP, TCP_DEFER_ACCEPT) == defer && get(backlog, IPPROTO_TCP, TCP_FASTOPEN) == 6, "the listener's own");
    expect(!(revents(backlog) & POLLIN), "accepted before it has said a word");
    must(write(waiting, "word", 4));
    struct pollfd ask = {.fd = backlog, .events = POLLIN};
    expect(poll(&ask, 1, 5000) == 1, "not accepted after its first word");
    int accepted = (int)must(accept(backlog, NULL, NULL));
    expect(read(accepted, name, 16) == 4 && get(accepted, IPPROTO_TCP, TCP_KEEPIDLE) == 111, "what is accepted inherits");
    must(set(ends[0], IPPROTO_TCP, TCP_CORK, 0));
    must(write(ends[0], "end", 3));
    expect(read(ends[1], name, 16) == 3, "the connection");
    ok();
}
