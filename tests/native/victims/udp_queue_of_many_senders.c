/* Datagrams not read yet keep their boundaries, order, sources and destinations: empty ones, large ones, of IPv4 and of IPv6. */
#include "inet.h"

static void send_from(const char *source, const char *target, int port, const char *text) {
    bool v6 = strchr(source, ':');
    struct sockaddr_in own = four(v6 ? "0.0.0.0" : source, 4000 + (int)strlen(text)), to = four(v6 ? "0.0.0.0" : target, port);
    struct sockaddr_in6 own6 = six(v6 ? source : "::", 4000 + (int)strlen(text)), to6 = six(v6 ? target : "::", port);
    int fd = (int)must(socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0));
    set(fd, IPPROTO_IP, IP_TOS, 0x20);
    set(fd, IPPROTO_IP, IP_TTL, 33);
    must(set(fd, SOL_SOCKET, SO_REUSEADDR, 1));
    must(set(fd, SOL_SOCKET, SO_BROADCAST, 1));
    must(bind(fd, v6 ? (struct sockaddr *)&own6 : (struct sockaddr *)&own, v6 ? sizeof own6 : sizeof own));
    must(sendto(fd, text, strlen(text), 0, v6 ? (struct sockaddr *)&to6 : (struct sockaddr *)&to, v6 ? sizeof to6 : sizeof to));
    close(fd);
}

static void receive(int fd, const char *source, int port, const char *text, const char *destination) {
    char buffer[65536], name[64], control[512];
    struct sockaddr_storage from = {0};
    struct iovec area = {buffer, sizeof buffer};
    struct msghdr letter = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &area, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = must(recvmsg(fd, &letter, MSG_DONTWAIT));
    expect((size_t)got == strlen(text) && !memcmp(buffer, text, (size_t)got), "%zd bytes instead of %zu", got, strlen(text));
    void *address = from.ss_family == AF_INET ? (void *)&((struct sockaddr_in *)(void *)&from)->sin_addr : &((struct sockaddr_in6 *)(void *)&from)->sin6_addr;
    inet_ntop(from.ss_family, address, name, sizeof name);
    expect(!strcmp(name, source) && ntohs(((struct sockaddr_in *)(void *)&from)->sin_port) == port, "from %s", name);
    int tos = -1, ttl = -1;
    char to[64] = "";
    for (struct cmsghdr *item = CMSG_FIRSTHDR(&letter); item; item = CMSG_NXTHDR(&letter, item)) {
        if (item->cmsg_level != IPPROTO_IP)
            continue;
        if (item->cmsg_type == IP_TOS)
            tos = *CMSG_DATA(item);
        else if (item->cmsg_type == IP_TTL)
            memcpy(&ttl, CMSG_DATA(item), 4);
        else if (item->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(item), sizeof info);
            inet_ntop(AF_INET, &info.ipi_addr, to, sizeof to);
            expect(info.ipi_ifindex == 1, "through interface %d", info.ipi_ifindex);
        }
    }
    expect(!destination || (!strcmp(to, destination) && tos == 0x20 && ttl == 33), "to %s, tos %x, ttl %d", to, tos, ttl);
}

int main(void) {
    static char large[65508], larger[60001];
    memset(large, 'L', 65507);
    memset(larger, 'M', 60000);
    struct sockaddr_in any = four("0.0.0.0", 5001);
    struct sockaddr_in6 any6 = six("::", 5002);
    int fd = (int)must(socket(AF_INET, SOCK_DGRAM, 0)), fd6 = (int)must(socket(AF_INET6, SOCK_DGRAM, 0)), idle = (int)must(socket(AF_INET, SOCK_DGRAM, 0));
    must(bind(fd, (struct sockaddr *)&any, sizeof any));
    must(set(fd, IPPROTO_IP, IP_PKTINFO, 1));
    must(set(fd, IPPROTO_IP, IP_RECVTOS, 1));
    must(set(fd, IPPROTO_IP, IP_RECVTTL, 1));
    must(bind(fd6, (struct sockaddr *)&any6, sizeof any6));
    send_from("127.0.0.1", "127.0.0.1", 5001, "one");
    send_from("127.0.0.2", "127.0.0.9", 5001, "from another address");
    send_from("127.0.0.1", "127.0.0.1", 5001, "");
    send_from("127.0.0.1", "127.255.255.255", 5001, "to all");
    send_from("127.0.0.1", "127.0.0.1", 5001, "");
    must(sendto(idle, large, 65507, 0, (struct sockaddr *)&any, sizeof any));
    int idle_port = port_of(idle);
    send_from("127.0.0.3", "127.0.0.1", 5001, "last");
    send_from("::1", "::1", 5002, "six");
    send_from("127.0.0.1", "127.0.0.1", 5002, "four to six");
    send_from("::1", "::1", 5002, "");
    ready();
    go();
    receive(fd, "127.0.0.1", 4003, "one", "127.0.0.1");
    receive(fd, "127.0.0.2", 4020, "from another address", "127.0.0.9");
    receive(fd, "127.0.0.1", 4000, "", "127.0.0.1");
    receive(fd, "127.0.0.1", 4006, "to all", "127.255.255.255");
    receive(fd, "127.0.0.1", 4000, "", "127.0.0.1");
    receive(fd, "127.0.0.1", idle_port, large, NULL);
    receive(fd, "127.0.0.3", 4004, "last", "127.0.0.1");
    expect(recv(fd, large, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "one too many");
    receive(fd6, "::1", 4003, "six", NULL);
    receive(fd6, "::ffff:127.0.0.1", 4011, "four to six", NULL);
    receive(fd6, "::1", 4000, "", NULL);
    expect(recv(fd6, large, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "one too many");
    expect(port_of(fd) == 5001 && port_of(fd6) == 5002 && port_of(idle) == idle_port, "ports %d, %d, %d", port_of(fd), port_of(fd6), port_of(idle));
    send_from("127.0.0.1", "127.0.0.1", 5001, "after");
    receive(fd, "127.0.0.1", 4005, "after", "127.0.0.1");
    ok();
}
